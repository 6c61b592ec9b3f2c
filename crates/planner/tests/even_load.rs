//! Evening out load at once.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;

use std::collections::BTreeMap;

use evenkeel_model::{Assignment, BrokerId, Kind, ShardState, Snapshot, StreamKey};
use evenkeel_planner::{LoadAim, even_load};
use random::Rng;
use serde_json::json;

/// `brokers` brokers, of which the last `empty` hold nothing; shard sizes within `sizes`.
fn loaded(
    rng: &mut Rng,
    (brokers, empty): (usize, usize),
    (shards, factor): (u32, usize),
    sizes: (u32, u32),
) -> Snapshot {
    let mut s = Snapshot::empty(1_700_000_000_000);
    random::add_brokers(&mut s, brokers);
    let key = StreamKey::new(Kind::Stream, "default", "s").unwrap();
    random::add_stream(&mut s, &key, shards, factor as u32);
    let mut rows: BTreeMap<BrokerId, Vec<serde_json::Value>> = BTreeMap::new();
    for number in 0..shards {
        let mut ids: Vec<BrokerId> = (0..brokers - empty).map(random::broker).collect();
        rng.shuffle(&mut ids);
        let mut a = Assignment::new(key.shard(number), ids[0].clone(), ids[1..factor].to_vec());
        a.state = ShardState::Active;
        let row = json!({"shard": a.shard, "bytes_per_second": rng.range(sizes.0, sizes.1)});
        rows.entry(ids[0].clone()).or_default().push(row);
        s.assignments.insert(a.shard.clone(), a);
    }
    for (id, rows) in rows {
        let report = json!({"reported_at_ms": s.as_of_ms, "shards": rows});
        s.brokers.get_mut(&id).unwrap().load = Some(serde_json::from_value(report).unwrap());
    }
    s
}

fn loads(s: &Snapshot) -> BTreeMap<BrokerId, f64> {
    let mut loads: BTreeMap<BrokerId, f64> = s.brokers.keys().map(|b| (b.clone(), 0.0)).collect();
    for (id, broker) in &s.brokers {
        for row in broker.load.iter().flat_map(|l| &l.shards) {
            let a = &s.assignments[&row.shard];
            assert_eq!(a.leader.as_ref(), Some(id), "the row goes with the leader");
            a.voters().for_each(|b| *loads.get_mut(b).unwrap() += row.bytes_per_second);
        }
    }
    loads
}

#[test]
fn every_broker_ends_within_the_tolerance_and_little_load_moves() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let brokers = 5 + rng.below(20);
        let empty = 1 + rng.below(2);
        let s = loaded(&mut rng, (brokers, empty), (400, 2), (50, 150));
        let before = loads(&s);
        let mean = before.values().sum::<f64>() / brokers as f64;
        let plan = even_load(&s, 5.0, LoadAim::BothSides);
        let after = loads(&plan.snapshot);
        for (id, load) in &after {
            let off = (load / mean - 1.0).abs();
            assert!(off <= 0.05 + 1e-9, "seed {seed}: {id} is {off} off");
            let set = |a: &&Assignment| a.voters().filter(|b| *b == id).count() > 1;
            assert_eq!(plan.snapshot.assignments.values().filter(set).count(), 0);
        }
        let over: f64 = before.values().map(|l| (l - mean * 1.05).max(0.0)).sum();
        let under: f64 = before.values().map(|l| (mean * 0.95 - l).max(0.0)).sum();
        let least = over.max(under);
        assert!(
            plan.load_moved <= least * 1.1 + 150.0 * brokers as f64,
            "seed {seed}: {} for {least}",
            plan.load_moved
        );
        assert!(plan.max_over_mean <= 1.05 + 1e-9 && plan.min_over_mean >= 0.95 - 1e-9);
    }
}

#[test]
fn fewest_moves_fill_what_was_empty_with_large_shards() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let s = loaded(&mut rng, (10, 2), (300, 2), (10, 200));
        let before = loads(&s);
        let mean = before.values().sum::<f64>() / 10.0;
        let few = even_load(&s, 10.0, LoadAim::FewestMoves);
        let both = even_load(&s, 10.0, LoadAim::BothSides);
        let after = loads(&few.snapshot);
        for (id, load) in &after {
            assert!(*load <= mean * 1.1 + 1e-6, "seed {seed}: {id}");
            if before[id] == 0.0 {
                assert!(*load >= mean * 0.9 - 1e-6, "seed {seed}: {id}");
            }
        }
        assert!(few.moves.len() <= both.moves.len(), "seed {seed}");
    }
}

#[test]
fn a_level_cluster_and_an_idle_one_are_left_alone() {
    let mut s = loaded(&mut Rng::new(1), (4, 0), (0, 1), (1, 1));
    for aim in [LoadAim::BothSides, LoadAim::FewestMoves] {
        let plan = even_load(&s, 10.0, aim);
        assert!(plan.moves.is_empty());
        assert_eq!((plan.max_over_mean, plan.min_over_mean), (1.0, 1.0));
    }
    s.brokers.clear();
    assert!(even_load(&s, 10.0, LoadAim::BothSides).moves.is_empty());
}

#[test]
fn large_shards_are_exchanged_for_smaller_ones() {
    let mut s = Snapshot::empty(1_700_000_000_000);
    random::add_brokers(&mut s, 2);
    let key = StreamKey::new(Kind::Stream, "default", "s").unwrap();
    random::add_stream(&mut s, &key, 4, 1);
    // 60 + 50 against 40 + 30: one of each changes places.
    for (n, (broker, size)) in [(0, 60), (0, 50), (1, 40), (1, 30)].into_iter().enumerate() {
        let id = random::broker(broker);
        let mut a = Assignment::new(key.shard(n as u32), id.clone(), Vec::new());
        a.state = ShardState::Active;
        let row = json!({"shard": a.shard, "bytes_per_second": size});
        s.assignments.insert(a.shard.clone(), a);
        let blank = json!({"reported_at_ms": s.as_of_ms});
        let load = s
            .brokers
            .get_mut(&id)
            .unwrap()
            .load
            .get_or_insert_with(|| serde_json::from_value(blank).unwrap());
        load.shards.push(serde_json::from_value(row).unwrap());
    }
    let plan = even_load(&s, 1.0, LoadAim::BothSides);
    assert_eq!((plan.moves.len(), plan.max_over_mean), (2, 1.0));
}
