//! Kafka's text in, Kafka's reassignment out, as programs see them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod program;

use std::collections::{BTreeMap, BTreeSet};

use program::{keelctl, refused};
use serde_json::{Value, json};

const DESCRIBE: &str = include_str!("files/kafka/describe.txt");

fn racks() -> String {
    format!("{}/tests/files/kafka/racks.txt", env!("CARGO_MANIFEST_DIR"))
}

fn import(text: &str, more: &[&str]) -> Value {
    keelctl(&[&["import", "kafka", "-", "--as-of-ms", "1700000600000"], more].concat(), text).json()
}

/// Voters by shard, the leader first.
fn voters(snapshot: &Value) -> BTreeMap<String, Vec<String>> {
    let name = |v: &Value| v.as_str().unwrap().to_owned();
    let of = |a: &Value| {
        let followers = a["followers"].as_array().unwrap().iter().map(name);
        (name(&a["shard"]), [name(&a["leader"])].into_iter().chain(followers).collect())
    };
    snapshot["assignments"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn topics_become_streams_and_brokers_out_of_sync_are_behind() {
    let snapshot = import(DESCRIBE, &["--racks", &racks()]);
    let streams: Vec<(&Value, &Value, &Value)> = snapshot["streams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (&s["stream"], &s["shards"], &s["replication_factor"]))
        .collect();
    assert_eq!(streams[0], (&json!("stream/kafka/clicks"), &json!(3), &json!(2)));
    assert_eq!(streams[1], (&json!("stream/kafka/orders"), &json!(6), &json!(2)));
    let all = voters(&snapshot);
    assert_eq!(all["stream/kafka/orders/1"], ["1", "2"]);
    assert_eq!(all["stream/kafka/orders/5"], ["3", "2"]);
    let behind: Vec<(&Value, &Value)> = snapshot["reports"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|r| r["caught_up"] == false)
        .map(|r| (&r["broker"], &r["shard"]))
        .collect();
    assert_eq!(behind, [(&json!("2"), &json!("stream/kafka/clicks/2"))]);
    let zones: Vec<&Value> =
        snapshot["brokers"].as_array().unwrap().iter().map(|b| &b["zone"]).collect();
    assert_eq!(zones, ["r1", "r2", "r3", "r1"]);
}

#[test]
fn a_plan_goes_back_to_kafka_and_what_it_makes_can_be_read_again() {
    let snapshot = import(DESCRIBE, &["--racks", &racks()]).to_string();
    let plan = ["plan", "--snapshot", "-", "--until-stable"];
    let rest = keelctl(&[&plan[..], &["-o", "json"]].concat(), &snapshot).json();
    let answer = keelctl(&[&plan[..], &["-o", "kafka-reassignment"]].concat(), &snapshot);
    let reassignment = answer.json();
    assert_eq!(reassignment["version"], 1);
    let targets = reassignment["partitions"].as_array().unwrap();
    let (before, after) =
        (voters(&serde_json::from_str(&snapshot).unwrap()), voters(&rest["final"]));
    let changed: BTreeSet<&String> =
        after.iter().filter(|(shard, v)| before[*shard] != **v).map(|(s, _)| s).collect();
    assert_eq!(targets.len(), changed.len());
    assert!(!targets.is_empty());
    for target in targets {
        let shard = format!(
            "stream/kafka/{}/{}",
            target["topic"].as_str().unwrap(),
            target["partition"].as_u64().unwrap()
        );
        let replicas: Vec<String> =
            target["replicas"].as_array().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(after[&shard], replicas);
        assert_eq!(target["log_dirs"].as_array().unwrap().len(), replicas.len());
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &answer.stdout).unwrap();
    let path = file.path().to_str().unwrap();
    let done = import(DESCRIBE, &["--racks", &racks(), "--reassignment", path]);
    assert_eq!(voters(&done), after);
    let again = keelctl(&[&plan[..], &["-o", "json"]].concat(), &done.to_string()).json();
    assert_eq!((&again["writes"], &again["stable"]), (&json!(0), &json!(true)));
}

#[test]
fn one_pass_is_reassigned_as_it_will_end() {
    let snapshot = import(DESCRIBE, &["--racks", &racks()]).to_string();
    let answer = keelctl(&["plan", "--snapshot", "-", "-o", "kafka-reassignment"], &snapshot);
    let targets = answer.json()["partitions"].as_array().unwrap().clone();
    // One move at a time is the default.
    assert_eq!(targets.len(), 1, "{targets:?}");
    let rest = ["plan", "--snapshot", "-", "-o", "kafka-reassignment", "--objective", "load"];
    let none = keelctl(&[&rest[..], &["--tolerance", "5"]].concat(), &snapshot);
    assert_eq!((none.code, none.stdout.trim()), (0, r#"{"version":1,"partitions":[]}"#));
    let told: Vec<&str> = none.stderr.lines().collect();
    assert!(told[0].starts_with("no shard's load is known"), "{told:?}");
    assert!(told[1].starts_with("nothing is to be reassigned"), "{told:?}");
}

#[test]
fn sizes_and_rates_make_bytes_and_load_known() {
    let sizes = tempfile::NamedTempFile::new().unwrap();
    let replica =
        |topic: &str, n: u32| json!({ "partition": format!("{topic}-{n}"), "size": 1 << 20 });
    let partitions: Vec<Value> = (0..6).map(|n| replica("orders", n)).collect();
    let dir =
        |partitions: Value| json!([{ "logDir": "/k", "error": null, "partitions": partitions }]);
    let document = json!({ "version": 1, "brokers": [
        { "broker": 1, "logDirs": dir(json!(partitions)) }, { "broker": 7, "logDirs": dir(json!([])) },
    ]});
    std::fs::write(
        sizes.path(),
        format!("Querying brokers for log directories information\n{document}\n"),
    )
    .unwrap();
    let rates = tempfile::NamedTempFile::new().unwrap();
    let lines: String =
        (0..6).map(|n| format!("orders {n} 100\n")).chain(["gone 0 5\n".into()]).collect();
    std::fs::write(rates.path(), lines).unwrap();
    let files =
        ["--log-dirs", sizes.path().to_str().unwrap(), "--rates", rates.path().to_str().unwrap()];
    let answer = keelctl(
        &[&["import", "kafka", "-", "--as-of-ms", "1700000600000"][..], &files].concat(),
        DESCRIBE,
    );
    let note = "note: 1 partitions have a size or a rate and are not described: left out\n";
    assert_eq!((answer.code, answer.stderr.as_str()), (0, note));
    let lost = keelctl(
        &["whatif", "--snapshot", "-", "--drain-broker", "3", "-o", "json"],
        &answer.stdout,
    )
    .json();
    assert!(lost["bytes_copied"].as_u64().unwrap() >= 1 << 20);
    // Broker 7 holds nothing and takes its part of the load.
    let plan = ["plan", "--snapshot", "-", "--objective", "load", "--tolerance", "30"];
    let moves =
        keelctl(&[&plan[..], &["-o", "kafka-reassignment"]].concat(), &answer.stdout).json();
    let to_seven = moves["partitions"].as_array().unwrap().iter();
    assert!(to_seven.filter(|p| p["replicas"].as_array().unwrap().contains(&json!(7))).count() > 0);
}

#[test]
fn a_reassignment_alone_is_a_cluster() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let json = r#"{"version":1,"partitions":[
        {"topic":"t","partition":1,"replicas":[2,1],"log_dirs":["any","any"]},
        {"topic":"t","partition":0,"replicas":[1,2]}]}"#;
    std::fs::write(file.path(), json).unwrap();
    let arguments = ["import", "kafka", "--reassignment", path];
    let snapshot = keelctl(&arguments, "").json();
    assert_eq!(voters(&snapshot)["stream/kafka/t/1"], ["2", "1"]);
    std::fs::write(file.path(), json.replace("\"partition\":0", "\"partition\":2")).unwrap();
    let line = format!("error: {path}: partitions: t has no partition 0");
    refused(&arguments, "", &line);
    let beside = ["import", "kafka", "-", "--reassignment", path];
    let line = format!("error: {path}: partitions[0].topic: topic t is not described");
    refused(&beside, DESCRIBE, &line);
}

#[test]
fn what_cannot_be_read_is_named_line_by_line() {
    let arguments = ["import", "kafka", "-"];
    let one = DESCRIBE.replace("Leader: 3", "Leader: b3");
    refused(&arguments, &one, "error: stdin:11: Leader 'b3' is not valid: expected");
    let two = one.replace("Topic: clicks\tPartition: 1", "clicks 1");
    let answer = keelctl(&arguments, &two);
    let lines: Vec<&str> = answer.stderr.lines().collect();
    assert_eq!((answer.code, answer.stdout.as_str(), lines.len()), (2, "", 2));
    assert!(lines[0].starts_with("error: stdin:3: 'clicks 1"), "{}", lines[0]);
    assert!(lines[1].starts_with("error: stdin:11: Leader 'b3'"), "{}", lines[1]);
    refused(&arguments, "", "error: stdin: nothing is described: expected what kafka-topics");
    let missing = DESCRIBE.lines().take(3).collect::<Vec<_>>().join("\n");
    refused(&arguments, &missing, "error: stdin:1: topic clicks has 3 partitions and none is");
    let name = DESCRIBE.replace("clicks", "cl!cks");
    assert_eq!(keelctl(&arguments, &name).stderr.lines().count(), 4);
}

#[test]
fn lost_brokers_uneven_topics_and_reassignments_under_way_are_said() {
    let text = "\
Topic: a PartitionCount: 2 ReplicationFactor: 2 Configs:
Topic: a Partition: 0 Leader: none Replicas: 9,1 Isr: 9
Topic: a Partition: 1 Leader: 1 Replicas: 1,2,3 Isr: 1,2,3
Topic: b PartitionCount: 2 ReplicationFactor: 2 Configs:
Topic: b Partition: 0 Leader: 1 Replicas: 4,1,2 Isr: 1,2 Adding Replicas: 4 Removing Replicas: 2
Topic: b Partition: 1 Leader: 1 Replicas: 3,1,2 Isr: 1,2,3 Adding Replicas: 3 Removing Replicas: 1
";
    let answer = keelctl(&["import", "kafka", "-"], text);
    let notes: Vec<&str> = answer.stderr.lines().collect();
    let expected = [
        "note: brokers 4, 9 lead nothing and are in sync nowhere: they are taken as down",
        "note: partitions of a have 2 to 3 replicas: its replication factor is taken as 3",
    ];
    assert_eq!((answer.code, &notes[..]), (0, &expected[..]));
    let snapshot: Value = serde_json::from_str(&answer.stdout).unwrap();
    let assignments = snapshot["assignments"].as_array().unwrap();
    assert_eq!(
        (&assignments[0]["leader"], &assignments[0]["followers"]),
        (&Value::Null, &json!(["9", "1"]))
    );
    assert_eq!(
        (&assignments[2]["joining"], &assignments[2]["leaving"]),
        (&json!("4"), &json!("2"))
    );
    assert_eq!(
        (&assignments[3]["successor"], &assignments[3]["leader"]),
        (&json!("3"), &json!("1"))
    );
}

#[test]
fn what_kafka_cannot_know_is_refused() {
    let drain = include_str!("files/drain.json");
    let arguments = ["plan", "--snapshot", "-", "--until-stable", "-o", "kafka-reassignment"];
    let line = "error: stream/default/orders/0 is no partition of a topic: expected stream/kafka/";
    refused(&arguments, drain, line);
    let named = drain.replace("stream/default", "stream/kafka");
    let line = "error: broker 'b2' of stream/kafka/orders/0 has no number: Kafka's brokers are";
    refused(&arguments, &named, line);
    let balance = ["balance", "--snapshot", "-", "-o", "kafka-reassignment"];
    refused(&balance, drain, "error: -o kafka-reassignment is a form of plans");
}
