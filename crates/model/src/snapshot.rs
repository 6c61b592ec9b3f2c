//! What one planning pass may look at, read at one revision and stamped with one time. Its JSON
//! form is a fixed contract: see `docs/snapshot.md`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::broker::default_weight;
use crate::stream::MAX_SHARDS;
use crate::{
    Assignment, BrokerId, HistoryEntry, Lifecycle, LoadReport, Marker, MarkerReason, Millis,
    Policy, ShardKey, ShardReport, Stream, StreamKey,
};

/// The only layout of a snapshot file so far.
pub const SNAPSHOT_VERSION: u32 = 1;

/// Times that a file leaves out lie this long before `as_of_ms`.
pub const DEFAULT_AGE_MS: Millis = 3_600_000;

/// One broker as the planner sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct BrokerView {
    /// What it may be used for.
    pub lifecycle: Lifecycle,
    /// Since when.
    pub since_ms: Millis,
    /// When its registration was last seen.
    pub last_seen_ms: Millis,
    /// Rises with every start.
    pub incarnation: u64,
    /// Whether its registration is there now.
    pub registered: bool,
    /// It was told to stop and is expected back: it hands its leaders over and keeps its copies.
    pub stopping: bool,
    /// Failure domain.
    pub zone: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Most shards it may hold in any role, copies in flight too.
    pub max_shards: Option<u32>,
    /// Effective vCPUs.
    pub weight: f64,
    /// Link, bytes per second.
    pub network_bytes_per_second: Option<u64>,
    /// Disk bandwidth, bytes per second.
    pub disk_bytes_per_second: Option<u64>,
    /// Its latest load report; none is unknown, not idle.
    pub load: Option<LoadReport>,
    /// Fields of the document that this version does not know.
    pub extra: Map<String, Value>,
}

impl BrokerView {
    /// Whether it may be given shards: live and registered.
    pub fn is_target(&self) -> bool {
        self.lifecycle == Lifecycle::Live && self.registered
    }

    /// Whether its copies still serve: live or draining.
    pub fn is_serving(&self) -> bool {
        matches!(self.lifecycle, Lifecycle::Live | Lifecycle::Draining)
    }
}

/// Planner input: the whole cluster at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The time that every rule reckons with.
    pub as_of_ms: Millis,
    /// When the cluster's first broker registered.
    pub first_registered_ms: Millis,
    /// When the present load manager was elected.
    pub elected_at_ms: Millis,
    /// An operator paused placement.
    pub paused: bool,
    /// Placement policy.
    pub policy: Policy,
    /// Every known broker.
    pub brokers: BTreeMap<BrokerId, BrokerView>,
    /// Every stream and cache.
    pub streams: BTreeMap<StreamKey, Stream>,
    /// Shards that wait to be placed, with the reason.
    pub unassigned: BTreeMap<ShardKey, Marker>,
    /// Every assignment, its leader possibly gone.
    pub assignments: BTreeMap<ShardKey, Assignment>,
    /// What brokers say about shards, of any generation.
    pub reports: BTreeMap<ShardKey, Vec<ShardReport>>,
    /// Finished moves, oldest first.
    pub history: Vec<HistoryEntry>,
    /// Fields of the document that this version does not know.
    pub extra: Map<String, Value>,
}

impl Snapshot {
    /// An empty cluster at `as_of_ms`.
    pub fn empty(as_of_ms: Millis) -> Self {
        Self {
            as_of_ms,
            first_registered_ms: as_of_ms.saturating_sub(DEFAULT_AGE_MS),
            elected_at_ms: as_of_ms.saturating_sub(DEFAULT_AGE_MS),
            paused: false,
            policy: Policy::default(),
            brokers: BTreeMap::new(),
            streams: BTreeMap::new(),
            unassigned: BTreeMap::new(),
            assignments: BTreeMap::new(),
            reports: BTreeMap::new(),
            history: Vec::new(),
            extra: Map::new(),
        }
    }

    /// What `broker` says about `shard` at `generation`; older and newer reports do not count.
    pub fn report(
        &self,
        shard: &ShardKey,
        broker: &BrokerId,
        generation: u64,
    ) -> Option<&ShardReport> {
        self.reports.get(shard)?.iter().find(|r| r.broker == *broker && r.generation == generation)
    }

