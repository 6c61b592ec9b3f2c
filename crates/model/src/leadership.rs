//! Who leads a service, and whether an operator has paused placement.

use serde::{Deserialize, Serialize};

use crate::{Millis, record_version};

/// Value of a leader key, written under the leader's lease. The key's create revision is the
/// leadership token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderRecord {
    /// Layout version.
    #[serde(default = "record_version")]
    pub v: u32,
    /// The instance's name.
    pub instance: String,
    /// `host:port` of its gRPC services.
    pub address: String,
    /// When it was elected, on its own clock.
    pub elected_at_ms: Millis,
}

/// Placement is paused: no balance move starts, no drain or restore starts a new copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseRecord {
    /// Layout version.
    #[serde(default = "record_version")]
    pub v: u32,
    /// Who paused it.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at_ms: Millis,
    /// When it lifts itself; never if none.
    #[serde(default)]
    pub until_ms: Option<Millis>,
}
