//! The snapshot builder, by its whole output.

use evenkeel_model::{Lifecycle, Policy};
use serde_json::{Value, json};

use super::stock::{Stock, node};
use crate::snapshot::{Circumstances, build};

fn circumstances() -> Circumstances {
    Circumstances { now_ms: 50_000, elected_at_ms: 40_000, configured: Policy::default() }
}

fn built(stock: &Stock) -> Value {
    build(&stock.records(), &circumstances()).to_json()
}

fn assignment(shard: &str, leader: &str, generation: u64) -> Value {
    json!({
        "v": 1, "shard": shard, "leader": leader, "followers": ["b2"], "generation": generation,
        "state": "assigning", "token": 3, "operation": "x", "written_at_ms": 4,
    })
}

fn report(broker: &str, shard: &str, generation: u64, phase: &str, incarnation: u64) -> Value {
    json!({
        "broker": broker, "shard": shard, "generation": generation, "phase": phase,
        "incarnation": incarnation,
    })
}

fn small_cluster() -> Stock {
    let mut stock = Stock::default();
    for broker in ["b1", "b2"] {
        stock.node(&node(broker, Lifecycle::Live, 2));
        stock.register(broker, 2);
    }
    stock.put(
        "/cluster/streams/stream/d/s",
        &json!({ "stream": "stream/d/s", "shards": 3, "replication_factor": 2, "created_at_ms": 7 }),
    );
    stock
}

#[test]
fn every_family_lands_in_its_place() {
    let mut stock = small_cluster();
    let mut down = node("b3", Lifecycle::Down, 1);
    down.last_seen_ms = Some(30_000);
    down.since_ms = 30_500;
    stock.node(&down);
    stock.put(
        "/cluster/load/b1",
        &json!({ "reported_at_ms": 49_000, "incarnation": 2, "cpu_percent": 50.0 }),
    );
    stock.put("/cluster/unassigned/stream/d/s/1", &json!({ "reason": "new" }));
    stock.put("/cluster/shards/stream/d/s/0", &assignment("stream/d/s/0", "b1", 4));
    stock.put("/cluster/reports/b1/stream/d/s/0", &report("b1", "stream/d/s/0", 4, "serving", 2));
    stock.put(
        "/cluster/rebalancing_history/000000000045000-stream/d/s/0",
        &json!({
            "v": 1, "at_ms": 45_000, "shard": "stream/d/s/0", "from": "b2", "to": "b1",
            "reason": "load", "outcome": "cut_over", "step": "cut_over",
        }),
    );
    stock.put("/cluster/policy", &json!({ "v": 1, "settle_ms": 1, "later": true }));
    stock.put(
        "/cluster/pause",
        &json!({ "by": "eve", "reason": "x", "at_ms": 1, "until_ms": 50_001 }),
    );
    let snapshot = built(&stock);

    let broker = |id: &str, lifecycle: &str, since: i64, seen: i64, incarnation: u64| {
        json!({
            "id": id, "lifecycle": lifecycle, "since_ms": since, "last_seen_ms": seen,
            "incarnation": incarnation, "registered": lifecycle == "live", "stopping": false, "zone": "z1",
            "region": null, "max_shards": null, "weight": 1.0,
            "network_bytes_per_second": null, "disk_bytes_per_second": null, "load": null,
        })
    };
    let mut b1 = broker("b1", "live", 1000, 50_000, 2);
    b1["load"] = json!({
        "v": 1, "reported_at_ms": 49_000, "incarnation": 2, "cpu_percent": 50.0, "disk_used_percent": null,
        "memory_percent": null, "disk_io_bytes_per_second": null,
        "network_io_bytes_per_second": null, "shards": [],
    });
    let b3 = broker("b3", "down", 30_500, 30_000, 1);
    assert_eq!(snapshot["brokers"], json!([b1, broker("b2", "live", 1000, 50_000, 2), b3]));
    assert_eq!(
        (&snapshot["as_of_ms"], &snapshot["elected_at_ms"], &snapshot["first_registered_ms"]),
        (&json!(50_000), &json!(40_000), &json!(1000))
    );
    assert_eq!((&snapshot["paused"], &snapshot["policy"]["settle_ms"]), (&json!(true), &json!(1)));
    assert_eq!(
        snapshot["unassigned"],
        json!([{ "shard": "stream/d/s/1", "reason": "new", "from_broker": null, "to_broker": null }])
    );
    // The leader reports that it serves: the stored state is behind.
    assert_eq!(
        snapshot["assignments"],
        json!([{
            "shard": "stream/d/s/0", "leader": "b1", "followers": ["b2"], "generation": 4,
            "state": "active", "successor": null, "joining": null, "leaving": null, "move": null,
        }])
    );
    assert_eq!(snapshot["history"][0]["outcome"], json!("cut_over"));
    assert_eq!(snapshot["streams"][0]["created_at_ms"], json!(7));
    // The document is one that the offline commands take.
    evenkeel_model::Snapshot::parse(snapshot.to_string().as_bytes()).unwrap();
}

