//! Brokers: listing, farewell and removal.

use evenkeel_coordination::{Guard, Guarded, Write};
use evenkeel_model::{BrokerId, Lifecycle, NodeRecord, ShardKey, Snapshot};
use evenkeel_proto::admin::*;
use evenkeel_proto::refusal::{Reason, refuse, refuse_with};
use tonic::Status;

use super::gate;
use crate::cluster::Cluster;
use crate::lifecycle::{Cause, NodeWrite};
use crate::records::Records;

pub(super) fn list(cluster: &Cluster) -> ListBrokersResponse {
    let brokers = cluster.observe(|records, snapshot| {
        let ranking = evenkeel_planner::rank(snapshot, snapshot.policy.assignment_strategy);
        let one = |id: &BrokerId| {
            let score = ranking.rankings.iter().find(|r| r.broker == *id).map(|r| r.score);
            describe(records, snapshot, id, score)
        };
        snapshot.brokers.keys().filter_map(one).collect()
    });
    ListBrokersResponse { brokers }
}

fn describe(
    records: &Records,
    snapshot: &Snapshot,
    id: &BrokerId,
    score: Option<f64>,
) -> Option<Broker> {
    let view = snapshot.brokers.get(id)?;
    let (mut leaders, mut replicas) = (0, 0);
    for assignment in snapshot.assignments.values() {
        leaders += u32::from(assignment.leader.as_ref() == Some(id));
        replicas += u32::from(assignment.role_of(id).is_some());
    }
    let address = records.registrations.get(id).map(|r| r.value.address.clone());
    Some(Broker {
        id: id.to_string(),
        lifecycle: view.lifecycle.as_str().to_owned(),
        since_ms: view.since_ms,
        incarnation: view.incarnation,
        registered: view.registered,
        address: address.unwrap_or_default(),
        zone: view.zone.clone(),
        region: view.region.clone(),
        max_shards: view.max_shards,
        weight: view.weight,
        leaders,
        replicas,
        score,
        cpu_percent: view.load.as_ref().and_then(|l| l.cpu_percent),
        memory_percent: view.load.as_ref().and_then(|l| l.memory_percent),
    })
}

/// The shards that name the broker in any role, in shard order.
pub(super) fn naming<'a>(
    snapshot: &'a Snapshot,
    broker: &'a BrokerId,
) -> impl Iterator<Item = &'a ShardKey> {
    let named = snapshot.assignments.values().filter(|a| a.role_of(broker).is_some());
    named.map(|a| &a.shard)
}

/// The broker's record, if it can be read.
pub(super) fn node(records: &Records, broker: &BrokerId) -> Result<NodeRecord, Status> {
    if let Some(stored) = records.nodes.get(broker) {
        return Ok(stored.value.clone());
    }
    if records.nodes.contains(broker) {
        let detail = format!("the record of broker '{broker}' cannot be read");
        return Err(refuse(Reason::WrongLifecycle, detail));
    }
    Err(gate::not_found("broker", broker))
}

/// Writes a broker's record anew.
pub(super) async fn rewrite(
    cluster: &Cluster,
    change: impl FnOnce(&Records, NodeRecord) -> Result<Option<NodeRecord>, Status>,
    broker: &BrokerId,
) -> Result<(), Status> {
    let leading = gate::leading(cluster)?;
    let _placing = cluster.placing.lock().await;
    let write = cluster.read(|records| {
        let next = change(records, node(records, broker)?)?;
        let revision = records.nodes.revision_of(broker);
        Ok::<_, Status>(next.map(|next| NodeWrite { next, revision, cause: Cause::Asked }))
    })?;
    if let Some(write) = write {
        gate::commit(cluster, crate::pass::node_txn(cluster, &leading, &write)).await?;
    }
    Ok(())
}

pub(super) async fn deregister(
    cluster: &Cluster,
    request: &DeregisterBrokerRequest,
) -> Result<DeregisterBrokerResponse, Status> {
    let broker: BrokerId = gate::parse("broker", &request.broker)?;
    let now_ms = cluster.clock.now_ms();
    let farewell = |records: &Records, node: NodeRecord| {
        if node.incarnation != request.incarnation {
            let detail = format!(
                "incarnation {} is not the present one of broker '{broker}': expected {}",
                request.incarnation, node.incarnation
            );
            return Err(refuse(Reason::Conflict, detail));
        }
        if node.lifecycle == Lifecycle::Left {
            return Ok(None);
        }
        // While the registration is there, the broker is seen: its last sight is still to come.
        let present = records.registrations.contains(&broker);
        let last_seen_ms = if present { None } else { node.last_seen_ms.or(Some(now_ms)) };
        let lifecycle = Lifecycle::Left;
        Ok(Some(NodeRecord {
            lifecycle,
            since_ms: now_ms,
            last_seen_ms,
            drain_asked: false,
            ..node
        }))
    };
    rewrite(cluster, farewell, &broker).await?;
    Ok(DeregisterBrokerResponse {})
}

pub(super) async fn remove(
    cluster: &Cluster,
    request: &RemoveBrokerRequest,
) -> Result<RemoveBrokerResponse, Status> {
    let broker: BrokerId = gate::parse("broker", &request.broker)?;
    let leading = gate::leading(cluster)?;
    let _placing = cluster.placing.lock().await;
    let key = cluster.keys.node(&broker);
    let revision = cluster.observe(|records, snapshot| {
        let node = node(records, &broker)?;
        let running = matches!(node.lifecycle, Lifecycle::Live | Lifecycle::Draining);
        if running || records.registrations.contains(&broker) {
            let detail = format!(
                "broker '{broker}' is {} and still runs: stop it first",
                node.lifecycle.as_str()
            );
            return Err(refuse(Reason::BrokerRunning, detail));
        }
        let named: Vec<String> = naming(snapshot, &broker).map(ToString::to_string).collect();
        if let Some(first) = named.first() {
            let count = named.len();
            let detail = format!("{count} shards name broker '{broker}', {first} among them");
            let metadata = [("shards", count.to_string()), ("first", first.clone())];
            let metadata = metadata.each_ref().map(|(k, v)| (*k, v.as_str()));
            return Err(refuse_with(Reason::BrokerNamedByShards, detail, &metadata));
        }
        Ok(records.nodes.revision_of(&broker))
    })?;
    let absent = Guard::Absent { key: cluster.keys.registration(&broker) };
    let txn = Guarded {
        token: Some(leading.token),
        guards: vec![Guard::ModRevision { key: key.clone(), revision }, absent],
        writes: vec![Write::Delete { key }],
    };
    gate::commit(cluster, txn).await?;
    Ok(RemoveBrokerResponse {})
}
