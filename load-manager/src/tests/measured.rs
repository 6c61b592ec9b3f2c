//! What a scraper reads of passes against an embedded etcd.

use std::collections::BTreeMap;

use evenkeel_coordination::Token;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use serde_json::{Value, json};

use super::harness::Harness;
use crate::metrics;
use crate::pass::{self, PassEnd};

fn recorder() -> PrometheusRecorder {
    PrometheusBuilder::new().build_recorder()
}

/// The value on a line of the text form; none without such a line.
fn told(recorder: &PrometheusRecorder, series: &str) -> Option<f64> {
    let text = recorder.handle().render();
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(value)
}

/// Stores a shard's assignment as an earlier pass would have.
async fn assigned(harness: &Harness, shard: &str, fields: Value) {
    let mut assignment = json!({ "v": 1, "shard": shard, "generation": 4, "state": "active" });
    assignment.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    harness.put(&format!("/cluster/shards/{shard}"), assignment).await;
}

async fn says(harness: &Harness, broker: &str, shard: &str, fields: Value) {
    let mut report = json!({ "generation": 4, "log_end": 5000 });
    report.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    harness.report(broker, shard, report).await;
}

/// Brokers of which `b5` drains and nobody knows `b6`, and shards of which each is about to take
/// another step.
async fn in_the_middle_of_everything() -> Harness {
    let mut harness = Harness::start().await;
    harness.brokers(&["b1", "b2", "b3", "b4", "b5"]).await;
    let mut node = serde_json::to_value(harness.node("b5").await).unwrap();
    node["lifecycle"] = json!("draining");
    harness.put("/cluster/nodes/b5", node).await;
    let policy = json!({
        "v": 1, "moves_max_concurrent": 99, "repairs_max_concurrent": 99,
        "rebalancing": { "leaders": false },
    });
    harness.put("/cluster/policy", policy).await;
    let now = harness.cluster.clock.now_ms();
    let migrator = json!({ "instance": "m1", "address": "m:1", "elected_at_ms": now - 900_000 });
    harness.put("/cluster/leader/migrator", migrator).await;
    let began = |reason: &str, ago: i64| json!({ "reason": reason, "started_at_ms": now - ago });
    let mut fenced = began("load", 10_000);
    fenced["fenced_at_ms"] = json!(now - 2_000);
    harness.stream("one", 6, 1).await;
    harness.stream("two", 4, 2).await;
    for (shard, fields) in [
        (
            "one/0",
            json!({ "leader": "b1", "successor": "b2", "state": "draining", "move": fenced }),
        ),
        ("one/1", json!({ "leader": "b1", "successor": "b2", "move": began("load", 10) })),
        ("one/2", json!({ "leader": "b1", "successor": "b6", "move": began("load", 10) })),
        ("one/3", json!({ "leader": "b1", "successor": "b3", "move": began("load", 1_800_100) })),
        ("one/4", json!({ "leader": "b5" })),
        ("one/5", json!({ "leader": "b1", "successor": "b3", "move": began("load", 10) })),
        ("two/0", json!({ "leader": "b1", "joining": "b2", "move": began("restore", 120_100) })),
        ("two/1", json!({ "leader": "b1", "joining": "b2", "move": began("restore", 10) })),
        ("two/2", json!({ "leader": "b1" })),
        ("two/3", json!({ "leader": "b1", "followers": ["b5"] })),
    ] {
        let shard = format!("stream/d/{shard}");
        assigned(&harness, &shard, fields.clone()).await;
        let leader = fields["leader"].as_str().unwrap();
        let drains = fields["state"] == "draining";
        let phase = if drains { "drained" } else { "serving" };
        says(&harness, leader, &shard, json!({ "phase": phase, "drained": drains })).await;
    }
    for (broker, shard) in [("b2", "one/0"), ("b2", "one/1"), ("b2", "two/1"), ("b5", "two/3")] {
        let level = json!({ "caught_up": true });
        says(&harness, broker, &format!("stream/d/{shard}"), level).await;
    }
    harness
}

#[tokio::test]
async fn each_written_step_is_counted_once_and_a_cut_over_with_its_times() {
    let recorder = recorder();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    metrics::describe();
    let mut harness = in_the_middle_of_everything().await;
    let report = harness.pass().await;
    let mut expected: BTreeMap<&str, f64> = BTreeMap::new();
    for (_, step) in &report.written {
        *expected.entry(step.as_str()).or_default() += 1.0;
    }
    for step in [
        "stage",
        "fence",
        "cut_over",
        "abandon",
        "timed_out",
        "stalled",
        "reseat",
        "restore",
        "seat",
    ] {
        assert_eq!(expected.get(step), Some(&1.0), "{step} in {:?}", report.written);
        let series = format!("evenkeel_shard_move_steps_total{{step=\"{step}\"}}");
        assert_eq!(told(&recorder, &series), Some(1.0), "{step}");
    }
    let told = |series: &str| told(&recorder, series).unwrap_or_else(|| panic!("no {series}"));
    assert_eq!(told("evenkeel_shard_moves_timed_out_total"), 2.0, "the late and the stalled");
    assert_eq!(told("evenkeel_rebalancing_moves_total"), 1.0);
    assert_eq!(told("evenkeel_rebalancing_failures_total"), 2.0);
    for (name, least) in [("duration", 10.0), ("fence", 2.0)] {
        let name = format!("evenkeel_shard_move_{name}_seconds");
        assert_eq!(told(&format!("{name}_count")), 1.0);
        let sum = told(&format!("{name}_sum"));
        assert!((least..least + 20.0).contains(&sum), "{name}: {sum}");
    }
}