#[test]
fn reports_of_an_earlier_life_or_generation_do_not_count() {
    let mut stock = small_cluster();
    stock.put("/cluster/shards/stream/d/s/0", &assignment("stream/d/s/0", "b1", 4));
    stock.put("/cluster/shards/stream/d/s/1", &assignment("stream/d/s/1", "b1", 4));
    let early = report("b1", "stream/d/s/0", 4, "serving", 1);
    stock.put("/cluster/reports/b1/stream/d/s/0", &early);
    let old = report("b1", "stream/d/s/1", 3, "serving", 2);
    stock.put("/cluster/reports/b1/stream/d/s/1", &old);
    let load = json!({ "reported_at_ms": 49_000, "incarnation": 1, "cpu_percent": 50.0 });
    stock.put("/cluster/load/b1", &load);
    let snapshot = built(&stock);
    assert_eq!(snapshot["assignments"][0]["state"], json!("assigning"));
    assert_eq!(snapshot["assignments"][1]["state"], json!("assigning"));
    assert_eq!(snapshot["reports"].as_array().unwrap().len(), 1);
    assert_eq!(snapshot["brokers"][0]["load"], Value::Null);
}

#[test]
fn a_life_of_a_broker_that_is_not_noted_yet_makes_no_target() {
    let mut stock = small_cluster();
    stock.register("b1", 3);
    let snapshot = build(&stock.records(), &circumstances());
    let targets: Vec<bool> = snapshot.brokers.values().map(|b| b.is_target()).collect();
    assert_eq!(targets, [false, true]);
}

#[test]
fn records_that_cannot_be_read_are_left_out_counted_and_named() {
    let mut stock = small_cluster();
    let faulty = [
        ("/cluster/shards/stream/d/s/0", r#"{"shard":7}"#),
        ("/cluster/shards/stream/d/s/1", r#"{"shard":"stream/d/s/2"}"#),
        ("/cluster/shards/nonsense", "{}"),
        ("/cluster/nodes/b1", "[]"),
        ("/cluster/register/b2", "x"),
        ("/cluster/load/b1", r#"{"reported_at_ms":"now"}"#),
        ("/cluster/streams/stream/d/t", r#"{"stream":"stream/d/t"}"#),
        ("/cluster/pause", "?"),
        ("/cluster/policy", "7"),
    ];
    for (key, value) in faulty {
        stock.put_bytes(key, value.as_bytes().to_vec());
    }
    // A shard of a stream that cannot be read is nobody's to place.
    stock.put("/cluster/shards/stream/d/t/0", &assignment("stream/d/t/0", "b1", 1));
    let records = stock.records();
    let mut named: Vec<&str> = records.unreadable().iter().map(|(_, u)| u.key.as_str()).collect();
    named.sort_unstable();
    let mut expected = faulty.map(|(key, _)| key);
    expected.sort_unstable();
    assert_eq!(named, expected);
    let opaque: Vec<String> = records.opaque_shards().iter().map(ToString::to_string).collect();
    assert_eq!(opaque, ["stream/d/s/0", "stream/d/s/1"]);

    let snapshot = build(&records, &circumstances());
    assert!(snapshot.assignments.is_empty() && snapshot.paused);
    assert_eq!(snapshot.policy, Policy::default());
    // Both brokers keep what they hold and are given nothing.
    let states: Vec<(Lifecycle, bool)> =
        snapshot.brokers.values().map(|b| (b.lifecycle, b.registered)).collect();
    assert_eq!(states, [(Lifecycle::Live, false), (Lifecycle::Live, false)]);
}

#[test]
fn a_record_is_decoded_again_only_when_it_was_written() {
    let mut stock = small_cluster();
    let mut records = stock.records();
    let mut changed = |stock: &Stock| {
        let before = records.placement_version;
        records.refresh(stock);
        (records.placement_version != before, records.registrations.count(), records.loads.count())
    };
    assert_eq!(changed(&stock), (false, 2, 0));
    stock.put("/cluster/load/b1", &json!({ "reported_at_ms": 1 }));
    assert_eq!(changed(&stock), (false, 2, 1), "a load report calls for no pass");
    stock.delete("/cluster/register/b1");
    assert_eq!(changed(&stock), (true, 1, 1));
}

#[test]
fn a_store_that_was_replaced_is_decoded_anew() {
    let mut records = small_cluster().records();
    // The same keys at the same revisions with other content, and a store that is younger.
    let mut other = Stock::default();
    other.node(&node("b1", Lifecycle::Draining, 2));
    records.refresh(&other);
    let nodes: Vec<_> = records.nodes.iter().map(|n| n.value.lifecycle).collect();
    assert_eq!(nodes, [Lifecycle::Draining]);
    assert_eq!(records.registrations.count(), 0);
}
