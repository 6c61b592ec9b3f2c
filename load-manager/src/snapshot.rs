//! From the stored records and the time to what the planner sees. A pure function: two instances
//! that hold the same records at the same time build the same snapshot.

use evenkeel_model::{
    Assignment, BrokerId, BrokerView, HistoryEntry, Lifecycle, Millis, NodeRecord, Phase, Policy,
    Registration, ReportRecord, ShardKey, ShardReport, ShardState, Snapshot,
};

use crate::records::Records;
use crate::{copying, policy};

/// What a snapshot depends on beside the records.
#[derive(Debug, Clone)]
pub(crate) struct Circumstances {
    /// Now, on the load manager's clock.
    pub(crate) now_ms: Millis,
    /// When the present load manager was elected.
    pub(crate) elected_at_ms: Millis,
    /// The configured policy, under the stored one.
    pub(crate) configured: Policy,
}

/// Builds the snapshot. Records that cannot be read are left out, in the way that does least: a
/// broker whose record is unreadable keeps what it has and gets nothing.
pub(crate) fn build(records: &Records, at: &Circumstances) -> Snapshot {
    let mut snapshot = Snapshot::empty(at.now_ms);
    snapshot.elected_at_ms = at.elected_at_ms;
    snapshot.policy = policy::effective(records, &at.configured);
    snapshot.paused = is_paused(records, at.now_ms);
    snapshot.first_registered_ms = first_registered_ms(records).unwrap_or(at.now_ms);
    add_brokers(&mut snapshot, records, at);
    for stream in records.streams.iter() {
        let mut value = stream.value.clone();
        value.created_at_ms = value.created_at_ms.or(Some(snapshot.first_registered_ms));
        snapshot.streams.insert(stream.id.clone(), value);
    }
    add_reports(&mut snapshot, records);
    for stored in records.assignments.iter() {
        if belongs(&snapshot, &stored.id) {
            let assignment = stored.value.assignment.clone();
            let assignment = as_observed(&snapshot, records, assignment, at.now_ms);
            snapshot.assignments.insert(stored.id.clone(), assignment);
        }
    }
    for marker in records.markers.iter() {
        if belongs(&snapshot, &marker.id) {
            snapshot.unassigned.insert(marker.id.clone(), marker.value.clone());
        }
    }
    snapshot.history = history(records);
    snapshot.copy_pauses = copying::pauses(records);
    snapshot
}

/// When the first broker that anybody remembers registered.
pub(crate) fn first_registered_ms(records: &Records) -> Option<Millis> {
    records.nodes.iter().map(|n| n.value.first_registered_ms).min()
}

/// Finished moves, oldest first.
pub(crate) fn history(records: &Records) -> Vec<HistoryEntry> {
    let mut history: Vec<HistoryEntry> = records.history.iter().map(|h| h.value.clone()).collect();
    history.sort_by_key(|entry| entry.at_ms);
    history
}

/// Whether placement is paused. A pause that cannot be read holds: it was meant to.
pub(crate) fn is_paused(records: &Records, now_ms: Millis) -> bool {
    match records.pause.get(&()) {
        Some(pause) => pause.value.until_ms.is_none_or(|until| now_ms < until),
        None => records.pause.contains(&()),
    }
}

fn add_brokers(snapshot: &mut Snapshot, records: &Records, at: &Circumstances) {
    let known = records.nodes.iter().map(|node| &node.id);
    for broker in known.chain(records.nodes.unreadable_ids()) {
        if let Some(view) = broker_view(records, broker, at) {
            snapshot.brokers.insert(broker.clone(), view);
        }
    }
}

