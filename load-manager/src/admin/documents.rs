//! The planner's documents, in the JSON forms of the command line.

use evenkeel_model::{BrokerId, ShardKey, Strategy};
use evenkeel_proto::admin::{ExplainRequest, JsonDocument, RankRequest};
use serde::Serialize;
use serde_json::json;
use tonic::Status;

use super::gate;
use crate::cluster::Cluster;

fn document(value: &impl Serialize) -> Result<JsonDocument, Status> {
    let json = serde_json::to_string(value)
        .map_err(|e| Status::internal(format!("cannot encode the document: {e}")))?;
    Ok(JsonDocument { json })
}

pub(super) fn snapshot(cluster: &Cluster) -> Result<JsonDocument, Status> {
    gate::leading(cluster)?;
    cluster.observe(|_, snapshot| document(snapshot))
}

pub(super) fn plan(cluster: &Cluster) -> Result<JsonDocument, Status> {
    gate::leading(cluster)?;
    cluster.plan_with(|_, planner| {
        let plan = planner.plan();
        document(&json!({
            "as_of_ms": plan.as_of_ms,
            "decisions": plan.decisions,
            "balance": planner.balance(),
        }))
    })
}

pub(super) fn balance(cluster: &Cluster) -> Result<JsonDocument, Status> {
    gate::leading(cluster)?;
    document(&cluster.plan_with(|_, planner| planner.balance()))
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
        document(&evenkeel_planner::rank(snapshot, strategy))
    })
}

pub(super) fn explain(cluster: &Cluster, request: &ExplainRequest) -> Result<JsonDocument, Status> {
    gate::leading(cluster)?;
    let subject = request.subject.as_str();
    cluster.observe(|_, snapshot| {
        if subject.contains('/') {
            let shard: ShardKey = gate::parse("subject", subject)?;
            return match evenkeel_planner::explain(snapshot, &shard) {
                Some(explanation) => document(&explanation),
                None => Err(gate::not_found("shard", &shard)),
            };
        }
        let broker: BrokerId = gate::parse("subject", subject)?;
        match evenkeel_planner::explain_broker(snapshot, &broker) {
            Some(explanation) => document(&explanation),
            None => Err(gate::not_found("broker", &broker)),
        }
    })
}
