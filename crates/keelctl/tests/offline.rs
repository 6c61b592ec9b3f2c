//! The offline commands as programs see them: exact JSON on stdout, one line on stderr, exit code.

mod program;

use program::{keelctl, refused};
use serde_json::{Value, json};

const DRAIN: &str = include_str!("files/drain.json");

#[test]
fn a_plan_is_the_decisions_and_the_balance() {
    let mut plan = keelctl(&["plan", "--snapshot", "-", "-o", "json"], DRAIN).json();
    let balance = plan["balance"].take();
    assert_eq!(balance["totals"], json!({ "b2": 1 }));
    let decision = &mut plan["decisions"][0];
    assert!(decision["detail"].take().is_string());
    let expected = json!({
        "as_of_ms": 1_700_000_600_000_i64,
        "decisions": [{
            "shard": "stream/default/orders/0",
            "decision": "write",
            "step": "stage",
            "reason": "drain",
            "from": "b1",
            "to": "b2",
            "detail": null,
            "next": {
                "shard": "stream/default/orders/0",
                "leader": "b1",
                "followers": [],
                "generation": 5,
                "state": "active",
                "successor": "b2",
                "joining": null,
                "leaving": null,
                "move": {
                    "reason": "drain",
                    "started_at_ms": 1_700_000_600_000_i64,
                    "fenced_at_ms": null,
                    "progress_at_ms": null,
                    "give_ups": 0,
                    "next_try_ms": null,
                },
            },
        }],
        "balance": null,
    });
    assert_eq!(plan, expected);
}

