//! Passes against an embedded etcd: one test for each outcome of a write, and the exact keys.

use evenkeel_coordination::Token;
use evenkeel_model::{Lifecycle, ShardState};
use evenkeel_planner::Step;
use serde_json::json;

use super::harness::Harness;
use crate::pass::{self, PassEnd};

const SHARD: &str = "stream/d/s/0";

/// Two brokers and a stream of one shard with two copies, placed.
async fn placed() -> Harness {
    let mut harness = Harness::start().await;
    harness.brokers(&["b1", "b2", "b3"]).await;
    harness.stream("s", 1, 2).await;
    harness.put("/cluster/unassigned/stream/d/s/0", json!({ "reason": "new" })).await;
    let report = harness.pass().await;
    assert_eq!(report.written, [(SHARD.parse().unwrap(), Step::Place)]);
    harness
}

/// Makes the leader serve and the follower level.
async fn settled() -> (Harness, String, String) {
    let harness = placed().await;
    let assignment = harness.assignment(SHARD).await.assignment;
    let leader = assignment.leader.unwrap().to_string();
    let follower = assignment.followers[0].to_string();
    serving(&harness, &leader, assignment.generation).await;
    following(&harness, &follower, assignment.generation).await;
    (harness, leader, follower)
}

async fn serving(harness: &Harness, broker: &str, generation: u64) {
    let fields = json!({ "generation": generation, "phase": "serving", "log_end": 10 });
    harness.report(broker, SHARD, fields).await;
}

async fn following(harness: &Harness, broker: &str, generation: u64) {
    let fields = json!({
        "generation": generation, "phase": "following", "caught_up": true, "lag_records": 0,
        "log_end": 10,
    });
    harness.report(broker, SHARD, fields).await;
}

