//! Load rebalancing on random clusters: it comes to rest whatever the strategy, no more than one move
//! is under way, and where the reports tell what a move did, each one leaves scores less uneven.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;

use evenkeel_model::{BrokerId, MoveReason, Snapshot, Strategy};
use evenkeel_planner::{balance, until_stable};
use random::{Rng, cluster};
use serde_json::json;

fn loaded(rng: &mut Rng) -> Snapshot {
    let mut s = cluster(rng);
    s.policy.assignment_strategy =
        [Strategy::Fair, Strategy::Balanced, Strategy::WeightedLoad][rng.below(3)];
    s.policy.moves_max_concurrent = rng.range(1, 4);
    let rebalancing = &mut s.policy.rebalancing;
    rebalancing.enabled = true;
    rebalancing.leaders = rng.chance(50);
    rebalancing.cv_threshold_percent = Some(10.0);
    // As fast as passes go, so that only the rule itself can bring it to rest.
    rebalancing.check_interval_seconds = Some(0);
    rebalancing.max_moves_per_hour = Some(u32::MAX);
    rebalancing.cooldown_seconds = 0;
    let ids: Vec<BrokerId> = s.brokers.keys().cloned().collect();
    for id in ids {
        let led = s.assignments.values().filter(|a| a.leader.as_ref() == Some(&id));
        let rows: Vec<_> = led
            .map(|a| {
                json!({"shard": a.shard, "producers": rng.below(9),
                    "bytes_per_second": rng.below(5_000_000)})
            })
            .collect();
        let report = json!({"reported_at_ms": s.as_of_ms, "cpu_percent": rng.below(100),
            "memory_percent": rng.below(100), "shards": rows});
        s.brokers.get_mut(&id).unwrap().load = Some(serde_json::from_value(report).unwrap());
    }
    s
}

fn under_way(s: &Snapshot, reason: Option<MoveReason>) -> usize {
    let is_for = |m: &evenkeel_model::Move| reason.is_none_or(|r| m.reason == r);
    s.assignments.values().filter(|a| a.is_moving() && a.move_.as_ref().is_some_and(is_for)).count()
}

#[test]
fn load_moves_come_to_rest_one_at_a_time_and_even_the_scores_out() {
    let mut ended = 0;
    for seed in 0..150 {
        let mut s = loaded(&mut Rng::new(seed));
        let told = s.policy.assignment_strategy != Strategy::WeightedLoad;
        let measured = told && !s.policy.rebalancing.leaders;
        let mut last = balance(&s).cv_percent;
        for pass in 0.. {
            assert!(pass < 2_000, "seed {seed} does not come to rest");
            let rest = until_stable(s, 1);
            s = rest.snapshot;
            assert!(under_way(&s, Some(MoveReason::Load)) <= 1, "seed {seed}");
            if rest.stable {
                break;
            }
            if measured && under_way(&s, None) == 0 {
                let now = balance(&s).cv_percent;
                assert!(now < last, "seed {seed}: {last} to {now}");
                last = now;
                ended += 1;
            }
        }
    }
    assert!(ended > 200, "only {ended} moves ended");
}
