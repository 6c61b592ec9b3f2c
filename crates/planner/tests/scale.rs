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
