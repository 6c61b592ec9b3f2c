//! Facts about shards, written by their observer: replica reports and copy progress.

use serde::{Deserialize, Serialize};

use crate::{BrokerId, Generation, Millis, MoveReason, ShardKey, record_version};

/// What a replica is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Leads, and has not yet committed the start of its generation.
    Opening,
    /// Leads and serves.
    Serving,
    /// Leads, accepts nothing more, ships what it accepted.
    Fencing,
    /// Fenced, and its log stopped growing with the destination level.
    Drained,
    /// Follows as a voter.
    Following,
    /// Is being copied in.
    Copying,
    /// Cannot go on; `halted` says why.
    Halted,
}

impl Phase {
    /// The word used in records, metrics and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Serving => "serving",
            Self::Fencing => "fencing",
            Self::Drained => "drained",
            Self::Following => "following",
            Self::Copying => "copying",
            Self::Halted => "halted",
        }
    }
}

/// What one broker says about one shard. Counts only at the assignment's generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardReport {
    /// Who reports.
    pub broker: BrokerId,
    /// About what.
    pub shard: ShardKey,
    /// The generation that the report is about.
    pub generation: Generation,
    /// What the replica is doing.
    #[serde(default)]
    pub phase: Option<Phase>,
    /// Holds everything that is committed, and the leader counts it from here on.
    #[serde(default)]
    pub caught_up: bool,
    /// Records behind the leader; unknown until the leader counts this replica.
    #[serde(default)]
    pub lag_records: Option<u64>,
    /// The log stopped growing at the fenced generation, destination level.
    #[serde(default)]
    pub drained: bool,
    /// Why it cannot go on.
    #[serde(default)]
    pub halted: Option<String>,
    /// Offset after the last record.
    #[serde(default)]
    pub log_end: Option<u64>,
    /// Is to lead, could not open its log or had halted, and will not act in this generation whatever
    /// becomes of that: nothing was acknowledged in it and nothing will be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declined: bool,
}

impl ShardReport {
    /// Why the replica cannot go on, if it has halted, or declined.
    pub fn halted_because(&self) -> Option<&str> {
        let halted = self.phase == Some(Phase::Halted);
        let declined = self.declined.then_some("it declined this generation");
        self.halted.as_deref().or(halted.then_some("no reason given")).or(declined)
    }

    /// Whether the log of a replica that declined can be opened again, so that it may lead another
    /// generation.
    pub fn is_mended(&self) -> bool {
        self.declined && self.halted.is_none() && self.phase != Some(Phase::Halted)
    }
}

/// A report as it is stored, under the agent's lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportRecord {
    /// Layout version.
    #[serde(default = "record_version")]
    pub v: u32,
    /// The report.
    #[serde(flatten)]
    pub report: ShardReport,
    /// The incarnation that reports.
    #[serde(default)]
    pub incarnation: u64,
    /// When, on the agent's clock.
    #[serde(default)]
    pub at_ms: Millis,
}

/// What a copy is for; the order is the order of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyClass {
    /// The shard cannot serve until the copy completes.
    Unavailable,
    /// One live replica is left.
    LastCopy,
    /// Short of replicas.
    UnderReplicated,
    /// A broker is leaving.
    Drain,
    /// The shard spans fewer zones than it could.
    Spread,
    /// Evenness.
    Balance,
    /// Work put off during a recovery.
    Maintenance,
}

impl From<MoveReason> for CopyClass {
    /// Of a move of a shard that lacks nothing; a restore is never less than a repair.
    fn from(reason: MoveReason) -> Self {
        match reason {
            MoveReason::Drain => Self::Drain,
            MoveReason::Spread => Self::Spread,
            MoveReason::Restore => Self::UnderReplicated,
            MoveReason::StreamBalance
            | MoveReason::TotalBalance
            | MoveReason::Load
            | MoveReason::Disk
            | MoveReason::Operator => Self::Balance,
        }
    }
}

impl CopyClass {
    /// Every class, first served first.
    pub const ALL: [Self; 7] = [
        Self::Unavailable,
        Self::LastCopy,
        Self::UnderReplicated,
        Self::Drain,
        Self::Spread,
        Self::Balance,
        Self::Maintenance,
    ];

    /// Of the loss of replicas: `live` of so many `voters` are left. With half of them gone nothing
    /// can be committed, for the leader is one of them.
    pub fn of_loss(voters: usize, live: usize) -> Self {
        if live * 2 <= voters {
            Self::Unavailable
        } else if live <= 1 {
            Self::LastCopy
        } else {
            Self::UnderReplicated
        }
    }

    /// Of a copy made for `reason`: what the reason says, unless it adds a replica to a shard that
    /// is short of live ones; then what is left of the shard. Losing another replica so raises a
    /// copy that runs already. A copy that replaces a live replica adds none.
    pub fn of_copy(reason: MoveReason, adds_replica: bool, voters: usize, live: usize) -> Self {
        if adds_replica && live < voters {
            Self::of_loss(voters, live)
        } else if adds_replica && live == 1 && reason == MoveReason::Restore {
            Self::LastCopy
        } else {
            Self::from(reason)
        }
    }

    /// The word used in records, metrics and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::LastCopy => "last_copy",
            Self::UnderReplicated => "under_replicated",
            Self::Drain => "drain",
            Self::Spread => "spread",
            Self::Balance => "balance",
            Self::Maintenance => "maintenance",
        }
    }

    /// Whether it restores lost copies.
    pub fn is_repair(self) -> bool {
        self <= Self::UnderReplicated
    }
}

impl std::str::FromStr for CopyClass {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|class| class.as_str() == word).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("copy class '{word}' is not valid: expected one of {words}")
        })
    }
}

/// Progress of a copy, written by the migrator, coalesced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRecord {
    /// Layout version.
    #[serde(default = "record_version")]
    pub v: u32,
    /// The shard.
    pub shard: ShardKey,
    /// The generation of the assignment that the copy serves.
    pub generation: Generation,
    /// What it is for.
    pub class: CopyClass,
    /// Where the bytes come from.
    pub source: Option<BrokerId>,
    /// Where they go.
    pub destination: BrokerId,
    /// Bytes verified at the destination.
    pub bytes_done: u64,
    /// Bytes to copy in all; 0 while nobody has told.
    pub bytes_total: u64,
    /// Recent rate, bytes per second.
    pub bytes_per_second: u64,
    /// It stands still because others go first or an operator holds it, not because it is stuck.
    #[serde(default)]
    pub waits: bool,
    /// When, on the migrator's clock.
    pub at_ms: Millis,
}

/// An operator's cap on one broker's copies, written by the migrator's leader and kept until it is
/// lifted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRecord {
    /// Layout version.
    #[serde(default = "record_version")]
    pub v: u32,
    /// The broker.
    pub broker: BrokerId,
    /// Bytes per second in each direction.
    pub bytes_per_second: u64,
    /// When, on the migrator's clock.
    #[serde(default)]
    pub at_ms: Millis,
}
