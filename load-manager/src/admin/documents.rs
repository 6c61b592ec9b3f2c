//! The planner's documents, in the JSON forms of the command line.

use evenkeel_model::{BrokerId, ShardKey, Snapshot, Strategy};
use evenkeel_proto::admin::{ExplainRequest, JsonDocument, RankRequest};
use serde::Serialize;
use serde_json::json;
use tonic::Status;

use super::{brokers, gate};
use crate::cluster::Cluster;
use crate::words;

fn document(value: &impl Serialize) -> Result<JsonDocument, Status> {
    let json = serde_json::to_string(value)
        .map_err(|e| Status::internal(format!("cannot encode the document: {e}")))?;
    Ok(JsonDocument { json })
}

pub(super) fn snapshot(cluster: &Cluster) -> Result<JsonDocument, Status> {
    gate::leading(cluster)?;
    document(&cluster.observe(|_, snapshot| snapshot.to_json()))
}

pub(super) fn plan(cluster: &Cluster) -> Result<JsonDocument, Status> {
    gate::leading(cluster)?;
    cluster.observe(|_, snapshot| {
        let plan = evenkeel_planner::plan(&snapshot);
        document(&json!({
            "as_of_ms": plan.as_of_ms,
            "decisions": plan.decisions,
            "balance": evenkeel_planner::balance(&snapshot),
        }))
    })
}

pub(super) fn balance(cluster: &Cluster) -> Result<JsonDocument, Status> {
    gate::leading(cluster)?;
    document(&cluster.observe(|_, snapshot| evenkeel_planner::balance(&snapshot)))
}

pub(super) fn rank(cluster: &Cluster, request: &RankRequest) -> Result<JsonDocument, Status> {
    gate::leading(cluster)?;
    let asked: Option<Strategy> = match &request.strategy {
        None => None,
        Some(word) => Some(serde_json::from_value(json!(word)).map_err(|_| {
            gate::invalid(format!(
                "strategy: '{word}' is not known: expected fair, balanced or weighted_load"
            ))
        })?),
    };
    cluster.observe(|_, snapshot| {
        let strategy = asked.unwrap_or(snapshot.policy.assignment_strategy);
        document(&evenkeel_planner::rank(&snapshot, strategy))
    })
}

pub(super) fn explain(cluster: &Cluster, request: &ExplainRequest) -> Result<JsonDocument, Status> {
    gate::leading(cluster)?;
    let subject = request.subject.as_str();
    cluster.observe(|_, snapshot| {
        if subject.contains('/') {
            let shard: ShardKey = gate::parse("subject", subject)?;
            return match evenkeel_planner::explain(&snapshot, &shard) {
                Some(explanation) => document(&explanation),
                None => Err(gate::not_found("shard", &shard)),
            };
        }
        explain_broker(&snapshot, &gate::parse("subject", subject)?)
    })
}

/// Everything that names a broker, with what is decided about it.
fn explain_broker(snapshot: &Snapshot, broker: &BrokerId) -> Result<JsonDocument, Status> {
    let view = snapshot.brokers.get(broker).ok_or_else(|| gate::not_found("broker", broker))?;
    let plan = evenkeel_planner::plan(snapshot);
    let decisions = words::by_shard(&plan);
    let mut led = 0;
    let mut shards = Vec::new();
    for shard in brokers::naming(snapshot, broker) {
        let Some(role) = snapshot.assignments.get(shard).and_then(|a| a.role_of(broker)) else {
            continue;
        };
        led += u32::from(role == evenkeel_model::Role::Leader);
        let decision = decisions.get(shard).map(|d| {
            let (kind, word) = words::of(d);
            json!({ "kind": kind, "word": word, "detail": words::detail(d) })
        });
        shards.push(json!({ "shard": shard, "role": role, "decision": decision }));
    }
    let text = format!(
        "broker {broker} is {} and {}; it leads {led} shards and is named by {}",
        view.lifecycle.as_str(),
        if view.is_target() { "may be given shards" } else { "is given no shards" },
        shards.len(),
    );
    document(&json!({
        "broker": broker,
        "lifecycle": view.lifecycle,
        "since_ms": view.since_ms,
        "registered": view.registered,
        "target": view.is_target(),
        "zone": view.zone,
        "leaders": led,
        "shards": shards,
        "text": text,
    }))
}
