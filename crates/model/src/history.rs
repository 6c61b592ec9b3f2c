//! The record of what moved, read back for the hourly limit and the cooldown.

use serde::{Deserialize, Serialize};

use crate::{BrokerId, Millis, MoveReason, ShardKey};

/// How a move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveOutcome {
    /// The destination leads, or was seated.
    CutOver,
    /// It was given up.
    GivenUp,
}

impl MoveOutcome {
    /// The word used in records and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CutOver => "cut_over",
            Self::GivenUp => "given_up",
        }
    }
}

/// One finished move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// When it ended, on the load manager's clock.
    pub at_ms: Millis,
    /// What moved.
    pub shard: ShardKey,
    /// From where.
    #[serde(default)]
    pub from: Option<BrokerId>,
    /// To where.
    #[serde(default)]
    pub to: Option<BrokerId>,
    /// Why.
    pub reason: MoveReason,
    /// How it ended.
    pub outcome: MoveOutcome,
}
