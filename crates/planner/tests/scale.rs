//! Large clusters: no rule may be quadratic in shards.
#![expect(clippy::disallowed_methods, reason = "a test may look at the time")]

mod random;

use std::time::Instant;

use evenkeel_model::{Assignment, Kind, Lifecycle, ShardState, Snapshot, StreamKey};
use evenkeel_planner::{apply, plan, settle};

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
fn a_large_cluster_is_placed_afresh() {
    let mut s = large(12);
    s.assignments.clear();
    let first = timed("all placed", || plan(&s));
    assert_eq!(first.report.written(), SHARDS);
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
    let mut targets = std::collections::BTreeMap::new();
    for write in plan.decisions.iter().filter_map(|d| d.decision.write()) {
        assert_eq!(write.from.as_ref(), Some(&lost), "only lost copies are made anew");
        *targets.entry(write.to.clone().unwrap()).or_insert(0_usize) += 1;
    }
    let copies: usize = targets.values().sum();
    assert!(copies > 150);
    assert!(targets.values().all(|n| *n <= 2 * copies.div_ceil(99)), "{targets:?}");
}
