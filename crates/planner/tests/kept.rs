//! A planner that is kept plans what a new one would, whatever changed in between.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;

use evenkeel_model::{Assignment, BrokerId, Lifecycle, Marker, MarkerReason, ShardKey};
use evenkeel_planner::{Planner, apply, plan};
use random::{Rng, cluster};
use serde_json::json;

fn shard(rng: &mut Rng, planner: &Planner) -> Option<ShardKey> {
    let streams: Vec<_> = planner.snapshot().streams.values().filter(|s| s.shards > 0).collect();
    let stream = streams.get(rng.below(streams.len()))?;
    Some(stream.stream.shard(rng.below(stream.shards as usize) as u32))
}

/// Now and then somebody whom the snapshot does not list.
fn broker(rng: &mut Rng, planner: &Planner) -> BrokerId {
    let ids: Vec<_> = planner.snapshot().brokers.keys().collect();
    if ids.is_empty() || rng.chance(5) {
        return random::broker(900 + rng.below(3));
    }
    ids[rng.below(ids.len())].clone()
}

fn assignment(rng: &mut Rng, planner: &Planner, shard: &ShardKey) -> Assignment {
    let mut ids: Vec<BrokerId> = Vec::new();
    for _ in 0..rng.range(1, 4) {
        let id = broker(rng, planner);
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    let old = planner.snapshot().assignments.get(shard);
    let mut next = Assignment::new(shard.clone(), ids[0].clone(), ids[1..].to_vec());
    next.generation = old.map_or(1, |a| a.generation + 1);
    if rng.chance(20) {
        next.joining = Some(broker(rng, planner)).filter(|b| !ids.contains(b));
    }
    if rng.chance(20) {
        next.successor = Some(broker(rng, planner));
    }
    next
}

fn change(rng: &mut Rng, planner: &mut Planner) {
    let Some(shard) = shard(rng, planner) else { return };
    match rng.below(8) {
        0 | 1 => {
            let next = assignment(rng, planner, &shard);
            planner.set_assignment(&shard, Some(next));
        }
        2 => planner.set_assignment(&shard, None),
        3 => {
            let reports = planner.snapshot().reports.get(&shard).cloned().unwrap_or_default();
            let mut reports: Vec<_> = reports.into_iter().filter(|_| rng.chance(70)).collect();
            if let Some(first) = reports.first_mut() {
                first.halted = rng.chance(50).then(|| "damaged".to_owned());
            }
            planner.set_reports(&shard, reports);
        }
        4 => {
            let id = broker(rng, planner);
            let at = planner.snapshot().as_of_ms;
            let rows = json!([{"shard": shard, "bytes_per_second": rng.range(1, 1_000_000)}]);
            let report = json!({"reported_at_ms": at, "cpu_percent": 10, "shards": rows});
            let report = rng.chance(80).then(|| serde_json::from_value(report).unwrap());
            planner.set_load(&id, report);
        }
        5 => {
            let reason = MarkerReason::Unload;
            let (from_broker, to_broker) = (Some(broker(rng, planner)), Some(broker(rng, planner)));
            let marker = Marker { reason, from_broker, to_broker };
            planner.set_marker(&shard, rng.chance(70).then_some(marker));
        }
        6 => {
            let id = broker(rng, planner);
            let Some(view) = planner.snapshot().brokers.values().next() else { return };
            // Somebody who is not listed joins, or is listed again as another.
            let mut view = planner.snapshot().brokers.get(&id).unwrap_or(view).clone();
            view.lifecycle = [Lifecycle::Live, Lifecycle::Draining, Lifecycle::Down][rng.below(3)];
            view.registered = view.lifecycle != Lifecycle::Down && rng.chance(80);
            view.zone = rng.chance(80).then(|| format!("z{}", rng.below(3)));
            view.max_shards = rng.chance(30).then(|| rng.range(0, 20));
            view.load = view.load.filter(|_| rng.chance(70));
            planner.set_broker(&id, view);
        }
        _ => planner.set_time(planner.snapshot().as_of_ms + i64::from(rng.range(0, 20_000))),
    }
}

#[test]
fn it_plans_what_a_new_planner_would() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut planner = Planner::new(cluster(&mut rng));
        for round in 0..30 {
            change(&mut rng, &mut planner);
            let planned = planner.plan();
            assert_eq!(planned, plan(planner.snapshot()), "seed {seed}, round {round}");
            if rng.chance(30) {
                let mut expected = planner.snapshot().clone();
                for decision in &planned.decisions {
                    apply(&mut expected, decision);
                    planner.apply(decision);
                }
                assert_eq!(planner.snapshot(), &expected, "seed {seed}, round {round}");
            }
        }
    }
}
