//! Restarts of whole clusters must not copy anything.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;

use evenkeel_model::{BrokerId, Kind, Lifecycle, Snapshot, StreamKey};
use evenkeel_planner::{Step, apply, plan, settle};
use serde_json::json;

/// Plans, applies and settles for `passes`; returns the copies started and the leaders changed.
fn run(s: &mut Snapshot, passes: usize) -> (usize, usize) {
    let (mut copies, mut changed) = (0, 0);
    for _ in 0..passes {
        let plan = plan(s);
        for decision in &plan.decisions {
            let Some(write) = decision.decision.write() else { continue };
            let to_follower = write.to.as_ref().is_some_and(|to| write.next.followers.contains(to));
            match write.step {
                Step::Restore | Step::Reseat => copies += 1,
                Step::Stage if !to_follower => copies += 1,
                Step::CutOver | Step::Promote => changed += 1,
                _ => {}
            }
            apply(s, decision);
        }
        settle(s);
    }
    (copies, changed)
}

fn cluster(brokers: usize) -> Snapshot {
    let mut s = Snapshot::empty(1_700_000_000_000);
    random::add_brokers(&mut s, brokers);
    s.policy.moves_max_concurrent = 4;
    for n in 0..5 {
        let key = StreamKey::new(Kind::Stream, "default", &format!("s{n}")).unwrap();
        random::add_stream(&mut s, &key, 12, 3);
    }
    run(&mut s, 3);
    s
}

#[test]
fn a_rolling_restart_copies_nothing_and_loses_no_leader() {
    let mut s = cluster(6);
    for n in 0..6 {
        let id = random::broker(n);
        let at = s.as_of_ms;
        let broker = s.brokers.get_mut(&id).unwrap();
        broker.lifecycle = Lifecycle::Draining;
        broker.stopping = true;
        broker.since_ms = at;
        assert_eq!(run(&mut s, 12).0, 0, "{id} stops");
        let leads = s.assignments.values().filter(|a| a.leader.as_ref() == Some(&id)).count();
        assert_eq!(leads, 0, "{id} still leads");
        let at = s.as_of_ms;
        let broker = s.brokers.get_mut(&id).unwrap();
        broker.lifecycle = Lifecycle::Left;
        broker.registered = false;
        broker.stopping = false;
        (broker.since_ms, broker.last_seen_ms) = (at, at);
        // Two minutes of five-second passes.
        assert_eq!(run(&mut s, 24).0, 0, "{id} is away");
        let broker = s.brokers.get_mut(&id).unwrap();
        broker.lifecycle = Lifecycle::Live;
        broker.registered = true;
        assert_eq!(run(&mut s, 12).0, 0, "{id} is back");
    }
}

/// What a broker that is back says of the shards it follows.
fn report_followers(s: &mut Snapshot, id: &BrokerId, lag: u64) {
    for a in s.assignments.values().filter(|a| a.followers.contains(id)) {
        let report = json!({"broker": id, "shard": a.shard, "generation": a.generation,
            "caught_up": lag == 0, "lag_records": lag});
        let reports = s.reports.entry(a.shard.clone()).or_default();
        reports.retain(|r| r.broker != *id);
        reports.push(serde_json::from_value(report).unwrap());
    }
}

#[test]
fn crashes_shorter_than_the_delay_copy_next_to_nothing() {
    let mut s = cluster(6);
    let mut evened = 0;
    for n in 0..6 {
        let id = random::broker(n);
        let at = s.as_of_ms;
        let broker = s.brokers.get_mut(&id).unwrap();
        broker.lifecycle = Lifecycle::Down;
        broker.registered = false;
        broker.since_ms = at;
        let (copies, _) = run(&mut s, 24);
        assert_eq!(copies, 0, "{id} is away");
        let at = s.as_of_ms;
        let broker = s.brokers.get_mut(&id).unwrap();
        broker.lifecycle = Lifecycle::Live;
        broker.registered = true;
        broker.since_ms = at;
        let (back, first) = run(&mut s, 2);
        report_followers(&mut s, &id, 5_000);
        let (behind, more) = run(&mut s, 30);
        evened += back + behind;
        assert!(first + more > 0, "{id} leads again");
    }
    // Where no follower of the fullest broker is the emptiest one, evening out takes a copy.
    assert!(evened <= 3, "{evened} copies");
}

#[test]
fn a_cluster_that_was_all_down_copies_nothing_when_it_comes_up() {
    let mut s = cluster(12);
    let down = s.as_of_ms;
    for broker in s.brokers.values_mut() {
        broker.lifecycle = Lifecycle::Down;
        broker.registered = false;
        broker.since_ms = down;
    }
    s.reports.clear();
    // Three minutes later they come back, one every five seconds.
    s.as_of_ms += 180_000;
    let mut copies = 0;
    let mut changed = 0;
    for n in 0..12 {
        let broker = s.brokers.get_mut(&random::broker(n)).unwrap();
        broker.lifecycle = Lifecycle::Live;
        broker.registered = true;
        let (c, l) = run(&mut s, 1);
        copies += c;
        changed += l;
    }
    let (c, l) = run(&mut s, 20);
    assert_eq!(copies + c, 0);
    // Every leader came back: nobody had to take over from one that is lost.
    assert!(changed + l <= 12, "{} leaders changed", changed + l);
}
