//! `keelctl whatif` as programs and people see it.

mod program;

use program::{keelctl, refused};
use serde_json::{Value, json};

/// Four shards of 1 MiB on two brokers.
fn cluster() -> String {
    let rows = |of: usize| -> Vec<Value> {
        (0..4)
            .filter(|n| n % 2 == of)
            .map(|n| json!({ "shard": format!("stream/default/s/{n}"), "size_bytes": 1 << 20 }))
            .collect()
    };
    let load = |of| json!({ "reported_at_ms": 1_700_000_600_000_i64, "shards": rows(of) });
    let led = |n: u32| json!({ "shard": format!("stream/default/s/{n}"), "leader": format!("b{}", n % 2) });
    json!({
        "v": 1, "as_of_ms": 1_700_000_600_000_i64,
        "brokers": [{ "id": "b0", "load": load(0) }, { "id": "b1", "load": load(1) }],
        "streams": [{ "stream": "stream/default/s", "shards": 4 }],
        "assignments": (0..4).map(led).collect::<Vec<_>>(),
    })
    .to_string()
}

const WHATIF: [&str; 3] = ["whatif", "--snapshot", "-"];

fn ask(more: &[&str]) -> Value {
    keelctl(&[&WHATIF[..], more, &["-o", "json"]].concat(), &cluster()).json()
}

#[test]
fn the_answer_tells_moves_bytes_balance_and_time() {
    let rate = ["--rate", "1048576", "--moves"];
    let answer = ask(&[&["--add-brokers", "2=zone=z9"][..], &rate].concat());
    assert_eq!(answer["changes"], json!(["add new-1 (zone z9)", "add new-2 (zone z9)"]));
    assert_eq!((&answer["leader_moves"], &answer["copies"]), (&json!(2), &json!(2)));
    assert_eq!(answer["bytes_copied"], 2 << 20);
    assert_eq!(answer["without"]["copies"], 0);
    assert_eq!(
        (&answer["before"]["leaders_max"], &answer["after"]["leaders_max"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(answer["time"]["at_least_seconds"], 2.0);
    let copies = answer["steps"].as_array().unwrap().iter().filter(|m| m["copies"] == true);
    assert_eq!(copies.count(), 2);
    assert_eq!(ask(&["--add-brokers", "2"])["steps"], json!([]));
}

#[test]
fn drains_failures_and_policies_are_changes() {
    let drained = ask(&["--drain-broker", "b1"]);
    let expected = json!([{ "broker": "b1", "named_by": 0, "safe_to_stop": true }]);
    assert_eq!(drained["emptied"], expected);
    let lost = ask(&["--fail-broker", "b1"]);
    assert_eq!(lost["unresolved"][0]["word"], "owner_unavailable");
    assert_eq!(lost["emptied"][0]["named_by"], 2);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{"moves_max_concurrent": 0}"#).unwrap();
    let path = file.path().to_str().unwrap();
    let held = ask(&["--policy", path, "--remove-broker", "b1"]);
    assert_eq!(
        (&held["copies"], &held["unresolved"][0]["word"]),
        (&json!(0), &json!("move_slots"))
    );
    let capped = ask(&["--resize-broker", "b0:max_shards=2", "--drain-broker", "b1"]);
    assert_eq!(capped["unresolved"][0]["word"], "all_full");
}

#[test]
fn counted_newcomers_take_names_that_are_free() {
    let answer = ask(&["--add-broker", "new-1", "--add-brokers", "2"]);
    assert_eq!(answer["changes"], json!(["add new-1", "add new-2", "add new-3"]));
}

#[test]
fn people_are_shown_a_screen() {
    let more = ["--add-broker", "b2=weight=8", "--rate", "1000", "--moves"];
    let told = keelctl(&[&WHATIF[..], &more].concat(), &cluster());
    assert_eq!(told.stderr, "");
    for line in [
        "If you add b2 (weight 8):",
        "1 leader moves, 1 copy, 1.0 MiB copied",
        "without the change: 0 leaders move, 0 copies, 0 B copied",
        "at 1000 B/s into and out of each broker: at least 17m28s, bounded by slots",
        "leaders a broker   2 to 2",
        "at rest after",
    ] {
        assert!(told.stdout.contains(line), "{line}:\n{}", told.stdout);
    }
}

#[test]
fn bad_changes_are_one_line() {
    let refuse = |more: &[&str], line: &str| {
        refused(&[&WHATIF[..], more].concat(), &cluster(), line);
    };
    refuse(&[], "error: nothing is to be changed: expected --add-broker");
    refuse(&["--drain-broker", "b9"], "error: there is no broker b9: expected one that");
    refuse(&["--add-broker", "b1"], "error: there is a broker b1 already");
    refuse(&["--add-broker", "b2=size=3"], "error: invalid value 'b2=size=3' for '--add-broker");
    refuse(&["--resize-broker", "b1"], "error: invalid value 'b1' for '--resize-broker");
    refuse(&["--rate", "0", "--drain-broker", "b1"], "error: invalid value '0' for '--rate");
}
