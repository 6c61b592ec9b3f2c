//! What a document says, checked and with its defaults filled in.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::read::Document;
use super::{BrokerView, DEFAULT_AGE_MS, Snapshot, SnapshotError};
use crate::broker::default_weight;
use crate::stream::MAX_SHARDS;
use crate::{
    Assignment, BrokerId, Lifecycle, LoadReport, Marker, MarkerReason, Millis, ShardKey, Stream,
    StreamKey,
};

/// Most shards of all streams together; counts of them and of their copies fit 32 bits.
const MOST_SHARDS: u32 = 1 << 24;

/// Highest replication factor that is understood. Streams are created with far fewer copies.
const MOST_REPLICAS: u32 = 255;

/// Every reader of JSON holds numbers up to here exactly, and there are more to come after it.
const LAST_GENERATION: u64 = 1 << 53;

#[derive(Deserialize)]
pub(super) struct BrokerDocument {
    pub(super) id: BrokerId,
    #[serde(default)]
    lifecycle: Lifecycle,
    since_ms: Option<Millis>,
    last_seen_ms: Option<Millis>,
    #[serde(default = "first_incarnation")]
    incarnation: u64,
    #[serde(default = "yes")]
    registered: bool,
    #[serde(default)]
    stopping: bool,
    zone: Option<String>,
    region: Option<String>,
    max_shards: Option<u32>,
    #[serde(default = "default_weight")]
    weight: f64,
    network_bytes_per_second: Option<u64>,
    disk_bytes_per_second: Option<u64>,
    pub(super) load: Option<LoadReport>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Deserialize)]
pub(super) struct MarkerDocument {
    pub(super) shard: ShardKey,
    #[serde(default)]
    reason: MarkerReason,
    pub(super) from_broker: Option<BrokerId>,
    pub(super) to_broker: Option<BrokerId>,
}

fn first_incarnation() -> u64 {
    1
}

fn yes() -> bool {
    true
}

impl Document {
    pub(super) fn resolve(self) -> Result<Snapshot, SnapshotError> {
        self.policy
            .validate()
            .map_err(|e| SnapshotError::at(format!("policy.{}", e.field), e.detail))?;
        let as_of_ms = self.as_of_ms.unwrap_or_default();
        let earlier = as_of_ms.saturating_sub(DEFAULT_AGE_MS);
        let streams = resolve_streams(self.streams, earlier)?;
        let mut snapshot = Snapshot {
            as_of_ms,
            first_registered_ms: self.first_registered_ms.unwrap_or(earlier),
            elected_at_ms: self.elected_at_ms.unwrap_or(earlier),
            paused: self.paused,
            policy: self.policy,
            brokers: resolve_brokers(self.brokers, earlier)?,
            unassigned: BTreeMap::new(),
            assignments: BTreeMap::new(),
            reports: BTreeMap::new(),
            history: self.history,
            copy_pauses: self.copy_pauses,
            streams,
            extra: self.extra,
        };
        for (i, marker) in self.unassigned.into_iter().enumerate() {
            let stream = snapshot.streams.get(&marker.shard.stream);
            check_shard(stream, &marker.shard, || format!("unassigned[{i}].shard"))?;
            let MarkerDocument { shard, reason, from_broker, to_broker } = marker;
            let marker = Marker { reason, from_broker, to_broker };
            let text = shard.to_string();
            if snapshot.unassigned.insert(shard, marker).is_some() {
                return Err(duplicate(format!("unassigned[{i}].shard"), &text));
            }
        }
        snapshot.assignments = resolve_assignments(&snapshot.streams, self.assignments)?;
        for report in self.reports {
            snapshot.reports.entry(report.shard.clone()).or_default().push(report);
        }
        snapshot.history.sort_by_key(|entry| entry.at_ms);
        Ok(snapshot)
    }
}

fn duplicate(path: String, what: &str) -> SnapshotError {
    SnapshotError::at(path, format!("'{what}' is there twice"))
}

fn resolve_brokers(
    brokers: Vec<BrokerDocument>,
    earlier: Millis,
) -> Result<BTreeMap<BrokerId, BrokerView>, SnapshotError> {
    let mut resolved = BTreeMap::new();
    for (i, b) in brokers.into_iter().enumerate() {
        if !b.weight.is_finite() || b.weight < 0.0 {
            let detail = format!("{} is out of range: expected a number of at least 0", b.weight);
            return Err(SnapshotError::at(format!("brokers[{i}].weight"), detail));
        }
        let view = BrokerView {
            lifecycle: b.lifecycle,
            since_ms: b.since_ms.unwrap_or(earlier),
            last_seen_ms: b.last_seen_ms.unwrap_or(earlier),
            incarnation: b.incarnation,
            registered: b.registered,
            stopping: b.stopping,
            zone: b.zone,
            region: b.region,
            max_shards: b.max_shards,
            weight: b.weight,
            network_bytes_per_second: b.network_bytes_per_second,
            disk_bytes_per_second: b.disk_bytes_per_second,
            load: b.load,
            extra: b.extra,
        };
        if resolved.insert(b.id.clone(), view).is_some() {
            return Err(duplicate(format!("brokers[{i}].id"), b.id.as_str()));
        }
    }
    Ok(resolved)
}

