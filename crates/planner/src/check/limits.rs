//! Limits: shards per broker, moves and repairs at once, copies per broker. What was over a limit
//! before may stay so; nothing may start there.

use std::collections::BTreeMap;

use evenkeel_model::{Assignment, BrokerId, MoveReason, ShardKey, ShardState};

use super::cluster::Cluster;
use super::{Change, Findings, copy_of};
use crate::decision::Step;

pub(super) fn check(cluster: &Cluster<'_>, writes: &[Change<'_>], found: &mut Findings) {
    caps(cluster, writes, found);
    if writes.iter().any(Change::starts) {
        flights(cluster, writes, found);
    }
}

fn names(a: &Assignment, broker: &BrokerId) -> bool {
    a.members().iter().any(|(b, _)| *b == broker)
}

fn caps(cluster: &Cluster<'_>, writes: &[Change<'_>], found: &mut Findings) {
    let mut held: BTreeMap<&BrokerId, i64> = BTreeMap::new();
    let capped = |b: &BrokerId| cluster.snapshot.brokers.get(b).and_then(|v| v.max_shards);
    for change in writes {
        for (broker, _) in change.next().members() {
            if capped(broker).is_some() && change.old.is_none_or(|old| !names(old, broker)) {
                *held.entry(broker).or_default() += 1;
            }
        }
    }
    if held.is_empty() {
        return;
    }
    for change in writes {
        for (broker, _) in change.old.iter().flat_map(|old| old.members()) {
            if !names(change.next(), broker)
                && let Some(count) = held.get_mut(broker)
            {
                *count -= 1;
            }
        }
    }
    let more: BTreeMap<&BrokerId, i64> = held.clone();
    for a in cluster.snapshot.assignments.values() {
        for (broker, _) in a.members() {
            if let Some(count) = held.get_mut(broker) {
                *count += 1;
            }
        }
    }
    for change in writes {
        for (broker, _) in change.next().members() {
            let (Some(cap), Some(count)) = (capped(broker), held.get(broker)) else { continue };
            let new = change.write.step != Step::Retake
                && change.old.is_none_or(|old| !names(old, broker));
            if new && *count > i64::from(cap) && more[broker] > 0 {
                let what =
                    format!("{broker} would hold {count} shards and its max_shards is {cap}");
                found.say(change.shard(), what);
            }
        }
    }
}

/// Whose limit something under way counts against.
#[derive(PartialEq, Eq)]
enum Pool {
    Moves,
    Repairs,
    Free,
}

/// By what the shard was before the plan.
fn pool(cluster: &Cluster<'_>, old: &Assignment, under_way: &Assignment) -> Pool {
    let reason = under_way.move_.as_ref().map(|m| m.reason);
    if under_way.successor.is_some() || reason != Some(MoveReason::Restore) {
        return Pool::Moves;
    }
    let live = old.voters().filter(|b| cluster.holds(old, b)).count();
    let urgent = live < 2 || live * 2 <= old.voters().count();
    let (pool, limit) = if urgent {
        (Pool::Repairs, cluster.snapshot.policy.repairs_max_concurrent)
    } else {
        (Pool::Moves, cluster.snapshot.policy.moves_max_concurrent)
    };
    let reports = cluster.snapshot.reports.get(&old.shard).into_iter().flatten();
    let of_leader = reports.filter(|r| Some(&r.broker) == old.leader.as_ref());
    let end = of_leader.max_by_key(|r| r.generation).and_then(|r| r.log_end);
    let bound = cluster.snapshot.policy.move_fence_max_lag_records;
    let small = under_way.leaving.is_none() && end.is_some_and(|end| end <= bound);
    if small && limit > 0 { Pool::Free } else { pool }
}

#[derive(Default)]
struct Flights<'a> {
    moves: u32,
    repairs: u32,
    copies: BTreeMap<&'a BrokerId, u32>,
}

impl<'a> Flights<'a> {
    fn add(&mut self, cluster: &Cluster<'_>, old: &Assignment, a: &'a Assignment) {
        let joins = a.joining.is_some() && a.state != ShardState::Draining;
        let flies = a.successor.is_some() || joins;
        let halted = old.leader.as_ref().is_some_and(|b| cluster.has_halted(old, b));
        let led =
            cluster.standing(a.leader.as_ref()).may_lead() && !(halted && a.leader == old.leader);
        if !flies || !led || cluster.is_copy_paused(old, a) {
            return;
        }
        match pool(cluster, old, a) {
            Pool::Moves => self.moves += 1,
            Pool::Repairs => self.repairs += 1,
            Pool::Free => {}
        }
        if let Some(copy) = copy_of(a) {
            for broker in a.leader.iter().chain([copy]) {
                *self.copies.entry(broker).or_default() += 1;
            }
        }
    }
}

fn flights(cluster: &Cluster<'_>, writes: &[Change<'_>], found: &mut Findings) {
    let written: BTreeMap<&ShardKey, &Change<'_>> =
        writes.iter().map(|change| (change.shard(), change)).collect();
    let mut flights = Flights::default();
    for (shard, a) in &cluster.snapshot.assignments {
        if a.is_moving() && !written.contains_key(shard) {
            flights.add(cluster, a, a);
        }
    }
    for change in writes {
        if let Some(old) = change.old {
            flights.add(cluster, old, change.next());
        }
    }
    let policy = &cluster.snapshot.policy;
    for change in writes.iter().filter(|c| c.starts()) {
        let (next, Some(old)) = (change.next(), change.old) else { continue };
        let (under_way, limit, what) = match pool(cluster, old, next) {
            Pool::Moves => (flights.moves, policy.moves_max_concurrent, "moves"),
            Pool::Repairs => (flights.repairs, policy.repairs_max_concurrent, "repairs"),
            Pool::Free => (0, 0, "small copies"),
        };
        if under_way > limit {
            let what = format!("{under_way} {what} would be under way and the limit is {limit}");
            found.say(change.shard(), what);
        }
        let (Some(max), Some(copy)) = (policy.moves_max_per_node, copy_of(next)) else { continue };
        for broker in next.leader.iter().chain([copy]) {
            let count = flights.copies.get(broker).copied().unwrap_or(0);
            if count > max {
                let what =
                    format!("{broker} would take part in {count} copies and the limit is {max}");
                found.say(change.shard(), what);
            }
        }
    }
}