#[tokio::test]
async fn a_written_step_is_one_transaction_over_exactly_its_keys() {
    let harness = placed().await;
    let record = harness.assignment(SHARD).await;
    assert_eq!(record.token, harness.leading.token.create_revision);
    assert!(record.operation.starts_with("lm-1-"), "{}", record.operation);
    let assignment = record.assignment;
    assert_eq!((assignment.generation, assignment.state), (1, ShardState::Assigning));

    let written_at = harness.entry("/cluster/shards/stream/d/s/0").await.unwrap().mod_revision;
    let mut named: Vec<String> = assignment
        .members()
        .iter()
        .map(|(broker, _)| format!("/cluster/brokers/{broker}/{SHARD}"))
        .collect();
    named.sort();
    assert_eq!(named.len(), 2);
    assert_eq!(harness.keys("/cluster/brokers/").await, named);
    for (broker, role) in assignment.members() {
        let key = format!("/cluster/brokers/{broker}/{SHARD}");
        assert_eq!(harness.entry(&key).await.unwrap().mod_revision, written_at);
        let told = harness.told(broker.as_str(), SHARD).await;
        assert_eq!((told.role, &told.assignment), (role, &assignment));
    }
    // The marker went with it, and a placement is no move.
    assert_eq!(harness.keys("/cluster/unassigned/").await, Vec::<String>::new());
    assert_eq!(harness.keys("/cluster/rebalancing_history/").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pass_over_a_settled_cluster_writes_nothing() {
    let (mut harness, ..) = settled().await;
    let before = harness.etcd.revision();
    let report = harness.pass().await;
    assert_eq!((report.end, report.wrote()), (PassEnd::Complete, false));
    assert_eq!(harness.etcd.revision(), before);
}

#[tokio::test]
async fn a_drain_hands_over_and_makes_one_history_entry_and_drops_no_key_too_many() {
    let (mut harness, leader, follower) = settled().await;
    let mut node = harness.node(&leader).await;
    node.lifecycle = Lifecycle::Draining;
    let value = serde_json::to_value(&node).unwrap();
    harness.put(&format!("/cluster/nodes/{leader}"), value).await;

    let report = harness.pass().await;
    assert_eq!(report.written, [(SHARD.parse().unwrap(), Step::Fence)]);
    let fenced = harness.assignment(SHARD).await.assignment;
    assert_eq!((fenced.state, fenced.generation), (ShardState::Draining, 2));
    assert_eq!(fenced.successor.as_ref().unwrap().as_str(), follower);
    assert_eq!(harness.keys("/cluster/brokers/").await.len(), 2);

    let drained = json!({ "generation": 2, "phase": "drained", "drained": true, "log_end": 10 });
    harness.report(&leader, SHARD, drained).await;
    following(&harness, &follower, 2).await;
    let report = harness.pass().await;
    assert_eq!(report.written, [(SHARD.parse().unwrap(), Step::CutOver)]);
    let led = harness.assignment(SHARD).await.assignment;
    assert_eq!(led.leader.as_ref().unwrap().as_str(), follower);
    assert_eq!(led.generation, 3);
    for (broker, _) in led.members() {
        assert_eq!(harness.told(broker.as_str(), SHARD).await.assignment, led);
    }
    assert_eq!(harness.keys("/cluster/brokers/").await.len(), led.members().len());
    let history = harness.keys("/cluster/rebalancing_history/").await;
    assert_eq!(history.len(), 1, "{history:?}");
    let entry: serde_json::Value =
        serde_json::from_slice(&harness.entry(&history[0]).await.unwrap().value).unwrap();
    assert_eq!((&entry["reason"], &entry["outcome"]), (&json!("drain"), &json!("cut_over")));
    assert_eq!((&entry["from"], &entry["to"]), (&json!(leader), &json!(follower)));
}

#[tokio::test]
async fn a_stale_step_is_skipped_and_planned_again_by_the_next_pass() {
    let mut harness = Harness::start().await;
    harness.brokers(&["b1", "b2"]).await;
    harness.stream("s", 2, 1).await;
    // Another hand writes the shard, and this pass plans from a view that does not show it yet.
    let lagging = harness.frozen().await;
    let foreign = json!({ "shard": SHARD, "leader": "b2", "generation": 5 });
    harness.put("/cluster/shards/stream/d/s/0", foreign).await;
    let report = pass::run(&lagging, &harness.leading, &mut harness.memory, &|| {}).await;
    assert_eq!((report.end, report.stale), (PassEnd::Complete, 1));
    let other = [("stream/d/s/1".parse().unwrap(), Step::Place)];
    assert_eq!(report.written, other, "one stale shard does not hold the others up");
    assert_eq!(harness.assignment(SHARD).await.assignment.generation, 5);
    assert_eq!(harness.keys("/cluster/brokers/").await.len(), 1);

    // The next pass takes the foreign record as it is.
    assert!(harness.cluster.seen(harness.etcd.revision()).await);
    let report = harness.pass().await;
    assert_eq!((report.end, report.stale, report.wrote()), (PassEnd::Complete, 0, false));
}

#[tokio::test]
async fn many_steps_share_transactions_and_one_stale_shard_costs_only_itself() {
    let mut harness = Harness::start().await;
    harness.brokers(&["b1", "b2"]).await;
    harness.stream("s", 200, 1).await;
    let lagging = harness.frozen().await;
    let foreign = json!({ "shard": SHARD, "leader": "b2", "generation": 5 });
    harness.put("/cluster/shards/stream/d/s/0", foreign).await;
    let before = harness.etcd.revision();
    let report = pass::run(&lagging, &harness.leading, &mut harness.memory, &|| {}).await;
    assert_eq!((report.end, report.stale, report.written.len()), (PassEnd::Complete, 1, 199));
    assert_eq!(harness.keys("/cluster/brokers/").await.len(), 199);
    assert!(harness.etcd.revision() - before < 50, "200 steps take fewer transactions");
}

#[tokio::test]
async fn a_deposed_leader_writes_nothing_and_its_pass_ends() {
    let mut harness = Harness::start().await;
    harness.brokers(&["b1"]).await;
    harness.stream("s", 3, 1).await;
    let token = Token { create_revision: 1, ..harness.leading.token.clone() };
    harness.leading.token = token;
    let before = harness.etcd.revision();
    let report = harness.pass().await;
    assert_eq!((report.end, report.wrote()), (PassEnd::Deposed, false));
    assert_eq!(harness.etcd.revision(), before);
}

#[tokio::test]
async fn an_unknown_outcome_ends_the_pass_and_the_next_one_recognises_what_was_written() {
    let mut harness = Harness::start().await;
    harness.brokers(&["b1"]).await;
    harness.stream("s", 3, 1).await;
    harness.etcd.pause();
    let (etcd, resumed) = (harness.etcd.clone(), async {
        tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    });
    let resume = async {
        resumed.await;
        etcd.resume();
    };
    let (report, ()) = tokio::join!(harness.pass(), resume);
    assert_eq!(report.end, PassEnd::Unknown);
    assert!(report.written.is_empty());
    let report = harness.pass().await;
    assert_eq!(report.end, PassEnd::Complete);
    // Whether the first attempts landed or not, every shard is placed once.
    for shard in ["stream/d/s/0", "stream/d/s/1", "stream/d/s/2"] {
        let record = harness.assignment(shard).await;
        assert_eq!(record.assignment.generation, 1, "{shard}");
    }
    assert!(!harness.pass().await.wrote());
}

#[tokio::test]
async fn an_assignment_that_cannot_be_read_is_never_written_over() {
    let mut harness = Harness::start().await;
    harness.brokers(&["b1"]).await;
    harness.put("/cluster/shards/stream/d/s/0", json!({ "shard": 7 })).await;
    harness.stream("s", 2, 1).await;
    let report = harness.pass().await;
    assert_eq!(report.written, [("stream/d/s/1".parse().unwrap(), Step::Place)]);
    let kept = harness.entry("/cluster/shards/stream/d/s/0").await.unwrap();
    assert_eq!(kept.value, br#"{"shard":7}"#);
    assert_eq!(harness.keys("/cluster/brokers/").await, ["/cluster/brokers/b1/stream/d/s/1"]);
}

#[tokio::test]
async fn leftovers_are_cleared_away() {
    let (mut harness, ..) = settled().await;
    harness.put("/cluster/unassigned/stream/d/s/0", json!({ "reason": "new" })).await;
    harness
        .put("/cluster/pause", json!({ "by": "x", "reason": "", "at_ms": 1, "until_ms": 2 }))
        .await;
    let _ = harness.pass().await;
    assert_eq!(harness.keys("/cluster/unassigned/").await, Vec::<String>::new());
    assert!(harness.entry("/cluster/pause").await.is_none());
}

#[tokio::test]
async fn history_is_trimmed_by_age_and_number() {
    use crate::upkeep::{Upkeep, UpkeepConfig};
    let harness = Harness::start().await;
    let now_ms = harness.cluster.clock.now_ms();
    for at_ms in [1000, now_ms - 30, now_ms - 20, now_ms - 10] {
        let key = format!("/cluster/rebalancing_history/{at_ms:015}-{SHARD}");
        let entry = json!({
            "at_ms": at_ms, "shard": SHARD, "reason": "load", "outcome": "cut_over",
        });
        harness.put(&key, entry).await;
    }
    let config = UpkeepConfig {
        history_keep_ms: 3_600_000,
        history_max_entries: 2,
        compaction_interval: std::time::Duration::ZERO,
    };
    Upkeep::new(config).run(&harness.cluster, &harness.leading).await;
    let left = harness.keys("/cluster/rebalancing_history/").await;
    let expected = [now_ms - 20, now_ms - 10]
        .map(|at_ms| format!("/cluster/rebalancing_history/{at_ms:015}-{SHARD}"));
    assert_eq!(left, expected);
}
