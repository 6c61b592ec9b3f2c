//! Run-time policy and the pause.

use evenkeel_coordination::{Guard, Guarded, Write};
use evenkeel_model::{PauseRecord, Policy, RECORD_VERSION};
use evenkeel_proto::admin::{
    JsonDocument, PauseRequest, PauseResponse, ResumeResponse, SetPolicyRequest,
};
use serde_json::Value;
use tonic::Status;

use super::gate;
use crate::cluster::Cluster;
use crate::policy as stored;

pub(super) async fn pause(
    cluster: &Cluster,
    request: &PauseRequest,
) -> Result<PauseResponse, Status> {
    let leading = gate::leading(cluster)?;
    if request.by.is_empty() {
        return Err(gate::invalid("by: it is empty: expected who pauses placement"));
    }
    let now_ms = cluster.clock.now_ms();
    if let Some(for_ms) = request.for_ms.filter(|ms| *ms <= 0) {
        let detail = format!("for_ms: {for_ms} is out of range: expected at least 1");
        return Err(gate::invalid(detail));
    }
    let record = PauseRecord {
        v: RECORD_VERSION,
        by: request.by.clone(),
        reason: request.reason.clone(),
        at_ms: now_ms,
        until_ms: request.for_ms.map(|ms| now_ms.saturating_add(ms)),
    };
    let value = evenkeel_model::encode(&record);
    let txn = Guarded {
        token: Some(leading.token),
        guards: Vec::new(),
        writes: vec![Write::Put { key: cluster.keys.pause(), value, lease: None }],
    };
    gate::commit(cluster, txn).await?;
    Ok(PauseResponse {})
}

pub(super) async fn resume(cluster: &Cluster) -> Result<ResumeResponse, Status> {
    let leading = gate::leading(cluster)?;
    let txn = Guarded {
        token: Some(leading.token),
        guards: Vec::new(),
        writes: vec![Write::Delete { key: cluster.keys.pause() }],
    };
    gate::commit(cluster, txn).await?;
    Ok(ResumeResponse {})
}

pub(super) fn policy(cluster: &Cluster) -> Result<JsonDocument, Status> {
    let policy = cluster.read(|records| stored::effective(records, &cluster.configured));
    document(&policy)
}

pub(super) async fn set_policy(
    cluster: &Cluster,
    request: &SetPolicyRequest,
) -> Result<JsonDocument, Status> {
    let leading = gate::leading(cluster)?;
    let patch: Value = serde_json::from_str(&request.json)
        .map_err(|e| gate::invalid(format!("json: not a JSON document ({e})")))?;
    let _placing = cluster.placing.lock().await;
    let (policy, revision) = cluster.read(|records| {
        let present = stored::effective(records, &cluster.configured);
        let policy = present.merged(&patch).map_err(gate::invalid)?;
        Ok::<_, Status>((policy, records.policy.revision_of(&())))
    })?;
    let key = cluster.keys.policy();
    let txn = Guarded {
        token: Some(leading.token),
        guards: vec![Guard::ModRevision { key: key.clone(), revision }],
        writes: vec![Write::Put { key, value: stored::encode(&policy), lease: None }],
    };
    gate::commit(cluster, txn).await?;
    document(&policy)
}

fn document(policy: &Policy) -> Result<JsonDocument, Status> {
    let json = serde_json::to_string(policy)
        .map_err(|e| Status::internal(format!("cannot encode the policy: {e}")))?;
    Ok(JsonDocument { json })
}
