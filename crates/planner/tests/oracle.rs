//! The planner's choices against the same choices reckoned slowly from the written rule.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;
mod written_rule;

use std::collections::BTreeMap;

use evenkeel_model::{BrokerId, Lifecycle, Marker, MarkerReason, ShardKey, Snapshot, Strategy};
use evenkeel_planner::{Decision, Plan, RefusedBecause, Step, plan};
use random::{Rng, cluster};
use serde_json::json;
use written_rule::WrittenRule;

/// Random clusters where the choice is hard: every strategy, bands, weights, regions, zones, full
/// and leaving brokers, markers, moves in flight, reports that are stale, partial or wrong.
fn unplaced(rng: &mut Rng) -> Snapshot {
    let mut s = cluster(rng);
    s.policy.assignment_strategy =
        [Strategy::Fair, Strategy::Balanced, Strategy::WeightedLoad][rng.below(3)];
    s.policy.tie_band_percent = [0.0, 10.0, 60.0][rng.below(3)];
    s.policy.capacity_weighted = rng.chance(35);
    s.policy.moves_max_concurrent = 0;
    let shards: Vec<ShardKey> = s.assignments.keys().cloned().collect();
    for shard in shards {
        if rng.chance(40) {
            s.assignments.remove(&shard);
        }
    }
    describe_brokers(rng, &mut s);
    describe_streams(rng, &mut s);
    move_some(rng, &mut s);
    report_load(rng, &mut s);
    s
}

fn describe_brokers(rng: &mut Rng, s: &mut Snapshot) {
    let (zones, regions) = (rng.below(4), rng.below(3));
    for view in s.brokers.values_mut() {
        view.max_shards = rng.chance(20).then(|| rng.range(0, 12));
        view.weight = f64::from(rng.range(1, 4));
        view.zone = (zones > 0 && rng.chance(80)).then(|| format!("z{}", rng.below(zones)));
        view.region = (regions > 0 && rng.chance(80)).then(|| format!("r{}", rng.below(regions)));
        match rng.below(20) {
            0 => view.lifecycle = Lifecycle::Draining,
            1 => view.lifecycle = Lifecycle::Down,
            2 => view.registered = false,
            _ => {}
        }
    }
}

fn describe_streams(rng: &mut Rng, s: &mut Snapshot) {
    let ids: Vec<BrokerId> = s.brokers.keys().cloned().collect();
    for (key, stream) in &mut s.streams {
        stream.region = rng.chance(25).then(|| format!("r{}", rng.below(3)));
        stream.replication_factor = rng.range(1, 3);
        stream.durable = rng.chance(70);
        for number in 0..stream.shards {
            let any = |rng: &mut Rng| rng.chance(60).then(|| ids[rng.below(ids.len())].clone());
            if rng.chance(15) {
                let (from_broker, to_broker) = (any(rng), any(rng));
                let marker = Marker { reason: MarkerReason::Unload, from_broker, to_broker };
                s.unassigned.insert(key.shard(number), marker);
            }
        }
    }
}

/// Some leaders are on their way to a live broker.
fn move_some(rng: &mut Rng, s: &mut Snapshot) {
    let live: Vec<BrokerId> =
        s.brokers.iter().filter(|(_, b)| b.is_target()).map(|(id, _)| id.clone()).collect();
    for a in s.assignments.values_mut() {
        let leader = a.leader.clone().unwrap();
        let others: Vec<&BrokerId> = live.iter().filter(|b| **b != leader).collect();
        if s.brokers[&leader].is_target() && !others.is_empty() && rng.chance(8) {
            a.successor = Some(others[rng.below(others.len())].clone());
        }
    }
}