fn resolve_streams(
    streams: Vec<Stream>,
    earlier: Millis,
) -> Result<BTreeMap<StreamKey, Stream>, SnapshotError> {
    let mut resolved = BTreeMap::new();
    let mut shards = 0_u32;
    for (i, mut stream) in streams.into_iter().enumerate() {
        if stream.shards > MAX_SHARDS {
            let detail = format!("{} is out of range: expected 0 to {MAX_SHARDS}", stream.shards);
            return Err(SnapshotError::at(format!("streams[{i}].shards"), detail));
        }
        if !(1..=MOST_REPLICAS).contains(&stream.replication_factor) {
            let factor = stream.replication_factor;
            let detail = format!("{factor} is out of range: expected 1 to {MOST_REPLICAS}");
            return Err(SnapshotError::at(format!("streams[{i}].replication_factor"), detail));
        }
        shards = shards.saturating_add(stream.shards);
        if shards > MOST_SHARDS {
            let detail = format!("{shards} shards so far: expected {MOST_SHARDS} in all at most");
            return Err(SnapshotError::at(format!("streams[{i}].shards"), detail));
        }
        stream.created_at_ms = stream.created_at_ms.or(Some(earlier));
        let key = stream.stream.clone();
        if resolved.insert(key.clone(), stream).is_some() {
            return Err(duplicate(format!("streams[{i}].stream"), &key.to_string()));
        }
    }
    Ok(resolved)
}

fn resolve_assignments(
    streams: &BTreeMap<StreamKey, Stream>,
    mut assignments: Vec<(ShardKey, Assignment)>,
) -> Result<BTreeMap<ShardKey, Assignment>, SnapshotError> {
    let mut latest: Option<&Stream> = None;
    for (i, (shard, assignment)) in assignments.iter().enumerate() {
        if latest.is_none_or(|s| s.stream != shard.stream) {
            latest = streams.get(&shard.stream);
        }
        check_shard(latest, shard, || format!("assignments[{i}].shard"))?;
        check_voters(assignment, i)?;
        if assignment.generation > LAST_GENERATION {
            let found = assignment.generation;
            let detail = format!("{found} is out of range: expected 0 to {LAST_GENERATION}");
            return Err(SnapshotError::at(format!("assignments[{i}].generation"), detail));
        }
    }
    if !assignments.is_sorted_by(|a, b| a.0 < b.0) {
        check_distinct(&assignments)?;
        assignments.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    }
    // Sorted, they are packed into the map without a gap.
    Ok(assignments.into_iter().collect())
}

/// Names the first shard that was there before.
fn check_distinct(assignments: &[(ShardKey, Assignment)]) -> Result<(), SnapshotError> {
    let mut order: Vec<usize> = (0..assignments.len()).collect();
    order.sort_by(|a, b| assignments[*a].0.cmp(&assignments[*b].0));
    let same = |pair: &&[usize]| assignments[pair[0]].0 == assignments[pair[1]].0;
    match order.windows(2).filter(same).map(|pair| pair[1]).min() {
        None => Ok(()),
        Some(i) => {
            let text = assignments[i].0.to_string();
            Err(duplicate(format!("assignments[{i}].shard"), &text))
        }
    }
}

fn check_shard(
    stream: Option<&Stream>,
    shard: &ShardKey,
    path: impl Fn() -> String,
) -> Result<(), SnapshotError> {
    match stream {
        None => {
            let detail = format!("'{shard}' is of a stream that the document does not list");
            Err(SnapshotError::at(path(), detail))
        }
        Some(stream) if shard.number >= stream.shards => {
            let detail = format!("'{shard}' is past the {} shards of its stream", stream.shards);
            Err(SnapshotError::at(path(), detail))
        }
        Some(_) => Ok(()),
    }
}

fn check_voters(assignment: &Assignment, i: usize) -> Result<(), SnapshotError> {
    for (at, follower) in assignment.followers.iter().enumerate() {
        let earlier = &assignment.followers[..at];
        if assignment.leader.as_ref() == Some(follower) || earlier.contains(follower) {
            return Err(duplicate(format!("assignments[{i}].followers"), follower.as_str()));
        }
    }
    Ok(())
}
