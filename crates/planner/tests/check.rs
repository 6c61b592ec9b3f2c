//! `check` notices every kind of broken plan: each case takes a plan that keeps the rules and breaks
//! one of them.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use evenkeel_model::{BrokerId, Snapshot};
use evenkeel_planner::{Decision, Plan, Write, check, plan};
use serde_json::{Value, json};

/// Brokers in two zones, `rest` laid over.
fn snapshot(rest: Value) -> Snapshot {
    let mut whole = json!({"v": 1, "as_of_ms": 1_700_000_600_000_i64, "brokers": [
        {"id": "a", "zone": "z1"}, {"id": "b", "zone": "z1"}, {"id": "c", "zone": "z2"},
        {"id": "d", "zone": "z2", "lifecycle": "draining"}, {"id": "e", "lifecycle": "down"},
        {"id": "far", "zone": "z1", "region": "us", "max_shards": 0}], "streams": []});
    whole.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    Snapshot::parse(whole.to_string().as_bytes()).unwrap()
}

fn id(name: &str) -> BrokerId {
    name.parse().unwrap()
}

/// The plan of `s`, whole; it keeps the rules.
fn sound(s: &Snapshot) -> Plan {
    let plan = plan(s);
    assert_eq!(check(s, &plan), [], "{plan:?}");
    plan
}

/// The violations after `break_it` changed the first write of the plan of `s`.
fn broken(s: &Snapshot, break_it: impl Fn(&mut Write)) -> String {
    let mut plan = sound(s);
    let writes = plan.decisions.iter_mut().find_map(|d| match &mut d.decision {
        Decision::Write(write) => Some(write),
        _ => None,
    });
    break_it(writes.unwrap());
    told(s, &plan)
}

fn told(s: &Snapshot, plan: &Plan) -> String {
    let found: Vec<String> = check(s, plan).iter().map(ToString::to_string).collect();
    found.join("; ").replace("stream/default/", "")
}

fn unplaced(factor: u32) -> Snapshot {
    snapshot(json!({"streams":
        [{"stream": "stream/default/s", "shards": 1, "replication_factor": factor}]}))
}

