//! Large clusters: no rule may be quadratic in shards.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#![expect(clippy::disallowed_methods, reason = "a test may look at the time")]

mod random;

use std::collections::BTreeMap;
use std::time::Instant;

use evenkeel_model::{Assignment, Kind, Lifecycle, ShardState, Snapshot, StreamKey};
use evenkeel_planner::{LoadAim, apply, even_load, plan, settle};
use serde_json::json;

const BROKERS: usize = 1000;
const SHARDS: u32 = 75_000;

fn large(per_stream: u32) -> Snapshot {
    let mut s = Snapshot::empty(1_700_000_000_000);
    random::add_brokers(&mut s, BROKERS);
    let mut next = 0;
    for n in 0..SHARDS / per_stream {
        let key = StreamKey::new(Kind::Stream, "default", &format!("s{n:05}")).unwrap();
        random::add_stream(&mut s, &key, per_stream, 3);
        for number in 0..per_stream {
            let at = |i: usize| random::broker((next + i) % BROKERS);
            let mut a = Assignment::new(key.shard(number), at(0), vec![at(7), at(31)]);
            a.state = ShardState::Active;
            s.assignments.insert(a.shard.clone(), a);
            next += 1;
        }
    }
    s
}

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = run();
    println!("{what}: {:?}", start.elapsed());
    done
}

#[test]
fn a_settled_cluster_is_planned_at_once_and_nothing_is_wanted() {
    for per_stream in [1, 12, 1000] {
        let s = large(per_stream);
        let plan = timed(&format!("settled, {per_stream} shards a stream"), || plan(&s));
        assert!(plan.decisions.is_empty());
    }
}

#[test]
fn a_drain_and_a_loss_in_a_large_cluster() {
    let mut s = large(12);
    let victims = [random::broker(3), random::broker(500)];
    s.brokers.get_mut(&victims[0]).unwrap().lifecycle = Lifecycle::Draining;
    s.brokers.get_mut(&victims[1]).unwrap().lifecycle = Lifecycle::Down;
    s.policy.moves_max_concurrent = 8;
    let first = timed("drain and loss", || plan(&s));
    assert!(first.report.written() > 0);
    first.decisions.iter().for_each(|d| apply(&mut s, d));
    settle(&mut s);
    let _ = timed("drain and loss, second pass", || plan(&s));
}

#[test]
fn a_joining_broker_in_a_large_cluster() {
    let mut s = large(12);
    random::add_brokers(&mut s, BROKERS + 1);
    s.policy.moves_max_concurrent = 20;
    let first = timed("one joins", || plan(&s));
    assert_eq!(first.report.written(), 20);
}

#[test]
fn a_large_stream_is_placed_afresh() {
    let mut s = large(12);
    let key = StreamKey::new(Kind::Stream, "default", "zz-new").unwrap();
    random::add_stream(&mut s, &key, 5000, 3);
    s.policy.moves_max_concurrent = 0;
    let first = timed("5000 shards placed", || plan(&s));
    assert_eq!(first.report.written(), 5000);
}

/// What lies above the tolerance, or is lacking below it: no plan can move less.
fn least_to_move(s: &Snapshot, tolerance: f64) -> f64 {
    let mut loads: BTreeMap<_, f64> = s.brokers.keys().map(|b| (b, 0.0)).collect();
    for row in s.brokers.values().filter_map(|b| b.load.as_ref()).flat_map(|l| &l.shards) {
        for broker in s.assignments[&row.shard].voters() {
            *loads.get_mut(broker).unwrap() += row.bytes_per_second;
        }
    }
    let mean = loads.values().sum::<f64>() / loads.len() as f64;
    let over: f64 = loads.values().map(|l| (l - mean * (1.0 + tolerance)).max(0.0)).sum();
    let under: f64 = loads.values().map(|l| (mean * (1.0 - tolerance) - l).max(0.0)).sum();
    over.max(under)
}

#[test]
fn the_load_of_a_large_cluster_is_evened_out_at_once() {
    let mut s = large(12);
    let mut rng = random::Rng::new(3);
    let mut rows: BTreeMap<_, Vec<serde_json::Value>> = BTreeMap::new();
    for a in s.assignments.values() {
        // A few shards carry much.
        let load = 1_000_000 / rng.range(1, 1000);
        let row = json!({"shard": a.shard, "bytes_per_second": load});
        rows.entry(a.leader.clone().unwrap()).or_default().push(row);
    }
    for (id, rows) in rows {
        let report = json!({"reported_at_ms": s.as_of_ms, "shards": rows});
        s.brokers.get_mut(&id).unwrap().load = Some(serde_json::from_value(report).unwrap());
    }
    random::add_brokers(&mut s, BROKERS + 50);
    println!("{:.0} have to move at least", least_to_move(&s, 0.1));
    for aim in [LoadAim::BothSides, LoadAim::FewestMoves] {
        let even = timed(&format!("{aim:?}"), || even_load(&s, 10.0, aim));
        println!(
            "{} moves, {:.0} moved, {:.3} to {:.3} of the mean",
            even.moves.len(),
            even.load_moved,
            even.min_over_mean,
            even.max_over_mean
        );
        assert!(even.max_over_mean <= 1.1 + 1e-9);
    }
}

/// What a pass costs when very many shards want something and hardly any may start.
#[test]
fn many_wishes_and_few_slots() {
    let mut s = large(12);
    for (n, broker) in s.brokers.values_mut().enumerate() {
        broker.zone = Some(format!("z{}", n / 100));
        if n % 4 == 0 {
            broker.lifecycle = Lifecycle::Down;
            broker.since_ms = s.as_of_ms - 400_000 - 20_000 * n as i64;
        }
        if n % 4 == 1 {
            broker.lifecycle = Lifecycle::Draining;
        }
    }
    let first = timed("a quarter lost, a quarter draining, all crowded", || plan(&s));
    assert!(first.report.waits() > 10_000);
}

#[test]
fn the_lost_copies_are_made_by_all_survivors_alike() {
    let mut s = Snapshot::empty(1_700_000_000_000);
    random::add_brokers(&mut s, 100);
    let key = StreamKey::new(Kind::Stream, "default", "s").unwrap();
    random::add_stream(&mut s, &key, 10_000, 3);
    let mut rng = random::Rng::new(7);
    for number in 0..10_000 {
        let mut ids: Vec<usize> = (0..100).collect();
        rng.shuffle(&mut ids);
        let ids: Vec<_> = ids[..3].iter().map(|n| random::broker(*n)).collect();
        let mut a = Assignment::new(key.shard(number), ids[0].clone(), ids[1..].to_vec());
        a.state = ShardState::Active;
        s.assignments.insert(a.shard.clone(), a);
    }
    let lost = random::broker(42);
    let broker = s.brokers.get_mut(&lost).unwrap();
    broker.lifecycle = Lifecycle::Down;
    broker.since_ms = s.as_of_ms - 400_000;
    s.policy.moves_max_concurrent = 10_000;
    s.policy.rebalancing.leaders = false;
    let plan = plan(&s);
    let mut targets = BTreeMap::new();
    for write in plan.decisions.iter().filter_map(|d| d.decision.write()) {
        assert_eq!(write.from.as_ref(), Some(&lost), "only lost copies are made anew");
        *targets.entry(write.to.clone().unwrap()).or_insert(0_usize) += 1;
    }
    let copies: usize = targets.values().sum();
    assert!(copies > 150);
    assert!(targets.values().all(|n| *n <= 2 * copies.div_ceil(99)), "{targets:?}");
}
