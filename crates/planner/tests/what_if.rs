//! What changes of a cluster would do.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use evenkeel_model::{BrokerId, Snapshot};
use evenkeel_planner::{Change, Terms, Traits, WhatIf, what_if};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

fn id(name: &str) -> BrokerId {
    name.parse().unwrap()
}

fn terms(rate: Option<u64>) -> Terms {
    Terms { max_passes: 10_000, rate_bytes_per_second: rate }
}

/// Three brokers in three zones, twelve shards of 10 MiB each, two copies of each.
fn cluster(rest: Value) -> Snapshot {
    let broker = |n: usize| {
        let rows: Vec<Value> = (0..12)
            .filter(|s| s % 3 == n)
            .map(|s| json!({ "shard": format!("stream/d/s/{s}"), "size_bytes": 10 * MIB }))
            .collect();
        let load = json!({ "reported_at_ms": 1_700_000_600_000_i64, "shards": rows });
        json!({ "id": format!("b{n}"), "zone": format!("z{n}"), "load": load,
                "network_bytes_per_second": 50 * MIB })
    };
    let assignment = |s: usize| {
        json!({ "shard": format!("stream/d/s/{s}"), "leader": format!("b{}", s % 3),
                "followers": [format!("b{}", (s + 1) % 3)] })
    };
    let report = |s: usize, at: usize| {
        json!({ "broker": format!("b{}", (s + at) % 3), "shard": format!("stream/d/s/{s}"),
                "generation": 1, "caught_up": true, "lag_records": 0, "log_end": 50_000 })
    };
    let reports: Vec<Value> = (0..12).flat_map(|s| [report(s, 0), report(s, 1)]).collect();
    let mut whole = json!({
        "v": 1, "as_of_ms": 1_700_000_600_000_i64,
        "brokers": (0..3).map(broker).collect::<Vec<_>>(),
        "streams": [{ "stream": "stream/d/s", "shards": 12, "replication_factor": 2 }],
        "assignments": (0..12).map(assignment).collect::<Vec<_>>(),
        "reports": reports,
    });
    whole.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    Snapshot::parse(whole.to_string().as_bytes()).unwrap()
}

/// A broker joins in a zone that others lie in, so that no balance move would narrow a shard.
fn joins(name: &str) -> Change {
    Change::Add(id(name), Traits { zone: Some("z0".into()), ..Traits::default() })
}

fn ask(s: &Snapshot, changes: &[Change]) -> WhatIf {
    what_if(s, changes, terms(Some(MIB))).unwrap()
}

#[test]
fn a_broker_that_joins_takes_its_part_and_every_copy_is_counted() {
    let s = cluster(json!({}));
    let answer = ask(&s, &[joins("b3")]);
    assert_eq!(answer.changes, ["add b3 (zone z0)"]);
    assert_eq!((answer.without.copies, answer.without.leader_moves), (0, 0));
    assert!(answer.effort.stable);
    assert_eq!((answer.before.leaders_min, answer.before.leaders_max), (4, 4));
    assert_eq!((answer.after.leaders_min, answer.after.leaders_max), (3, 3));
    assert_eq!((answer.before.active_brokers, answer.after.active_brokers), (3, 4));
    let copies = answer.steps.iter().filter(|m| m.copies).count() as u32;
    assert_eq!((answer.effort.leader_moves, answer.effort.copies), (3, copies));
    assert_eq!(answer.effort.bytes_copied, u64::from(copies) * 10 * MIB);
    assert_eq!((answer.narrowed, answer.after.crowded), (0, 0));
    // One at a time is the default: 10 s for each at 1 MiB/s, whatever the schedule.
    let seconds = f64::from(copies) * 10.0;
    assert_eq!((answer.time.at_least_seconds, answer.time.limited_by), (seconds, "slots"));
    assert_eq!(answer.time.one_by_one_seconds, seconds);
}

#[test]
fn more_slots_make_the_receiving_broker_the_bound() {
    let s = cluster(json!({ "policy": { "moves_max_concurrent": 10 } }));
    let answer = ask(&s, &[joins("b3")]);
    let copies = f64::from(answer.effort.copies);
    let time = &answer.time;
    assert_eq!((time.limited_by, time.limited_at.clone()), ("receiving", Some(id("b3"))));
    assert_eq!(time.at_least_seconds, copies * 10.0);
    // Without a rate: a fifth of a link of 50 MiB/s, and of the default link.
    let answer = what_if(&s, &[joins("b3")], terms(None)).unwrap();
    assert_eq!((answer.time.rate_bytes_per_second, answer.time.link_share), (None, Some(0.2)));
    let fastest = (10 * MIB) as f64 / (0.2 * 125_000_000.0);
    assert!((answer.time.at_least_seconds - copies * fastest).abs() < 1e-6);
}

