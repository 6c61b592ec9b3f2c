//! Brokers: what an agent registers and what the load manager keeps about it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{BrokerId, Millis, record_version};

/// What a broker may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifecycle {
    /// Serves and takes shards.
    #[default]
    Live,
    /// Serves, gives its shards away, takes none.
    Draining,
    /// Its lease expired without a farewell.
    Down,
    /// It said farewell.
    Left,
}

impl Lifecycle {
    /// The word used in records, metrics and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Draining => "draining",
            Self::Down => "down",
            Self::Left => "left",
        }
    }
}

/// Default link, in bytes per second, of a broker that declares none: 1 Gbit/s.
pub const DEFAULT_NETWORK_BYTES_PER_SECOND: u64 = 125_000_000;

/// Default disk bandwidth, in bytes per second, of a broker that declares none.
pub const DEFAULT_DISK_BYTES_PER_SECOND: u64 = 200_000_000;

/// Written by a broker's agent under its lease: the broker is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    /// Layout version.
    #[serde(default = "record_version")]
    pub v: u32,
    /// The broker.
    pub broker: BrokerId,
    /// `host:port` of its gRPC services.
    pub address: String,
    /// Rises with every start of the broker.
    pub incarnation: u64,
    /// Failure domain.
    #[serde(default)]
    pub zone: Option<String>,
    /// Region.
    #[serde(default)]
    pub region: Option<String>,
    /// Free labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Most shards it may hold in any role.
    #[serde(default)]
    pub max_shards: Option<u32>,
    /// Effective vCPUs, at least 1.
    #[serde(default = "default_weight")]
    pub weight: f64,
    /// Link, bytes per second.
    #[serde(default)]
    pub network_bytes_per_second: Option<u64>,
    /// Disk bandwidth, bytes per second.
    #[serde(default)]
    pub disk_bytes_per_second: Option<u64>,
    /// The agent asks to be drained: it was told to stop and serves until it leads nothing.
    #[serde(default)]
    pub stopping: bool,
    /// When this incarnation registered, on the agent's clock.
    #[serde(default)]
    pub registered_at_ms: Millis,
}

/// The weight of a broker that declares none.
pub fn default_weight() -> f64 {
    1.0
}

/// Written by the load manager and kept: what became of a broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Layout version.
    #[serde(default = "record_version")]
    pub v: u32,
    /// The broker.
    pub broker: BrokerId,
    /// What it may be used for.
    pub lifecycle: Lifecycle,
    /// Since when, on the load manager's clock.
    pub since_ms: Millis,
    /// The incarnation that the lifecycle speaks of.
    pub incarnation: u64,
    /// When the broker was first seen.
    pub first_registered_ms: Millis,
    /// When its registration was last seen, as far as it matters (down and left).
    #[serde(default)]
    pub last_seen_ms: Option<Millis>,
    /// The zone it last registered, so that zones are still counted when it is gone.
    #[serde(default)]
    pub zone: Option<String>,
    /// It was being drained when it went down: the same incarnation goes on draining if it returns.
    #[serde(default)]
    pub drain_asked: bool,
}
