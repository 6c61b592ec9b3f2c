//! What one planning pass may look at, read at one revision and stamped with one time. Its JSON
//! form is a fixed contract: see `docs/snapshot.md`.

mod elements;
mod names;
mod read;
mod resolve;
mod write;

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::{Map, Value};

use crate::{
    Assignment, BrokerId, CopyPauseRecord, HistoryEntry, Lifecycle, LoadReport, Marker, Millis,
    Policy, ShardKey, ShardReport, Stream, StreamKey, printable,
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
    /// A live, registered broker of weight 1 that says nothing else about itself, seen since then.
    pub fn live(since_ms: Millis) -> Self {
        Self {
            lifecycle: Lifecycle::Live,
            since_ms,
            last_seen_ms: since_ms,
            incarnation: 1,
            registered: true,
            stopping: false,
            zone: None,
            region: None,
            max_shards: None,
            weight: crate::broker::default_weight(),
            network_bytes_per_second: None,
            disk_bytes_per_second: None,
            load: None,
            extra: Map::new(),
        }
    }

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
    /// Operators' pauses of copies, those that ended lately as well.
    pub copy_pauses: Vec<CopyPauseRecord>,
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
            copy_pauses: Vec::new(),
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

    /// Why a broker's replica has halted, if it has. The broker's latest word counts, of whatever
    /// generation: what has halted says so once, and does not act on what comes after.
    pub fn halted(&self, shard: &ShardKey, broker: &BrokerId) -> Option<&str> {
        let of_broker = self.reports.get(shard)?.iter().filter(|r| r.broker == *broker);
        of_broker.max_by_key(|r| r.generation)?.halted_because()
    }

    /// Reads the JSON document, fills the defaults in, and checks it.
    pub fn parse(json: &[u8]) -> Result<Self, SnapshotError> {
        Self::read(json)
    }

    /// As [`parse`](Self::parse), from a file or a pipe and without holding its whole text. It is
    /// read in large pieces, so that the reader needs no buffer of its own.
    pub fn read(document: impl Read) -> Result<Self, SnapshotError> {
        read::read(document)
    }

    /// The JSON document of this snapshot, every default written out. Serialising the snapshot
    /// itself gives the same document, piece by piece.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("a snapshot is plain data")
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
        let (path, detail) = (path.into(), detail.into());
        Self { path: printable(&path), detail: printable(&detail) }
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
    fn numbers_are_read_as_they_were_written() {
        for percent in [94.527_069_553_952_23, 23.308_445_025_757_262, 12.088_995_980_580_641] {
            let json = format!(
                r#"{{"v":1,"as_of_ms":0,"streams":[],"brokers":[{{"id":"b",
                "load":{{"reported_at_ms":0,"cpu_percent":{percent}}}}}]}}"#
            );
            let out = Snapshot::parse(json.as_bytes()).unwrap().to_json();
            assert_eq!(out["brokers"][0]["load"]["cpu_percent"].to_string(), percent.to_string());
        }
    }

    #[test]
    fn shards_may_be_listed_in_any_order_but_once() {
        let read = |numbers: &[u32]| {
            let rows: Vec<String> = numbers
                .iter()
                .map(|n| format!(r#"{{"shard":"stream/d/s/{n}","leader":"b"}}"#))
                .collect();
            let json = format!(
                r#"{{"v":1,"as_of_ms":0,"brokers":[],"assignments":[{}],
                "streams":[{{"stream":"stream/d/s","shards":9}}]}}"#,
                rows.join(",")
            );
            Snapshot::parse(json.as_bytes())
        };
        assert_eq!(read(&[3, 1, 2]).unwrap(), read(&[1, 2, 3]).unwrap());
        let error = read(&[4, 5, 4, 2, 5]).unwrap_err().to_string();
        assert_eq!(error, "assignments[2].shard: 'stream/d/s/4' is there twice");
    }

    #[test]
    fn names_are_kept_once() {
        let json = br#"{"v":1,"as_of_ms":0,"brokers":[{"id":"b1"}],
            "streams":[{"stream":"stream/d/s","shards":2}],
            "assignments":[{"shard":"stream/d/s/0","leader":"b1"}]}"#;
        let s = Snapshot::parse(json).unwrap();
        let a = s.assignments.values().next().unwrap();
        let same = |a: &str, b: &str| std::ptr::eq(a, b);
        assert!(same(&a.shard.stream.name, &s.streams.keys().next().unwrap().name));
        assert!(same(
            a.leader.as_ref().unwrap().as_str(),
            s.brokers.keys().next().unwrap().as_str()
        ));
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
            (doc("", "").replace("\"v\":1,", ""), ".: missing field `v`"),
            (doc("", ",\"v\":1"), "v: the field is there twice"),
            (
                doc("", r#","assignments":[{"shard":"stream/d/s/0","leader":7}]"#),
                "assignments[0].leader: invalid type: integer `7`, expected a string at line 2",
            ),
            ("{".to_owned(), ".: the document ends"),
        ];
        for (json, expected) in cases {
            let error = Snapshot::parse(json.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
