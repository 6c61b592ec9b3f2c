//! How near repairs come to the least time that their links allow, at shares that stand.

use std::collections::BTreeMap;

use super::*;
use crate::bound::{Link as Ends, Missing, least_seconds};
use crate::scenario::Cluster;

const LINK: u64 = 40_000_000;
const SHARD: u64 = 12 << 20;

/// Seconds of one repair, and the least that it could take: with any destinations, and with those
/// that the planner chose.
#[derive(Debug)]
struct Measured {
    took: f64,
    least: f64,
    given: f64,
}

struct Repair {
    placement: Placement,
    migration: Migration,
    shares: Vec<f64>,
    lost: usize,
}

impl Repair {
    /// The last of the nodes is lost; `shares` are those of the others.
    fn new(shards: u32, per_node: usize, shares: &[f64]) -> Self {
        let nodes = shares.len() + 1;
        let cluster = Cluster {
            nodes,
            shards,
            data_bytes: u64::from(shards) * SHARD,
            link: LINK,
            detection_ms: 1.0,
            restore_delay_ms: 1.0,
            ..Cluster::default()
        };
        let controls = Controls { at_once: 64, per_node, ..Controls::default() };
        let mut placement = Placement::new(&cluster, &controls);
        let mut migration = Migration::new(nodes, LINK, &controls);
        for node in 0..nodes {
            migration.connect(Duration::ZERO, node, true, &mut placement);
        }
        Self { placement, migration, shares: shares.to_vec(), lost: nodes - 1 }
    }

    fn rate(&self, node: usize) -> f64 {
        self.shares.get(node).map_or(0.0, |share| share * LINK as f64)
    }

    fn missing(&self) -> BTreeMap<ShardKey, Missing> {
        let lost = self.placement.ids[self.lost].clone();
        let held = self.placement.assignments().filter(|a| a.role_of(&lost).is_some());
        held.map(|a| {
            let live = a.voters().filter(|b| **b != lost);
            let holders: Vec<usize> = live.filter_map(|b| self.placement.number(b)).collect();
            let allowed = (0..self.lost).filter(|n| !holders.contains(n)).collect();
            (a.shard.clone(), Missing { bytes: SHARD as f64, holders, allowed })
        })
        .collect()
    }

    fn step(&mut self, step: u32) {
        let now = ROUND * step;
        let now_ms = now.as_secs_f64() * 1000.0;
        if step.is_multiple_of(4) {
            for node in 0..self.lost {
                let share = self.shares[node];
                let status =
                    NodeStatus { share, state: "holding".to_owned(), ..NodeStatus::default() };
                self.migration.status(now, node, status, &mut self.placement);
                self.migration.allow(node, self.rate(node) as u64);
            }
        }
        if self.placement.unplanned || step.is_multiple_of(20) {
            self.placement.pass(now_ms);
        }
        self.migration.step(now, &mut self.placement);
    }

    fn run(mut self) -> Measured {
        self.step(0);
        let missing = self.missing();
        self.migration.connect(ROUND, self.lost, false, &mut self.placement);
        self.placement.register(self.lost, false, 250.0);
        let (mut first, mut step, mut given) = (None, 1, BTreeMap::new());
        loop {
            self.step(step);
            for assignment in self.placement.assignments() {
                if let Some(to) = &assignment.joining {
                    given.insert(assignment.shard.clone(), self.placement.number(to).unwrap());
                }
            }
            if self.placement.copies() > 0 {
                first.get_or_insert(step);
            } else if first.is_some() && self.missing().is_empty() {
                break;
            }
            step += 1;
            assert!(step < 40_000, "the repair does not end");
        }
        let rates: Vec<Ends> = (0..self.lost)
            .map(|node| Ends { egress: self.rate(node), ingress: self.rate(node) })
            .collect();
        let free: Vec<Missing> = missing.values().cloned().collect();
        let bound = |copies: &[Missing]| least_seconds(&rates, copies).unwrap();
        let chosen: Vec<Missing> = missing
            .into_iter()
            .map(|(shard, copy)| Missing { allowed: vec![given[&shard]], ..copy })
            .collect();
        let took = f64::from(step - first.unwrap()) * ROUND.as_secs_f64();
        Measured { took, least: bound(&free), given: bound(&chosen) }
    }
}

#[test]
fn a_repair_takes_little_more_than_its_links_need_for_the_destinations_it_was_given() {
    let uneven = vec![0.05, 0.2, 0.1, 0.3, 0.05];
    for (shards, per_node, shares) in [
        (32, 4, vec![0.2; 5]),
        (32, 2, vec![0.2; 5]),
        (32, 4, vec![0.05; 5]),
        (32, 4, uneven.clone()),
        (96, 4, vec![0.2; 5]),
        (320, 4, vec![0.2; 5]),
        (320, 2, uneven),
        (200, 2, vec![0.2; 19]),
        (1000, 2, vec![0.2; 19]),
    ] {
        let measured = Repair::new(shards, per_node, &shares).run();
        let over = measured.took / measured.given;
        // A round to begin and one to be told of the end are half a second.
        assert!(over <= 1.2, "{over} with {shards} shards at {shares:?}: {measured:?}");
        assert!(measured.least <= measured.given * 1.001, "{measured:?}");
    }
}
