//! The words and the JSON that other tools rely on.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use evenkeel_model::{Snapshot, Strategy};
use evenkeel_planner::{
    Member, RefusedBecause, Step, WaitingOn, balance, check_members, explain, explain_broker,
    owners, plan, rank, until_stable,
};
use serde_json::{Value, json};

fn snapshot(rest: Value) -> Snapshot {
    let mut whole = json!({"v": 1, "as_of_ms": 1_700_000_600_000_i64});
    whole.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    Snapshot::parse(whole.to_string().as_bytes()).unwrap()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_words_are_fixed() {
    let steps: Vec<&str> = Step::ALL.iter().map(|s| s.as_str()).collect();
    assert_eq!(
        steps.join(" "),
        "place promote stage fence cut_over seat reseat restore abandon timed_out stalled cancel retake drop"
    );
    let waiting: Vec<&str> = WaitingOn::ALL.iter().map(|w| w.as_str()).collect();
    assert_eq!(
        waiting.join(" "),
        "copy_behind leader_stopping move_slots broker_slots paused settling cooldown restore_delay \
         mass_loss owner_unavailable copy_paused"
    );
    let refusals: Vec<&str> = RefusedBecause::ALL.iter().map(|r| r.as_str()).collect();
    assert_eq!(
        refusals.join(" "),
        "no_live_broker all_full no_caught_up_replica no_broker_in_region"
    );
}

#[test]
fn decisions_have_the_documented_form() {
    let s = snapshot(json!({
        "brokers": [{"id": "b1", "lifecycle": "draining"}, {"id": "b2", "max_shards": 2}],
        "streams": [{"stream": "stream/default/orders", "shards": 3}],
        "assignments": [
            {"shard": "stream/default/orders/0", "leader": "b1"},
            {"shard": "stream/default/orders/1", "leader": "b1"},
        ],
    }));
    let plan = serde_json::to_value(plan(&s)).unwrap();
    assert_eq!(keys(&plan), ["as_of_ms", "decisions"]);
    let decisions = plan["decisions"].as_array().unwrap();
    let [staged, waits, placed] = &decisions[..] else { panic!("{decisions:?}") };
    assert_eq!(staged["decision"], "write");
    assert_eq!((&staged["step"], &staged["reason"]), (&json!("stage"), &json!("drain")));
    assert_eq!((&staged["from"], &staged["to"]), (&json!("b1"), &json!("b2")));
    assert_eq!(staged["next"]["successor"], "b2");
    assert_eq!(staged["next"]["generation"], 2);
    assert_eq!(staged["next"]["move"]["reason"], "drain");
    assert_eq!(keys(waits), ["shard", "decision", "refusal", "detail"]);
    assert_eq!((&waits["decision"], &waits["refusal"]), (&json!("refuse"), &json!("all_full")));
    assert_eq!((&placed["step"], &placed["from"]), (&json!("place"), &Value::Null));
    assert_eq!((&placed["reason"], &placed["next"]["state"]), (&json!("new"), &json!("assigning")));
}

#[test]
fn waits_have_the_documented_form() {
    let s = snapshot(json!({
        "brokers": [{"id": "b1", "lifecycle": "draining"}, {"id": "b2"}],
        "streams": [{"stream": "stream/default/orders", "shards": 1}],
        "assignments": [{"shard": "stream/default/orders/0", "leader": "b1"}],
        "paused": true,
    }));
    let plan = serde_json::to_value(plan(&s)).unwrap();
    let wait = &plan["decisions"][0];
    assert_eq!(keys(wait), ["shard", "decision", "waiting", "detail"]);
    assert_eq!((&wait["decision"], &wait["waiting"]), (&json!("wait"), &json!("paused")));
}

/// One broker leads, one is idle, one drains; half of a cache is placed.
fn half_placed() -> Snapshot {
    snapshot(json!({
        "brokers": [{"id": "b1"}, {"id": "b2"}, {"id": "b3", "lifecycle": "draining"}],
        "streams": [{"stream": "cache/default/c", "shards": 2}],
        "assignments": [{"shard": "cache/default/c/0", "leader": "b1"}],
    }))
}

#[test]
fn balance_rank_and_explain_have_the_documented_form() {
    let s = half_placed();
    let b = serde_json::to_value(balance(&s)).unwrap();
    assert_eq!(
        keys(&b),
        [
            "mean",
            "std_dev",
            "cv_percent",
            "status",
            "brokers",
            "streams",
            "totals",
            "under_replicated",
            "replicas_missing",
            "crowded",
            "zone_limited"
        ]
    );
    assert_eq!(b["status"], "severely_imbalanced");
    assert_eq!(b["totals"], json!({"b1": 1, "b2": 0}));
    assert_eq!(b["streams"][0]["leaders"], json!({"b1": 1, "b2": 0}));
    assert_eq!(keys(&b["brokers"][0]), ["broker", "score", "class", "leaders", "replicas"]);
    let r = serde_json::to_value(rank(&s, Strategy::Fair)).unwrap();
    assert_eq!(
        r,
        json!({"strategy": "fair", "rankings": [
            {"broker": "b2", "score": 0.0, "known": true},
            {"broker": "b1", "score": 1.0, "known": true},
        ]})
    );
    let shard = "cache/default/c/1".parse().unwrap();
    let e = serde_json::to_value(explain(&s, &shard).unwrap()).unwrap();
    let fields = [
        "shard",
        "assignment",
        "decision",
        "waiting_since_ms",
        "remedy",
        "load_rebalancing",
        "candidates",
        "text",
    ];
    assert_eq!(keys(&e), fields);
    assert_eq!(e["candidates"][0]["broker"], "b2");
    assert_eq!(e["candidates"][2]["excluded"], "draining");
    assert!(explain(&s, &"cache/default/c/2".parse().unwrap()).is_none());
}

#[test]
fn the_explanation_of_a_broker_has_the_documented_form() {
    let s = half_placed();
    let b1 = serde_json::to_value(explain_broker(&s, &"b1".parse().unwrap()).unwrap()).unwrap();
    assert_eq!(
        keys(&b1),
        [
            "broker",
            "lifecycle",
            "since_ms",
            "registered",
            "stopping",
            "target",
            "zone",
            "leaders",
            "named_by",
            "safe_to_stop",
            "shards",
            "text"
        ]
    );
    assert_eq!((&b1["leaders"], &b1["safe_to_stop"]), (&json!(1), &json!(false)));
    assert_eq!(b1["shards"][0]["role"], "leader");
    let b3 = explain_broker(&s, &"b3".parse().unwrap()).unwrap();
    assert!(b3.safe_to_stop && b3.shards.is_empty());
    assert!(explain_broker(&s, &"b4".parse().unwrap()).is_none());
}

#[test]
fn a_load_row_goes_with_its_leader_and_time_goes_on() {
    let s = snapshot(json!({
        "brokers": [
            {"id": "b1", "lifecycle": "draining", "load": {"reported_at_ms": 1_700_000_600_000_i64,
                "shards": [{"shard": "stream/default/s/0", "bytes_per_second": 5.0}]}},
            {"id": "b2", "load": {"reported_at_ms": 1_700_000_600_000_i64}},
        ],
        "streams": [{"stream": "stream/default/s", "shards": 1}],
        "assignments": [{"shard": "stream/default/s/0", "leader": "b1"}],
    }));
    let start = s.as_of_ms;
    let rest = until_stable(s, 10);
    let steps: Vec<&str> = rest.steps.iter().map(|s| s.step.as_str()).collect();
    assert_eq!(steps, ["stage", "fence", "cut_over"]);
    assert_eq!((rest.passes, rest.moves, rest.stable, rest.waiting), (4, 1, true, 0));
    let b2 = rest.snapshot.brokers.values().nth(1).unwrap();
    assert_eq!(b2.load.as_ref().unwrap().shards.len(), 1);
    assert_eq!(rest.snapshot.as_of_ms, start + 3 * 5000);
    let limited = until_stable(rest.snapshot, 0);
    assert_eq!((limited.passes, limited.stable), (0, false));
}

#[test]
fn owners_are_the_first_live_members_of_their_rankings() {
    let members: Vec<Member> = serde_json::from_value(json!([
        {"id": "m1", "weight": 16.0}, {"id": "m2", "live": false}, {"id": "m3", "weight": 0.2},
    ]))
    .unwrap();
    check_members(&members).unwrap();
    let mut second = 0;
    for n in 0..200 {
        let key = format!("seg-{n:06}");
        let all = owners(&members, &key, None);
        assert_eq!(all.ranking.len(), 3);
        let expected = all.ranking.iter().find(|m| *m != "m2").cloned();
        assert_eq!(all.owner, expected);
        let top = owners(&members, &key, Some(1));
        assert_eq!((top.ranking.len(), &top.owner), (1, &all.owner));
        second += usize::from(top.ranking[0] == "m2");
    }
    assert!(second > 0);
    assert_eq!(owners(&[], "x", None).owner, None);
    let twice = [members[0].clone(), members[0].clone()];
    let error = check_members(&twice).unwrap_err().to_string();
    assert_eq!(error, "members[1].id: 'm1' is there twice");
}