#[test]
fn who_may_be_named() {
    let s = unplaced(2);
    type Case = (&'static str, fn(&mut Write));
    let cases: [Case; 6] = [
        ("s/0: place: d is no target", |w| w.next.leader = Some(id("d"))),
        ("s/0: place: nobody-knows is no target", |w| w.next.leader = Some(id("nobody-knows"))),
        ("s/0: place: no leader", |w| w.next.leader = None),
        ("s/0: place: generation 3 instead of 1", |w| w.next.generation = 3),
        ("s/0: place: a broker votes twice", |w| w.next.followers = vec![w.to.clone().unwrap()]),
        ("s/0: far would hold 1 shards and its max_shards is 0", |w| {
            w.next.leader = Some(id("far"));
        }),
    ];
    for (expected, break_it) in cases {
        assert_eq!(broken(&s, break_it), expected);
    }
    let mut s = unplaced(1);
    s.streams.values_mut().next().unwrap().region = Some("us".to_owned());
    s.brokers.get_mut(&id("far")).unwrap().max_shards = None;
    let expected = "s/0: place: b is not in the stream's region";
    assert_eq!(broken(&s, |w| w.next.leader = Some(id("b"))), expected);
}

#[test]
fn a_plan_lists_each_shard_once_and_in_order() {
    let s = snapshot(json!({"streams": [{"stream": "stream/default/s", "shards": 2}]}));
    let mut plan = sound(&s);
    plan.decisions.swap(0, 1);
    assert_eq!(told(&s, &plan), "s/0: is listed twice or out of order");
}

/// One shard of one stream as `assignment` says, with reports.
fn one(factor: u32, assignment: Value, reports: Value) -> Snapshot {
    let mut assignment = assignment;
    assignment["shard"] = json!("stream/default/s/0");
    let mut reports = reports;
    for report in reports.as_array_mut().unwrap() {
        report["shard"] = json!("stream/default/s/0");
        let own = report.get("generation").or(assignment.get("generation")).cloned();
        report["generation"] = own.unwrap_or(json!(1));
    }
    snapshot(json!({"assignments": [assignment], "reports": reports, "streams":
        [{"stream": "stream/default/s", "shards": 1, "replication_factor": factor}]}))
}

#[test]
fn sets_change_by_one_member_and_leaders_by_their_steps() {
    let seat = json!({"leader": "a", "followers": ["e", "b"], "joining": "c", "leaving": "e",
        "move": {"reason": "restore", "started_at_ms": 1_700_000_599_000_i64}});
    let s = one(3, seat, json!([{"broker": "c", "caught_up": true}]));
    let two = broken(&s, |w| w.next.followers = vec![id("c")]);
    assert_eq!(
        two,
        "s/0: seat: the set changes by 1 new and 2 gone members; \
         s/0: seat: another than the replaced follower goes"
    );
    let led = broken(&s, |w| w.next.leader = Some(id("b")));
    assert!(led.starts_with("s/0: seat: the leader changes"), "{led}");
    let dropped = broken(&s, |w| w.next.followers = vec![id("b"), id("e")]);
    assert_eq!(dropped, "s/0: seat: the joiner is not close");
    let mut behind = s.clone();
    let plan = sound(&s);
    behind.reports.values_mut().flatten().for_each(|r| r.caught_up = false);
    assert_eq!(told(&behind, &plan), "s/0: seat: the joiner is not close");
}

#[test]
fn a_promotion_needs_a_lost_leader_and_a_level_follower() {
    let s = one(
        2,
        json!({"leader": "e", "followers": ["a"]}),
        json!([{"broker": "a", "caught_up": true}]),
    );
    let plan = sound(&s);
    let mut back = s.clone();
    back.brokers.get_mut(&id("e")).unwrap().lifecycle = evenkeel_model::Lifecycle::Live;
    assert_eq!(told(&back, &plan), "s/0: promote: its leader is there");
    let mut behind = s.clone();
    behind.reports.clear();
    let expected = "s/0: promote: the new leader is not known to hold everything";
    assert_eq!(told(&behind, &plan), expected);
}

#[test]
fn a_shard_that_somebody_holds_is_not_placed() {
    let mut s = one(1, json!({"leader": "e"}), json!([]));
    s.streams.values_mut().next().unwrap().durable = false;
    let plan = sound(&s);
    s.streams.values_mut().next().unwrap().durable = true;
    assert_eq!(told(&s, &plan), "s/0: place: somebody holds it");
}

#[test]
fn a_leader_goes_only_when_it_drained_to_who_is_level() {
    let fenced = json!({"leader": "d", "followers": ["a"], "successor": "b", "generation": 4,
        "state": "draining", "move": {"reason": "drain", "started_at_ms": 1_700_000_599_000_i64}});
    let s = one(2, fenced.clone(), json!([{"broker": "d", "drained": true}]));
    let plan = sound(&s);
    let expected = "s/0: cut_over: the new leader is not known to hold everything";
    assert_eq!(
        broken(&s, |w| (w.next.leader, w.next.followers) = (Some(id("a")), vec![id("b")])),
        expected
    );
    for says in [json!({"caught_up": false}), json!({"halted": "damaged"})] {
        let mut destination = json!({"broker": "b", "caught_up": true});
        destination.as_object_mut().unwrap().extend(says.as_object().unwrap().clone());
        let fallen = one(2, fenced.clone(), json!([{"broker": "d", "drained": true}, destination]));
        assert_eq!(told(&fallen, &plan), expected);
    }
    let mut anew = s.clone();
    let fence = |s: &mut Snapshot, at| {
        s.assignments.values_mut().for_each(|a| a.move_.as_mut().unwrap().fenced_at_ms = Some(at));
    };
    let since = anew.brokers[&id("b")].since_ms;
    fence(&mut anew, since);
    assert_eq!(told(&anew, &plan), "");
    fence(&mut anew, since - 1);
    assert_eq!(told(&anew, &plan), expected);
    let mut serving = s.clone();
    serving.reports.clear();
    assert_eq!(told(&serving, &plan), "s/0: cut_over: the leader has not drained");
    for a in serving.assignments.values_mut() {
        a.state = evenkeel_model::ShardState::Active;
    }
    let both =
        "s/0: cut_over: the leader was not fenced; s/0: cut_over: the leader has not drained";
    assert_eq!(told(&serving, &plan), both);
}

#[test]
fn who_declined_is_followed_by_who_drained_before_or_by_itself_once_mended() {
    let assigned = json!({"leader": "b", "generation": 4, "state": "assigning"});
    let declined = json!({"broker": "b", "phase": "halted", "declined": true});
    let drained = json!({"broker": "d", "drained": true, "generation": 3});
    let s = one(1, assigned.clone(), json!([declined, drained]));
    let plan = sound(&s);
    let expected = "s/0: retake: the new leader is not known to hold everything";
    assert_eq!(broken(&s, |w| w.next.leader = Some(id("a"))), expected);
    assert_eq!(broken(&s, |w| w.next.leader = Some(id("b"))), expected);
    let with = |reports| told(&one(1, assigned.clone(), reports), &plan);
    let earlier = json!({"broker": "d", "drained": true, "generation": 2});
    assert_eq!(with(json!([declined, earlier])), expected);
    let halted = json!({"broker": "b", "phase": "halted"});
    assert_eq!(with(json!([halted, drained])), "s/0: retake: the leader was not fenced");

    let s = one(1, assigned, json!([{"broker": "b", "phase": "opening", "declined": true}]));
    assert_eq!(told(&s, &sound(&s)), "");
    assert_eq!(broken(&s, |w| w.next.leader = Some(id("d"))), expected);
}

#[test]
fn a_cut_over_keeps_the_zones() {
    let fenced = json!({"leader": "a", "followers": ["c"], "successor": "b", "generation": 4,
        "state": "draining", "move": {"reason": "operator", "started_at_ms": 1}});
    let s = one(2, fenced, json!([{"broker": "a", "drained": true}]));
    let narrowed = broken(&s, |w| w.next.followers = vec![id("a")]);
    assert_eq!(narrowed, "s/0: cut_over: a copy in a zone of its own goes");
}

#[test]
fn a_fence_needs_a_close_destination() {
    let staged = json!({"leader": "a", "successor": "b", "generation": 4,
        "move": {"reason": "operator", "started_at_ms": 1_700_000_599_000_i64}});
    let s = one(1, staged, json!([{"broker": "b", "lag_records": 1000}]));
    let plan = sound(&s);
    let mut behind = s.clone();
    behind.reports.values_mut().flatten().for_each(|r| r.lag_records = Some(1001));
    assert_eq!(told(&behind, &plan), "s/0: fence: the destination is not close");
    let serves = broken(&s, |w| w.next.state = evenkeel_model::ShardState::Active);
    assert_eq!(serves, "s/0: fence: the leader goes on serving");
}

/// Shards of stream `s` led by these brokers, one copy each.
fn led(leaders: &[&str], policy: Value) -> Snapshot {
    let assignments: Vec<Value> = leaders
        .iter()
        .enumerate()
        .map(|(n, b)| json!({"shard": format!("stream/default/s/{n}"), "leader": b}))
        .collect();
    snapshot(json!({"policy": policy, "assignments": assignments, "streams":
        [{"stream": "stream/default/s", "shards": leaders.len()}]}))
}

#[test]
fn limits_pauses_and_mass_loss_hold_what_would_start() {
    let s = led(&["d", "d", "d"], json!({"moves_max_concurrent": 3}));
    let plan = sound(&s);
    assert_eq!(plan.report.written(), 3);
    let mut limited = s.clone();
    limited.policy.moves_max_concurrent = 2;
    let each = |n: u32| format!("s/{n}: 3 moves would be under way and the limit is 2");
    assert_eq!(told(&limited, &plan), [each(0), each(1), each(2)].join("; "));
    limited = s.clone();
    limited.policy.moves_max_per_node = Some(2);
    let out = told(&limited, &plan);
    assert!(out.starts_with("s/0: d would take part in 3 copies and the limit is 2"), "{out}");
    limited = s.clone();
    limited.paused = true;
    assert!(told(&limited, &plan).starts_with("s/0: stage: placement is paused"));

    let mut lost = one(3, json!({"leader": "a", "followers": ["b", "e"]}), json!([]));
    let plan = sound(&lost);
    let other = lost.brokers[&id("e")].clone();
    lost.brokers.insert(id("e2"), other.clone());
    lost.brokers.insert(id("e3"), other.clone());
    lost.brokers.insert(id("e4"), other);
    assert_eq!(told(&lost, &plan), "s/0: restore: many brokers are missing");
}

#[test]
fn repairs_have_a_limit_of_their_own() {
    let mut s = led(&["a", "b"], json!({}));
    s.streams.values_mut().next().unwrap().replication_factor = 2;
    let plan = sound(&s);
    assert_eq!(plan.report.written(), 2);
    s.policy.repairs_max_concurrent = 1;
    let each = |n: u32| format!("s/{n}: 2 repairs would be under way and the limit is 1");
    assert_eq!(told(&s, &plan), [each(0), each(1)].join("; "));
}

#[test]
fn balance_lowers_the_potential() {
    let s = led(&["a", "a", "a", "c"], json!({"moves_max_concurrent": 9}));
    let plan = sound(&s);
    let [decision] = &plan.decisions[..] else { panic!("{plan:?}") };
    let to = decision.decision.write().unwrap().to.clone();
    // The same move where the destination leads the rest already.
    let mut level = s;
    for a in level.assignments.values_mut().filter(|a| a.shard != decision.shard) {
        a.leader = to.clone();
    }
    let shard = decision.shard.number;
    let expected = format!("s/{shard}: the stream's squares would go from 4.000 to 10.000");
    assert_eq!(told(&level, &plan), expected);
}

#[test]
fn balance_narrows_no_zone() {
    let mut s = led(&["a", "a"], json!({}));
    s.streams.values_mut().next().unwrap().replication_factor = 2;
    s.assignments.values_mut().for_each(|a| a.followers = vec![id("c")]);
    let plan = sound(&s);
    s.brokers.get_mut(&id("c")).unwrap().lifecycle = evenkeel_model::Lifecycle::Draining;
    let out = told(&s, &plan);
    assert!(out.ends_with("stage: the shard would lose one of 2 zones"), "{out}");
}