#[test]
fn a_drained_broker_is_safe_to_stop_and_a_removed_one_is_gone() {
    let s = cluster(json!({}));
    let answer = ask(&s, &[Change::Drain(id("b2"))]);
    let told = &answer.emptied[0];
    assert_eq!((told.named_by, told.safe_to_stop), (0, true));
    assert!(answer.snapshot.brokers.contains_key(&id("b2")));
    assert_eq!(answer.after.active_brokers, 2);
    let answer = ask(&s, &[Change::Remove(id("b2"))]);
    assert!(!answer.snapshot.brokers.contains_key(&id("b2")));
    assert_eq!((answer.after.under_replicated, answer.unresolved.len()), (0, 0));
}

#[test]
fn a_removed_broker_sends_no_faster_than_its_own_link() {
    let mut s = cluster(json!({}));
    s.brokers.get_mut(&id("b2")).unwrap().network_bytes_per_second = Some(MIB);
    let time = |change| what_if(&s, &[change], terms(None)).unwrap().time;
    let removed = time(Change::Remove(id("b2")));
    assert_eq!(removed, time(Change::Drain(id("b2"))));
    // One copy from there takes 10 MiB at a fifth of 1 MiB/s.
    assert!(removed.at_least_seconds >= 50.0, "{removed:?}");
}

#[test]
fn a_drain_with_nowhere_to_go_says_what_stands_in_the_way() {
    let s = cluster(json!({}));
    let answer = ask(&s, &[Change::Drain(id("b1")), Change::Drain(id("b2"))]);
    assert!(answer.emptied.iter().all(|e| !e.safe_to_stop && e.named_by > 0));
    let words: Vec<(&str, &str)> = answer.unresolved.iter().map(|u| (u.kind, u.word)).collect();
    assert_eq!(words, [("refuse", "no_live_broker")]);
    assert!(answer.effort.stable);
}

#[test]
fn a_lost_broker_is_restored_after_the_delay_and_the_delay_is_told() {
    let s = cluster(json!({}));
    let answer = ask(&s, &[Change::Fail(id("b0"))]);
    assert_eq!((answer.effort.promoted, answer.after.under_replicated), (4, 0));
    assert_eq!(answer.effort.copies, 8);
    assert_eq!(answer.time.delays_seconds, 300.001);
    // With nowhere to restore to, it stays short.
    let two = ask(&s, &[Change::Fail(id("b0")), Change::Fail(id("b1"))]);
    assert!(two.after.under_replicated > 0 && !two.unresolved.is_empty());
}

#[test]
fn a_cap_and_a_policy_are_changes_too() {
    let s = cluster(json!({}));
    let larger = Traits { weight: Some(3.0), ..Traits::default() };
    let mut policy = s.policy.clone();
    policy.capacity_weighted = true;
    let weighted = [Change::Policy(Box::new(policy)), Change::Resize(id("b0"), larger)];
    let answer = ask(&s, &weighted);
    assert_eq!(answer.changes, ["another policy", "resize b0 (weight 3)"]);
    assert!(answer.after.leaders_max > 5, "{:?}", answer.after);
    let unknown = what_if(&s, &[Change::Drain(id("b9"))], terms(None)).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no broker b9: expected one that the snapshot lists");
    let twice = what_if(&s, &[Change::Add(id("b0"), Traits::default())], terms(None)).unwrap_err();
    assert_eq!(twice.to_string(), "there is a broker b0 already");
    let mut gone = s.clone();
    Change::Fail(id("b0")).apply(&mut gone).unwrap();
    let down = what_if(&gone, &[Change::Drain(id("b0"))], terms(None)).unwrap_err();
    assert_eq!(down.to_string(), "broker b0 is down: expected one that is live or draining");
}

#[test]
fn sizes_that_nobody_reports_are_counted_and_not_guessed() {
    let mut s = cluster(json!({}));
    for broker in s.brokers.values_mut() {
        broker.load = None;
    }
    let answer = ask(&s, &[joins("b3")]);
    assert!(answer.effort.copies > 0);
    assert_eq!(answer.effort.bytes_copied, 0);
    assert_eq!(answer.effort.copies_of_unknown_size, answer.effort.copies);
    assert_eq!((answer.time.at_least_seconds, answer.time.limited_by), (0.0, "nothing"));
}

#[test]
fn what_was_under_way_ends_first() {
    // The only slot is taken by a copy that its leader does not count yet.
    let mut s = cluster(json!({}));
    let busy = s.assignments.values_mut().next().unwrap();
    busy.joining = Some(id("b2"));
    busy.leaving = Some(id("b1"));
    busy.move_ = Some(
        serde_json::from_value(json!({ "reason": "operator", "started_at_ms": s.as_of_ms }))
            .unwrap(),
    );
    let answer = ask(&s, &[Change::Drain(id("b1"))]);
    assert!(answer.emptied[0].safe_to_stop, "{:?}", answer.unresolved);
    assert_eq!((answer.unresolved.len(), answer.without.copies), (0, 0));
}
