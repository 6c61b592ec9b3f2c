//! The load report of a broker.

use serde::{Deserialize, Serialize};

use crate::{Millis, ShardKey, record_version};

/// What one led shard does. Rates are per second, smoothed by the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardLoad {
    /// The shard.
    pub shard: ShardKey,
    /// Messages published per second.
    #[serde(default)]
    pub messages_per_second: f64,
    /// Bytes in and out per second.
    #[serde(default)]
    pub bytes_per_second: f64,
    /// Connected producers.
    #[serde(default)]
    pub producers: u32,
    /// Connected consumers.
    #[serde(default)]
    pub consumers: u32,
    /// Subscriptions.
    #[serde(default)]
    pub subscriptions: u32,
    /// Messages not consumed yet.
    #[serde(default)]
    pub backlog: u64,
    /// Bytes on disk.
    #[serde(default)]
    pub size_bytes: u64,
    /// Offset after the last record.
    #[serde(default)]
    pub log_end: u64,
}

/// Written by a broker's agent, by default every 30 s. A missing value is unknown, not idle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Layout version.
    #[serde(default = "record_version")]
    pub v: u32,
    /// When it was taken.
    pub reported_at_ms: Millis,
    /// The incarnation that took it.
    #[serde(default)]
    pub incarnation: u64,
    /// 0–100 of the CPU that the broker may use.
    #[serde(default)]
    pub cpu_percent: Option<f64>,
    /// 0–100 of the memory that the broker may use.
    #[serde(default)]
    pub memory_percent: Option<f64>,
    /// 0–100 of the room on the disk that holds the logs.
    #[serde(default)]
    pub disk_used_percent: Option<f64>,
    /// Bytes per second read and written.
    #[serde(default)]
    pub disk_io_bytes_per_second: Option<f64>,
    /// Bytes per second received and sent.
    #[serde(default)]
    pub network_io_bytes_per_second: Option<f64>,
    /// The shards it leads.
    #[serde(default)]
    pub shards: Vec<ShardLoad>,
}
