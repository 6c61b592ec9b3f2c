//! Streams and caches, and the markers of shards that wait for a leader.

use serde::{Deserialize, Serialize};

use crate::{BrokerId, Millis, StreamKey, record_version};

/// Most shards that one stream may have.
pub const MAX_SHARDS: u32 = 1_000_000;

/// Highest replication factor.
pub const MAX_REPLICATION_FACTOR: u32 = 15;

/// A sharded resource. An unsharded topic is a stream of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Layout version.
    #[serde(default = "record_version", skip_serializing_if = "is_one")]
    pub v: u32,
    /// Its key.
    pub stream: StreamKey,
    /// How many shards.
    pub shards: u32,
    /// Voting copies of each shard, the leader included.
    #[serde(default = "one")]
    pub replication_factor: u32,
    /// A lost leader of a durable shard is waited for; of another, replaced by an empty one.
    #[serde(default = "yes")]
    pub durable: bool,
    /// When it was created.
    #[serde(default)]
    pub created_at_ms: Option<Millis>,
    /// The only region it may be placed in.
    #[serde(default)]
    pub region: Option<String>,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

fn is_one(v: &u32) -> bool {
    *v == 1
}

/// Why a shard waits for a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkerReason {
    /// It was just created.
    #[default]
    New,
    /// Its leader was lost.
    Failover,
    /// It was unloaded by hand.
    Unload,
    /// It is being rebalanced.
    Rebalance,
}

impl MarkerReason {
    /// The word used in records and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Failover => "failover",
            Self::Unload => "unload",
            Self::Rebalance => "rebalance",
        }
    }
}

/// A shard that waits to be placed. The shard is in the key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Marker {
    /// Why.
    #[serde(default)]
    pub reason: MarkerReason,
    /// The broker that it leaves, and must not come back to.
    #[serde(default)]
    pub from_broker: Option<BrokerId>,
    /// Where it should go if that broker is a legal target.
    #[serde(default)]
    pub to_broker: Option<BrokerId>,
}