    /// Reads the JSON document, fills the defaults in, and checks it.
    pub fn parse(json: &[u8]) -> Result<Self, SnapshotError> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let document: Document = serde_path_to_error::deserialize(&mut reader).map_err(|e| {
            SnapshotError { path: e.path().to_string(), detail: e.inner().to_string() }
        })?;
        reader.end().map_err(|e| SnapshotError::at(".", e.to_string()))?;
        document.resolve()
    }

    /// The JSON document of this snapshot, every default written out.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(Document::from(self)).expect("a snapshot is plain data")
    }
}

/// A snapshot document that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {detail}")]
pub struct SnapshotError {
    /// Path in the document, such as `brokers[3].zone`.
    pub path: String,
    /// What was found and what was expected.
    pub detail: String,
}

impl SnapshotError {
    fn at(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { path: path.into(), detail: detail.into() }
    }
}

#[derive(Serialize, Deserialize)]
struct Document {
    v: u32,
    as_of_ms: Millis,
    first_registered_ms: Option<Millis>,
    #[serde(default)]
    paused: bool,
    elected_at_ms: Option<Millis>,
    #[serde(default)]
    policy: Policy,
    brokers: Vec<BrokerDocument>,
    streams: Vec<Stream>,
    #[serde(default)]
    unassigned: Vec<MarkerDocument>,
    #[serde(default)]
    assignments: Vec<Assignment>,
    #[serde(default)]
    reports: Vec<ShardReport>,
    #[serde(default)]
    history: Vec<HistoryEntry>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct BrokerDocument {
    id: BrokerId,
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
    load: Option<LoadReport>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct MarkerDocument {
    shard: ShardKey,
    #[serde(default)]
    reason: MarkerReason,
    from_broker: Option<BrokerId>,
    to_broker: Option<BrokerId>,
}

fn first_incarnation() -> u64 {
    1
}

fn yes() -> bool {
    true
}

impl Document {
    fn resolve(self) -> Result<Snapshot, SnapshotError> {
        if self.v != SNAPSHOT_VERSION {
            let detail = format!("version {} is not known: expected {SNAPSHOT_VERSION}", self.v);
            return Err(SnapshotError::at("v", detail));
        }
        self.policy
            .validate()
            .map_err(|e| SnapshotError::at(format!("policy.{}", e.field), e.detail))?;
        let earlier = self.as_of_ms.saturating_sub(DEFAULT_AGE_MS);
        let streams = resolve_streams(self.streams, earlier)?;
        let mut snapshot = Snapshot {
            as_of_ms: self.as_of_ms,
            first_registered_ms: self.first_registered_ms.unwrap_or(earlier),
            elected_at_ms: self.elected_at_ms.unwrap_or(earlier),
            paused: self.paused,
            policy: self.policy,
            brokers: resolve_brokers(self.brokers, earlier)?,
            unassigned: BTreeMap::new(),
            assignments: BTreeMap::new(),
            reports: BTreeMap::new(),
            history: self.history,
            streams,
            extra: self.extra,
        };
        for (i, marker) in self.unassigned.into_iter().enumerate() {
            check_shard(&snapshot.streams, &marker.shard, || format!("unassigned[{i}].shard"))?;
            let MarkerDocument { shard, reason, from_broker, to_broker } = marker;
            let marker = Marker { reason, from_broker, to_broker };
            let text = shard.to_string();
            if snapshot.unassigned.insert(shard, marker).is_some() {
                return Err(duplicate(format!("unassigned[{i}].shard"), &text));
            }
        }
        for (i, assignment) in self.assignments.into_iter().enumerate() {
            check_assignment(&snapshot.streams, &assignment, i)?;
            let shard = assignment.shard.clone();
            if snapshot.assignments.insert(shard.clone(), assignment).is_some() {
                return Err(duplicate(format!("assignments[{i}].shard"), &shard.to_string()));
            }
        }
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
    for (i, mut stream) in streams.into_iter().enumerate() {
        if stream.shards > MAX_SHARDS {
            let detail = format!("{} is out of range: expected 0 to {MAX_SHARDS}", stream.shards);
            return Err(SnapshotError::at(format!("streams[{i}].shards"), detail));
        }
        if stream.replication_factor == 0 {
            let detail = "0 is out of range: expected at least 1";
            return Err(SnapshotError::at(format!("streams[{i}].replication_factor"), detail));
        }
        stream.created_at_ms = stream.created_at_ms.or(Some(earlier));
        let key = stream.stream.clone();
        if resolved.insert(key.clone(), stream).is_some() {
            return Err(duplicate(format!("streams[{i}].stream"), &key.to_string()));
        }
    }
    Ok(resolved)
}

fn check_shard(
    streams: &BTreeMap<StreamKey, Stream>,
    shard: &ShardKey,
    path: impl Fn() -> String,
) -> Result<(), SnapshotError> {
    match streams.get(&shard.stream) {
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

fn check_assignment(
    streams: &BTreeMap<StreamKey, Stream>,
    assignment: &Assignment,
    i: usize,
) -> Result<(), SnapshotError> {
    check_shard(streams, &assignment.shard, || format!("assignments[{i}].shard"))?;
    let mut seen = BTreeSet::new();
    for broker in assignment.voters() {
        if !seen.insert(broker) {
            return Err(duplicate(format!("assignments[{i}].followers"), broker.as_str()));
        }
    }
    Ok(())
}

impl From<&Snapshot> for Document {
    fn from(s: &Snapshot) -> Self {
        Self {
            v: SNAPSHOT_VERSION,
            as_of_ms: s.as_of_ms,
            first_registered_ms: Some(s.first_registered_ms),
            paused: s.paused,
            elected_at_ms: Some(s.elected_at_ms),
            policy: s.policy.clone(),
            brokers: s.brokers.iter().map(BrokerDocument::from).collect(),
            streams: s.streams.values().cloned().collect(),
            unassigned: s
                .unassigned
                .iter()
                .map(|(shard, m)| MarkerDocument {
                    shard: shard.clone(),
                    reason: m.reason,
                    from_broker: m.from_broker.clone(),
                    to_broker: m.to_broker.clone(),
                })
                .collect(),
            assignments: s.assignments.values().cloned().collect(),
            reports: s.reports.values().flatten().cloned().collect(),
            history: s.history.clone(),
            extra: s.extra.clone(),
        }
    }
}

impl From<(&BrokerId, &BrokerView)> for BrokerDocument {
    fn from((id, b): (&BrokerId, &BrokerView)) -> Self {
        Self {
            id: id.clone(),
            lifecycle: b.lifecycle,
            since_ms: Some(b.since_ms),
            last_seen_ms: Some(b.last_seen_ms),
            incarnation: b.incarnation,
            registered: b.registered,
            stopping: b.stopping,
            zone: b.zone.clone(),
            region: b.region.clone(),
            max_shards: b.max_shards,
            weight: b.weight,
            network_bytes_per_second: b.network_bytes_per_second,
            disk_bytes_per_second: b.disk_bytes_per_second,
            load: b.load.clone(),
            extra: b.extra.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_filled_in_and_unknown_fields_are_kept() {
        let json = br#"{"v":1,"as_of_ms":10000000,"brokers":[{"id":"b1","rack":"r9"}],
            "streams":[{"stream":"stream/default/orders","shards":2}],"site":"x",
            "assignments":[{"shard":"stream/default/orders/1","leader":"b1"}]}"#;
        let s = Snapshot::parse(json).unwrap();
        let b1 = s.brokers.values().next().unwrap();
        assert_eq!((b1.since_ms, b1.weight, b1.is_target()), (6_400_000, 1.0, true));
        assert_eq!(s.streams.values().next().unwrap().replication_factor, 1);
        assert_eq!(s.assignments.values().next().unwrap().generation, 1);
        let out = s.to_json();
        assert_eq!((&out["site"], &out["brokers"][0]["rack"]), (&"x".into(), &"r9".into()));
        assert_eq!(Snapshot::parse(out.to_string().as_bytes()).unwrap(), s);
    }

    #[test]
    fn faults_are_named_with_their_path() {
        let doc = |brokers: &str, rest: &str| {
            format!(
                r#"{{"v":1,"as_of_ms":0,"brokers":[{brokers}],
                "streams":[{{"stream":"stream/d/s","shards":1}}]{rest}}}"#
            )
        };
        let cases = [
            (doc(r#"{"id":"B"}"#, ""), "brokers[0].id: broker id 'B' is not valid"),
            (doc(r#"{"id":"b"},{"id":"b"}"#, ""), "brokers[1].id: 'b' is there twice"),
            (doc(r#"{"id":"b","lifecycle":"up"}"#, ""), "brokers[0]"),
            (
                doc("", r#","assignments":[{"shard":"stream/d/s/1"}]"#),
                "assignments[0].shard: 'stream/d/s/1' is past the 1 shards of its stream",
            ),
            (
                doc("", r#","assignments":[{"shard":"stream/d/x/0"}]"#),
                "assignments[0].shard: 'stream/d/x/0' is of a stream that the document",
            ),
            (doc("", "").replace("\"v\":1", "\"v\":2"), "v: version 2 is not known"),
            ("{".to_owned(), ""),
        ];
        for (json, expected) in cases {
            let error = Snapshot::parse(json.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
