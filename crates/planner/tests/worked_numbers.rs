//! Worked numbers that a scenario would not show well.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;

use evenkeel_model::{Kind, ShardLoad, Snapshot, StreamKey};
use evenkeel_planner::{apply, plan, plan_without_stream_tiers, topic_load};
use random::{Rng, add_brokers, add_stream};
use serde_json::json;

fn row(rest: serde_json::Value) -> ShardLoad {
    let mut row = json!({"shard": "stream/default/t/0"});
    row.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    serde_json::from_value(row).unwrap()
}

#[test]
fn the_load_of_a_shard_is_its_parts() {
    let cases = [
        (json!({}), 0.2),
        (json!({"bytes_per_second": 1_000, "producers": 1, "consumers": 1}), 0.8024),
        (
            json!({"bytes_per_second": 100_000, "producers": 10, "consumers": 10,
            "backlog": 5_000}),
            6.54,
        ),
        (
            json!({"bytes_per_second": 250_000, "producers": 3, "consumers": 5,
            "backlog": 20_000}),
            3.6,
        ),
        // Subscriptions and messages do not weigh; what is no rate counts nothing.
        (json!({"subscriptions": 9, "messages_per_second": 9, "bytes_per_second": -5}), 0.2),
    ];
    for (rest, expected) in cases {
        let load = topic_load(&row(rest.clone()));
        assert!((load - expected).abs() < 1e-9, "{rest}: {load}");
    }
}

#[test]
fn a_stream_and_a_cache_of_one_name_are_placed_apart() {
    let mut s = Snapshot::empty(1_700_000_000_000);
    add_brokers(&mut s, 5);
    for n in 0..16 {
        for kind in [Kind::Stream, Kind::Cache] {
            let key = StreamKey::new(kind, "default", &format!("pair{n:02}")).unwrap();
            add_stream(&mut s, &key, 1, 1);
        }
    }
    plan(&s).decisions.iter().for_each(|d| apply(&mut s, d));
    let leader = |kind, n: usize| {
        let key = StreamKey::new(kind, "default", &format!("pair{n:02}")).unwrap();
        s.assignments[&key.shard(0)].leader.clone()
    };
    let apart = (0..16).filter(|n| leader(Kind::Stream, *n) != leader(Kind::Cache, *n)).count();
    assert_eq!(s.assignments.len(), 32);
    assert!(apart >= 8, "{apart} of 16 pairs are on different brokers");
}

/// Where the floor does not bind, tiers only filter and leave the order within them alone: a single
/// stream lies where it would lie without them.
#[test]
fn where_the_floor_does_not_bind_a_single_stream_lies_as_without_tiers() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut s = Snapshot::empty(1_700_000_000_000);
        let brokers = 2 + rng.below(8);
        add_brokers(&mut s, brokers);
        let key = StreamKey::new(Kind::Stream, "default", &format!("s{seed}")).unwrap();
        // Fewer shards than brokers, so that the floor is 0.
        add_stream(&mut s, &key, rng.range(1, brokers as u32 - 1), 1);
        for view in s.brokers.values_mut() {
            let load = json!({"reported_at_ms": s.as_of_ms, "cpu_percent": rng.below(100)});
            view.load = rng.chance(80).then(|| serde_json::from_value(load).unwrap());
        }
        let (with, without) = (plan(&s), plan_without_stream_tiers(&s));
        assert!(with.report.written() > 0);
        let placed = |plan: &evenkeel_planner::Plan| {
            let writes = plan.decisions.iter().filter_map(|d| d.decision.write());
            writes.map(|w| w.next.clone()).collect::<Vec<_>>()
        };
        assert_eq!(placed(&with), placed(&without), "seed {seed}");
    }
}