/// One broker, if there is a record of it.
pub(crate) fn broker_view(
    records: &Records,
    broker: &BrokerId,
    at: &Circumstances,
) -> Option<BrokerView> {
    let registration = records.registrations.get(broker).map(|r| &r.value);
    let present = records.registrations.contains(broker);
    if let Some(node) = records.nodes.get(broker) {
        let mut view = view_of(&node.value, registration, at.now_ms, present);
        view.load = usable_load(records, broker, view.incarnation);
        return Some(view);
    }
    // The record is there and cannot be read: what the broker holds must stay where it is.
    let node = records.nodes.is_unreadable(broker).then(|| NodeRecord {
        v: evenkeel_model::RECORD_VERSION,
        lifecycle: if present { Lifecycle::Live } else { Lifecycle::Down },
        since_ms: at.elected_at_ms,
        incarnation: registration.map_or(0, |r| r.incarnation),
        first_registered_ms: at.elected_at_ms,
        last_seen_ms: None,
        zone: None,
        drain_asked: false,
        broker: broker.clone(),
    })?;
    let mut view = view_of(&node, registration, at.now_ms, present);
    view.registered = false;
    Some(view)
}

fn view_of(
    node: &NodeRecord,
    registration: Option<&Registration>,
    now_ms: Millis,
    present: bool,
) -> BrokerView {
    let last_seen = if present { now_ms } else { node.last_seen_ms.unwrap_or(node.since_ms) };
    let zone = registration.map_or_else(|| node.zone.clone(), |r| r.zone.clone());
    BrokerView {
        lifecycle: node.lifecycle,
        since_ms: node.since_ms,
        last_seen_ms: last_seen,
        incarnation: node.incarnation,
        // A registration that cannot be read, or of a life that is not noted yet, keeps the broker
        // alive and makes it no target.
        registered: registration.is_some_and(|r| r.incarnation == node.incarnation),
        stopping: registration.is_some_and(|r| r.stopping),
        zone,
        region: registration.and_then(|r| r.region.clone()),
        max_shards: registration.and_then(|r| r.max_shards),
        weight: registration.map_or(1.0, |r| r.weight),
        network_bytes_per_second: registration.and_then(|r| r.network_bytes_per_second),
        disk_bytes_per_second: registration.and_then(|r| r.disk_bytes_per_second),
        load: None,
        extra: serde_json::Map::new(),
    }
}

/// A report of an earlier life of the broker says nothing about this one. 0 is a reporter that
/// does not number its lives.
fn same_life(reported: u64, broker: u64) -> bool {
    reported == 0 || reported == broker
}

pub(crate) fn usable_load(
    records: &Records,
    broker: &BrokerId,
    incarnation: u64,
) -> Option<evenkeel_model::LoadReport> {
    let load = &records.loads.get(broker)?.value;
    same_life(load.incarnation, incarnation).then(|| load.clone())
}

fn add_reports(snapshot: &mut Snapshot, records: &Records) {
    for stored in records.reports.iter() {
        if let Some(report) = usable_report(snapshot, &stored.value) {
            snapshot.reports.entry(report.shard.clone()).or_default().push(report);
        }
    }
    snapshot.reports.values_mut().for_each(|r| r.sort_by(|a, b| a.broker.cmp(&b.broker)));
}

/// What a broker of the snapshot says about one of its shards, in its present life.
pub(crate) fn usable_report(snapshot: &Snapshot, record: &ReportRecord) -> Option<ShardReport> {
    let ReportRecord { report, incarnation, .. } = record;
    let known = snapshot.brokers.get(&report.broker)?;
    let counts = same_life(*incarnation, known.incarnation) && belongs(snapshot, &report.shard);
    counts.then(|| report.clone())
}

/// Whether the shard is one of a readable stream.
pub(crate) fn belongs(snapshot: &Snapshot, shard: &ShardKey) -> bool {
    snapshot.streams.get(&shard.stream).is_some_and(|stream| shard.number < stream.shards)
}

/// The stored state is what the load manager last wrote; that the leader serves is its report, and
/// how its copy gets on is the migrator's to tell.
pub(crate) fn as_observed(
    snapshot: &Snapshot,
    records: &Records,
    mut assignment: Assignment,
    now_ms: Millis,
) -> Assignment {
    let serves = assignment.leader.as_ref().is_some_and(|leader| {
        snapshot
            .report(&assignment.shard, leader, assignment.generation)
            .is_some_and(|r| r.phase == Some(Phase::Serving))
    });
    if assignment.state == ShardState::Assigning && serves {
        assignment.state = ShardState::Active;
    }
    copying::set_clocks(records, &mut assignment, now_ms);
    assignment
}