#[test]
fn until_stable_tells_every_step_and_the_final_snapshot() {
    let arguments = ["plan", "--snapshot", "-", "--until-stable", "-o", "json"];
    let rest = keelctl(&arguments, DRAIN).json();
    let steps: Vec<&str> =
        rest["steps"].as_array().unwrap().iter().map(|s| s["step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["stage", "fence", "cut_over"]);
    assert_eq!((&rest["writes"], &rest["moves"]), (&json!(3), &json!(1)));
    assert_eq!((&rest["stable"], &rest["waiting"]), (&json!(true), &json!(0)));
    assert_eq!(rest["final"]["assignments"][0]["leader"], "b2");
    let again = keelctl(&arguments, &rest["final"].to_string()).json();
    assert_eq!((&again["writes"], &again["passes"]), (&json!(0), &json!(1)));
    let short = [&arguments[..], &["--max-passes", "1"]].concat();
    assert_eq!(keelctl(&short, DRAIN).json()["stable"], false);
}

/// Three brokers, all load on one of them.
fn uneven() -> String {
    let rows: Vec<Value> = (0..8)
        .map(|n| json!({ "shard": format!("stream/default/s/{n}"), "bytes_per_second": 100.0 }))
        .collect();
    let led = |n: u32| json!({ "shard": format!("stream/default/s/{n}"), "leader": "b1" });
    let load = json!({ "reported_at_ms": 1_700_000_600_000_i64, "shards": rows });
    json!({
        "v": 1, "as_of_ms": 1_700_000_600_000_i64,
        "brokers": [{ "id": "b1", "load": load }, { "id": "b2" }],
        "streams": [{ "stream": "stream/default/s", "shards": 8 }],
        "assignments": (0..8).map(led).collect::<Vec<_>>(),
    })
    .to_string()
}

#[test]
fn the_whole_load_plan_is_made_at_once() {
    let arguments = ["plan", "--snapshot", "-", "--objective", "load", "--tolerance", "5"];
    for fewest in [false, true] {
        let more: &[&str] = if fewest { &["--fewest-moves"] } else { &[] };
        let plan = keelctl(&[&arguments[..], more, &["-o", "json"]].concat(), &uneven()).json();
        let moves = plan["moves"].as_array().unwrap();
        assert_eq!(moves.len(), 4, "{moves:?}");
        for m in moves {
            let expected = (&json!("b1"), &json!("b2"), &json!("leader"), &json!(100.0));
            assert_eq!((&m["from"], &m["to"], &m["role"], &m["load"]), expected);
        }
        assert_eq!(plan["load_moved"], 400.0);
        assert_eq!((&plan["max_over_mean"], &plan["min_over_mean"]), (&json!(1.0), &json!(1.0)));
        assert!(plan["planning_ms"].as_f64().unwrap() >= 0.0);
        let again =
            keelctl(&[&arguments[..], &["-o", "json"]].concat(), &plan["final"].to_string());
        assert_eq!(again.json()["moves"], json!([]));
    }
    let told = keelctl(&arguments, &uneven()).stdout;
    assert!(told.contains("4 moves carrying 400 B/s"), "{told}");
}

#[test]
fn a_load_plan_that_falls_short_says_so() {
    let arguments = ["plan", "--snapshot", "-", "--objective", "load", "--tolerance", "5"];
    let three = uneven().replace(r#""id":"b2""#, r#""id":"b2","max_shards":1"#);
    let short = keelctl(&arguments, &three);
    assert_eq!(short.code, 0);
    assert!(short.stderr.starts_with("5 % is not reached with these shards"), "{}", short.stderr);
    let unknown = keelctl(&arguments, &uneven().replace("100.0", "0.0"));
    assert_eq!((unknown.code, unknown.stderr.lines().count()), (0, 1));
    assert!(unknown.stderr.starts_with("no shard's load is known"), "{}", unknown.stderr);
}

#[test]
fn objectives_and_tolerances_are_checked_before_anything_is_read() {
    let plan = |more: &[&'static str]| [&["plan", "--snapshot", "-"][..], more].concat();
    for bad in ["-1", "NaN", "inf", "101", "five", ""] {
        let arguments = plan(&["--objective", "load", "--tolerance", bad]);
        let line = format!("error: invalid value '{bad}' for '--tolerance <PERCENT>': expected a");
        refused(&arguments, "{}", &line);
    }
    refused(&plan(&["--objective", "load"]), "{}", "error: the following required arguments");
    refused(&plan(&["--tolerance", "5"]), "{}", "error: the following required arguments");
    refused(&plan(&["--fewest-moves"]), "{}", "error: the following required arguments");
    let both = ["--until-stable", "--objective", "load", "--tolerance", "5"];
    refused(&plan(&both), "{}", "error: the argument '--until-stable' cannot be used with");
}

#[test]
fn a_policy_file_is_laid_over_the_snapshots() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{"moves_max_concurrent": 0}"#).unwrap();
    let path = file.path().to_str().unwrap();
    let held = keelctl(&["plan", "--snapshot", "-", "--policy", path, "-o", "json"], DRAIN).json();
    assert_eq!(held["decisions"][0]["waiting"], "move_slots");
    std::fs::write(file.path(), r#"{"moves_max": 0}"#).unwrap();
    let line = format!("error: {path}: policy field 'moves_max': there is no such setting");
    refused(&["plan", "--snapshot", "-", "--policy", path], DRAIN, &line);
}

#[test]
fn balance_rank_and_explain_have_their_fields() {
    let balance = keelctl(&["balance", "--snapshot", "-", "-o", "json"], DRAIN).json();
    for field in ["mean", "std_dev", "cv_percent", "status", "brokers", "streams", "totals"] {
        assert!(!balance[field].is_null(), "{field}");
    }
    let counts = ["under_replicated", "replicas_missing", "crowded", "zone_limited"];
    assert_eq!(counts.map(|c| balance[c].as_u64()), [Some(0), Some(0), Some(0), Some(0)]);
    let arguments = ["rank", "--snapshot", "-", "--strategy", "fair", "-o", "json"];
    let rank = keelctl(&arguments, DRAIN).json();
    let expected = json!({
        "strategy": "fair", "rankings": [{ "broker": "b2", "score": 1.0, "known": true }]
    });
    assert_eq!(rank, expected);
    let shard = "stream/default/orders/0";
    let explained = keelctl(&["explain", "--snapshot", "-", shard, "-o", "json"], DRAIN).json();
    assert_eq!(
        (&explained["shard"], &explained["assignment"]["leader"]),
        (&json!(shard), &json!("b1"))
    );
    assert_eq!(explained["decision"]["step"], "stage");
    let candidates = explained["candidates"].as_array().unwrap();
    let excluded: Vec<&Value> = candidates.iter().map(|c| &c["excluded"]).collect();
    assert!(excluded[0].is_null() && excluded[1].is_string(), "{excluded:?}");
    assert!(explained["text"].as_str().unwrap().contains("b1"));
}

#[test]
fn a_broker_tells_what_still_names_it() {
    let b1 = keelctl(&["explain", "--snapshot", "-", "b1", "-o", "json"], DRAIN).json();
    assert_eq!((&b1["lifecycle"], &b1["safe_to_stop"]), (&json!("draining"), &json!(false)));
    assert_eq!(b1["named_by"], json!({ "leader": 1, "follower": 0, "successor": 0, "joining": 0 }));
    let shard = &b1["shards"][0];
    assert_eq!((&shard["role"], &shard["decision"]["word"]), (&json!("leader"), &json!("stage")));
    let rest = ["plan", "--snapshot", "-", "--until-stable", "-o", "json"];
    let done = keelctl(&rest, DRAIN).json()["final"].to_string();
    let told = keelctl(&["explain", "--snapshot", "-", "b1"], &done).stdout;
    assert!(told.contains("No shard names it: it is safe to stop"), "{told}");
}

#[test]
fn owners_are_ranked_over_all_members_and_the_first_live_one_owns() {
    let members = tempfile::NamedTempFile::new().unwrap();
    let path = members.path().to_str().unwrap();
    let list = r#"[{"id":"m1","weight":16},{"id":"m2","weight":16,"live":false},{"id":"m3"}]"#;
    std::fs::write(members.path(), list).unwrap();
    let arguments = ["owners", "--members", path, "--keys", "-", "-o", "json"];
    let rows = keelctl(&arguments, "seg-000001\nseg-000002\nseg-000003\n").json();
    for row in rows.as_array().unwrap() {
        let ranking: Vec<&str> =
            row["ranking"].as_array().unwrap().iter().map(|m| m.as_str().unwrap()).collect();
        assert_eq!(ranking.len(), 3);
        let owner = ranking.iter().find(|m| **m != "m2").unwrap();
        assert_eq!(row["owner"], **owner);
    }
    let top = [&arguments[..], &["--top", "1"]].concat();
    let rows = keelctl(&top, "seg-000001\n").json();
    assert_eq!(rows[0]["ranking"].as_array().unwrap().len(), 1);
    std::fs::write(members.path(), r#"[{"id":"m1"},{"id":"m1"}]"#).unwrap();
    let line = format!("error: {path}: members[1].id: 'm1' is there twice");
    refused(&arguments, "x\n", &line);
}

#[test]
fn the_throttle_answers_one_line_for_each_sample() {
    let arguments =
        ["throttle", "--link-bytes-per-second", "1000000000", "--target-ms", "100", "-o", "json"];
    let answer = keelctl(&arguments, "130\n130\nx\n100\n");
    let lines: Vec<Value> =
        answer.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rates: Vec<u64> = lines.iter().map(|l| l["bytes_per_second"].as_u64().unwrap()).collect();
    assert_eq!((answer.code, rates), (0, vec![140_000_000, 97_999_999, 97_999_999, 97_999_999]));
    assert_eq!((&lines[2]["p99_ms"], &lines[2]["ignored"]), (&Value::Null, &json!(true)));
    assert_eq!(lines[3].get("ignored"), None);
}

#[test]
fn bad_input_is_one_line_that_names_file_field_and_expectation() {
    let plan = ["plan", "--snapshot", "-"];
    refused(&plan, "{", "error: stdin: ");
    refused(&plan, &DRAIN.replace("\"v\": 1", "\"v\": 3"), "error: stdin: v: version 3");
    let uppercase = DRAIN.replace("\"b2\", \"zone\"", "\"B2\", \"zone\"");
    refused(&plan, &uppercase, "error: stdin: brokers[1].id: broker id 'B2' is not valid");
    let unknown = DRAIN.replace("\"draining\"", "\"sleeping\"");
    refused(&plan, &unknown, "error: stdin: brokers[0]");
    let past = DRAIN.replace("orders/1", "orders/2");
    refused(&plan, &past, "error: stdin: assignments[1].shard: 'stream/default/orders/2' is past");
    refused(&["plan", "--snapshot", "/nowhere/s.json"], "", "error: cannot read /nowhere/s.json");
    let elsewhere = ["explain", "--snapshot", "-", "stream/default/orders/7"];
    refused(&elsewhere, DRAIN, "error: stdin: there is no shard stream/default/orders/7");
    let nobody = ["explain", "--snapshot", "-", "b9"];
    refused(&nobody, DRAIN, "error: stdin: there is no broker b9: expected one that it lists");
    refused(&["explain", "--snapshot", "-", "B1"], DRAIN, "error: broker id 'B1' is not valid");
    let throttle = ["throttle", "--link-bytes-per-second", "0", "--target-ms", "100"];
    refused(&throttle, "", "error: invalid value '0' for '--link-bytes-per-second <N>'");
    let throttle = ["throttle", "--link-bytes-per-second", "1", "--target-ms", "-1"];
    refused(&throttle, "", "error: ");
    refused(&["plan", "--snapshto", "x"], "", "error: unexpected argument '--snapshto' found");
    refused(
        &["rank", "--snapshot", "-", "--strategy", "best"],
        DRAIN,
        "error: invalid value 'best'",
    );
    refused(&["--admin", "nowhere", "status"], "", "error: load manager address 'nowhere'");
}

#[test]
fn a_byte_order_mark_says_nothing() {
    let plan = ["plan", "--snapshot", "-", "-o", "json"];
    let marked = keelctl(&plan, &format!("\u{feff}{DRAIN}")).json();
    assert_eq!(marked, keelctl(&plan, DRAIN).json());
    let text = "\u{feff}Topic: t Partition: 0 Leader: 1 Replicas: 1 Isr: 1\r\n";
    assert_eq!(keelctl(&["import", "kafka", "-"], text).json()["brokers"][0]["id"], "1");
    refused(&["plan", "--snapshot", "/"], "", "error: cannot read /: Is a directory");
}

#[test]
fn a_cluster_that_is_not_there_is_exit_code_3() {
    let answer = keelctl(&["--admin", "127.0.0.1:1", "--timeout", "1", "status"], "");
    assert_eq!((answer.code, answer.stdout.as_str()), (3, ""), "{}", answer.stderr);
    let line = "error: cannot show the status: no elected load manager answered at 127.0.0.1:1";
    assert!(answer.stderr.starts_with(line), "{}", answer.stderr);
}

#[test]
fn completions_name_the_commands() {
    let script = keelctl(&["completion", "bash"], "").stdout;
    for command in ["drain", "moves", "throttle", "demo"] {
        assert!(script.contains(command), "{command}");
    }
}
