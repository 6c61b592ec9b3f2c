//! The document written: piece by piece from the snapshot as it lies.

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{BrokerView, SNAPSHOT_VERSION, Snapshot};
use crate::{BrokerId, Lifecycle, LoadReport, Marker, MarkerReason, Millis, ShardKey};

impl Serialize for Snapshot {
    /// Writes the document, every default written out.
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("v", &SNAPSHOT_VERSION)?;
        map.serialize_entry("as_of_ms", &self.as_of_ms)?;
        map.serialize_entry("first_registered_ms", &self.first_registered_ms)?;
        map.serialize_entry("paused", &self.paused)?;
        map.serialize_entry("elected_at_ms", &self.elected_at_ms)?;
        map.serialize_entry("policy", &self.policy)?;
        map.serialize_entry("brokers", &Rows(|| self.brokers.iter().map(BrokerRow::from)))?;
        map.serialize_entry("streams", &Rows(|| self.streams.values()))?;
        map.serialize_entry("unassigned", &Rows(|| self.unassigned.iter().map(MarkerRow::from)))?;
        map.serialize_entry("assignments", &Rows(|| self.assignments.values()))?;
        map.serialize_entry("reports", &Rows(|| self.reports.values().flatten()))?;
        map.serialize_entry("history", &self.history)?;
        map.serialize_entry("copy_pauses", &self.copy_pauses)?;
        for (name, value) in &self.extra {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// An array of what an iterator gives.
struct Rows<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for Rows<F> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut array = s.serialize_seq(None)?;
        (self.0)().try_for_each(|row| array.serialize_element(&row))?;
        array.end()
    }
}

#[derive(Serialize)]
struct BrokerRow<'a> {
    id: &'a BrokerId,
    lifecycle: Lifecycle,
    since_ms: Millis,
    last_seen_ms: Millis,
    incarnation: u64,
    registered: bool,
    stopping: bool,
    zone: Option<&'a str>,
    region: Option<&'a str>,
    max_shards: Option<u32>,
    weight: f64,
    network_bytes_per_second: Option<u64>,
    disk_bytes_per_second: Option<u64>,
    load: Option<&'a LoadReport>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

impl<'a> From<(&'a BrokerId, &'a BrokerView)> for BrokerRow<'a> {
    fn from((id, b): (&'a BrokerId, &'a BrokerView)) -> Self {
        Self {
            id,
            lifecycle: b.lifecycle,
            since_ms: b.since_ms,
            last_seen_ms: b.last_seen_ms,
            incarnation: b.incarnation,
            registered: b.registered,
            stopping: b.stopping,
            zone: b.zone.as_deref(),
            region: b.region.as_deref(),
            max_shards: b.max_shards,
            weight: b.weight,
            network_bytes_per_second: b.network_bytes_per_second,
            disk_bytes_per_second: b.disk_bytes_per_second,
            load: b.load.as_ref(),
            extra: &b.extra,
        }
    }
}

#[derive(Serialize)]
struct MarkerRow<'a> {
    shard: &'a ShardKey,
    reason: MarkerReason,
    from_broker: Option<&'a BrokerId>,
    to_broker: Option<&'a BrokerId>,
}

impl<'a> From<(&'a ShardKey, &'a Marker)> for MarkerRow<'a> {
    fn from((shard, m): (&'a ShardKey, &'a Marker)) -> Self {
        Self {
            shard,
            reason: m.reason,
            from_broker: m.from_broker.as_ref(),
            to_broker: m.to_broker.as_ref(),
        }
    }
}