fn report_load(rng: &mut Rng, s: &mut Snapshot) {
    let leaders: Vec<(ShardKey, BrokerId)> =
        s.assignments.values().map(|a| (a.shard.clone(), a.leader.clone().unwrap())).collect();
    for (id, broker) in &mut s.brokers {
        let mut rows = Vec::new();
        for (shard, leader) in &leaders {
            // Shards that it leads, most of them, and a few that it led when it reported.
            if rng.chance(if leader == id { 75 } else { 4 }) {
                rows.push(json!({"shard": shard, "producers": rng.below(4),
                    "bytes_per_second": rng.below(1_000_000), "backlog": rng.below(20_000)}));
            }
        }
        if rng.chance(75) {
            let age = if rng.chance(10) { 90_001 } else { 90_000 };
            let mut report = json!({"reported_at_ms": s.as_of_ms - age, "shards": rows});
            let percents = ["cpu_percent", "memory_percent"].map(|name| (name, 100));
            let rates = ["disk_io_bytes_per_second", "network_io_bytes_per_second"]
                .map(|name| (name, 300_000_000));
            for (name, most) in percents.into_iter().chain(rates) {
                if rng.chance(80) {
                    report[name] = json!(rng.below(most));
                }
            }
            broker.load = Some(serde_json::from_value(report).unwrap());
        }
        let capacity = |rng: &mut Rng| rng.chance(30).then(|| u64::from(rng.range(0, 400_000_000)));
        broker.disk_bytes_per_second = capacity(rng).map(|c| c.max(1));
        broker.network_bytes_per_second = capacity(rng).map(|c| c.max(1));
    }
}

/// Shards that are to be placed, in the order in which the phases take them: first those that lost
/// their only copy for good, then the others.
fn to_place(s: &Snapshot) -> Vec<ShardKey> {
    let lost = |a: &&evenkeel_model::Assignment| {
        let leader = a.leader.as_ref().unwrap();
        !s.streams[&a.shard.stream].durable && s.brokers[leader].lifecycle == Lifecycle::Down
    };
    let mut shards: Vec<ShardKey> =
        s.assignments.values().filter(lost).map(|a| a.shard.clone()).collect();
    for (key, stream) in &s.streams {
        let unplaced = (0..stream.shards).map(|n| key.shard(n));
        shards.extend(unplaced.filter(|shard| !s.assignments.contains_key(shard)));
    }
    shards
}

fn decision<'p>(plan: &'p Plan, shard: &ShardKey) -> &'p Decision {
    &plan.decisions.iter().find(|d| d.shard == *shard).unwrap().decision
}

/// The word that tells why nobody can take a shard.
fn refusal(rule: &WrittenRule<'_>, shard: &ShardKey) -> RefusedBecause {
    let source = rule.s.unassigned.get(shard).and_then(|m| m.from_broker.as_ref());
    let eligible = rule.eligible(&shard.stream);
    let anywhere = rule.s.brokers.values().any(|b| b.is_target());
    match eligible.iter().any(|b| Some(*b) != source) {
        true => RefusedBecause::AllFull,
        false if eligible.is_empty() && anywhere => RefusedBecause::NoBrokerInRegion,
        false => RefusedBecause::NoLiveBroker,
    }
}

#[test]
fn the_planner_places_where_the_written_rule_says() {
    let (mut placed, mut refused, mut followed) = (0, 0, 0);
    for seed in 0..800 {
        let s = unplaced(&mut Rng::new(seed));
        let mut rule = WrittenRule::new(&s);
        let plan = plan(&s);
        let mut leaders: BTreeMap<ShardKey, BrokerId> = BTreeMap::new();
        for shard in to_place(&s) {
            let decided = decision(&plan, &shard);
            let Some(leader) = rule.place(&shard) else {
                let Decision::Refuse(refused_now) = decided else {
                    panic!("seed {seed}: {shard}: {decided:?}")
                };
                assert_eq!(refused_now.because, refusal(&rule, &shard), "seed {seed}: {shard}");
                refused += 1;
                continue;
            };
            let write = decided.write().filter(|w| w.step == Step::Place);
            let to = write.and_then(|w| w.to.as_ref());
            assert_eq!(to, Some(&leader), "seed {seed}: {shard}: {decided:?}");
            leaders.insert(shard, leader);
            placed += 1;
        }
        for (shard, leader) in leaders {
            let followers = rule.follow(&shard, &leader);
            let written = &decision(&plan, &shard).write().unwrap().next.followers;
            assert_eq!(*written, followers, "seed {seed}: {shard}");
            followed += followers.len();
        }
    }
    assert!(placed > 5000 && refused > 500 && followed > 3000, "{placed} {refused} {followed}");
}