#[tokio::test]
async fn the_gauges_show_the_cluster_that_was_planned_for() {
    let recorder = recorder();
    let mut harness = in_the_middle_of_everything().await;
    let load = |cpu: f64, bytes: f64| {
        json!({
            "reported_at_ms": harness.cluster.clock.now_ms(), "incarnation": 1,
            "cpu_percent": cpu, "memory_percent": 40.0, "network_io_bytes_per_second": bytes,
        })
    };
    harness.put("/cluster/load/b1", load(90.0, 7_000.0)).await;
    for broker in ["b2", "b3", "b4"] {
        harness.put(&format!("/cluster/load/{broker}"), load(10.0, 0.0)).await;
    }
    let balance = harness.cluster.plan_with(|_, planner| planner.overview());
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    harness.memory = crate::pass::Memory::new(500);
    let passes = told(&recorder, "evenkeel_rebalancing_checks_total").unwrap_or_default();
    let _ = harness.pass().await;
    let told = |series: &str| told(&recorder, series).unwrap_or_else(|| panic!("no {series}"));
    // Of the shards of two copies, one has both; two/3 is on a broker that drains and serves.
    assert_eq!(told("evenkeel_shards_under_replicated"), 3.0);
    assert_eq!(told("evenkeel_shard_replicas_missing"), 3.0);
    assert_eq!(told("evenkeel_shard_moves_waiting"), 1.0, "one/5 is not close");
    assert_eq!(told("evenkeel_cluster_active_brokers"), 4.0);
    assert_eq!(told("evenkeel_rebalancing_checks_total"), passes + 1.0);
    assert_eq!(told("evenkeel_rebalancing_cycle_duration_seconds_count"), 1.0);
    assert!(balance.cv_percent > 1.0 && balance.mean > 1.0);
    let scores = || balance.brokers.iter().map(|b| b.score);
    for (name, value) in [
        ("cv", balance.cv_percent / 100.0),
        ("mean_load", balance.mean),
        ("std_dev", balance.std_dev),
        ("max_load", scores().fold(f64::MIN, f64::max)),
        ("min_load", scores().fold(f64::MAX, f64::min)),
    ] {
        assert_eq!(told(&format!("evenkeel_cluster_balance_{name}")), value, "{name}");
    }
    assert_eq!(told("evenkeel_broker_topics_owned{broker=\"b1\"}"), 9.0);
    assert_eq!(told("evenkeel_broker_cpu_usage_ratio{broker=\"b1\"}"), 0.9);
    assert_eq!(told("evenkeel_broker_memory_usage_ratio{broker=\"b2\"}"), 0.4);
    assert_eq!(told("evenkeel_broker_throughput_bytes_per_second{broker=\"b1\"}"), 7_000.0);
}

#[tokio::test]
async fn what_is_not_written_is_counted_by_why() {
    let recorder = recorder();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    metrics::describe();
    let mut harness = Harness::start().await;
    harness.brokers(&["b1", "b2"]).await;
    harness.stream("s", 2, 1).await;
    let lagging = harness.frozen().await;
    let foreign = json!({ "shard": "stream/d/s/0", "leader": "b2", "generation": 5 });
    harness.put("/cluster/shards/stream/d/s/0", foreign).await;
    let report = pass::run(&lagging, &harness.leading, &mut harness.memory, &|| {}).await;
    assert_eq!((report.stale, report.written.len()), (1, 1));
    let told = |series: &str| told(&recorder, series).unwrap_or_else(|| panic!("no {series}"));
    assert_eq!(told("evenkeel_shard_assignment_write_conflicts_total"), 1.0);
    assert_eq!(told("evenkeel_shard_move_steps_total{step=\"place\"}"), 1.0);
    assert_eq!(told("evenkeel_placement_writes_fenced_total"), 0.0);

    harness.leading.token = Token { create_revision: 1, ..harness.leading.token.clone() };
    harness.stream("t", 3, 1).await;
    assert_eq!(harness.pass().await.end, PassEnd::Deposed);
    assert_eq!(told("evenkeel_placement_writes_fenced_total"), 1.0);
    assert_eq!(told("evenkeel_shard_move_steps_total{step=\"place\"}"), 1.0);

    metrics::leading(true);
    assert_eq!(told("evenkeel_placement_lease_held"), 1.0);
    metrics::leading(false);
    assert_eq!(told("evenkeel_placement_lease_held"), 0.0);
}
