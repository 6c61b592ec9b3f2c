//! What a pass decides for one shard: one guarded write, a wait, or a refusal. All three are data
//! with words that metrics, the command line and other tools rely on.

use std::fmt;

use evenkeel_model::{
    Assignment, BrokerId, CopyPauseRecord, HistoryEntry, MarkerReason, MoveReason, ShardKey,
};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The one guarded write that a decision makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Names the first leader and followers of a shard.
    Place,
    /// Makes a caught-up follower the leader of a shard that lost its own.
    Promote,
    /// Names the destination of a leader move; the copy starts.
    Stage,
    /// Stops the leader, because the destination is close enough.
    Fence,
    /// Makes the destination the leader.
    CutOver,
    /// Makes a joiner a voting follower.
    Seat,
    /// Starts the copy that replaces a follower which could stay.
    Reseat,
    /// Starts the copy that replaces a lost or missing replica.
    Restore,
    /// Drops a destination that can no longer be used.
    Abandon,
    /// Gives a move up because it took too long.
    TimedOut,
    /// Gives a restore up because its copy stood still.
    Stalled,
    /// Ends a move because an operator said so.
    Cancel,
    /// Gives a fenced shard back to its old leader.
    Retake,
    /// Takes a halted replica out of its set, so that its broker can be copied to anew.
    Drop,
}

impl Step {
    /// Every step, in the order of the documents.
    pub const ALL: [Self; 14] = [
        Self::Place,
        Self::Promote,
        Self::Stage,
        Self::Fence,
        Self::CutOver,
        Self::Seat,
        Self::Reseat,
        Self::Restore,
        Self::Abandon,
        Self::TimedOut,
        Self::Stalled,
        Self::Cancel,
        Self::Retake,
        Self::Drop,
    ];

    /// The word used in output and as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Place => "place",
            Self::Promote => "promote",
            Self::Stage => "stage",
            Self::Fence => "fence",
            Self::CutOver => "cut_over",
            Self::Seat => "seat",
            Self::Reseat => "reseat",
            Self::Restore => "restore",
            Self::Abandon => "abandon",
            Self::TimedOut => "timed_out",
            Self::Stalled => "stalled",
            Self::Cancel => "cancel",
            Self::Retake => "retake",
            Self::Drop => "drop",
        }
    }
}

/// Why a write is made: the word of the shard's marker, or of its move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The shard has no leader.
    Marker(MarkerReason),
    /// The shard is in a move.
    Move(MoveReason),
}

impl Reason {
    /// The word used in output and as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Marker(reason) => reason.as_str(),
            Self::Move(reason) => reason.as_str(),
        }
    }
}

/// What something waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitingOn {
    /// The destination or joiner is not close enough yet.
    CopyBehind,
    /// The fenced leader has not reported that it drained.
    LeaderStopping,
    /// The cluster's limit on moves or repairs is reached.
    MoveSlots,
    /// A broker's limit on copies is reached.
    BrokerSlots,
    /// Placement is paused.
    Paused,
    /// The cluster is young and brokers may still register.
    Settling,
    /// A rest between moves: back-off, check interval, hourly limit, cooldown.
    Cooldown,
    /// A lost follower may still come back.
    RestoreDelay,
    /// Many brokers vanished at once.
    MassLoss,
    /// Only the lost broker ever held the shard.
    OwnerUnavailable,
    /// An operator holds the copy.
    CopyPaused,
}

impl WaitingOn {
    /// Every word, in the order of the documents.
    pub const ALL: [Self; 11] = [
        Self::CopyBehind,
        Self::LeaderStopping,
        Self::MoveSlots,
        Self::BrokerSlots,
        Self::Paused,
        Self::Settling,
        Self::Cooldown,
        Self::RestoreDelay,
        Self::MassLoss,
        Self::OwnerUnavailable,
        Self::CopyPaused,
    ];

    /// The word used in output and as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CopyBehind => "copy_behind",
            Self::LeaderStopping => "leader_stopping",
            Self::MoveSlots => "move_slots",
            Self::BrokerSlots => "broker_slots",
            Self::Paused => "paused",
            Self::Settling => "settling",
            Self::Cooldown => "cooldown",
            Self::RestoreDelay => "restore_delay",
            Self::MassLoss => "mass_loss",
            Self::OwnerUnavailable => "owner_unavailable",
            Self::CopyPaused => "copy_paused",
        }
    }
}

/// Why something cannot happen at all in this cluster as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusedBecause {
    /// No live broker outside the set.
    NoLiveBroker,
    /// Every live broker that could is at its `max_shards`.
    AllFull,
    /// The leader is lost and no replica is known to hold everything.
    NoCaughtUpReplica,
    /// No live broker in the stream's region.
    NoBrokerInRegion,
}

impl RefusedBecause {
    /// Every word, in the order of the documents.
    pub const ALL: [Self; 4] =
        [Self::NoLiveBroker, Self::AllFull, Self::NoCaughtUpReplica, Self::NoBrokerInRegion];

    /// The word used in output and as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoLiveBroker => "no_live_broker",
            Self::AllFull => "all_full",
            Self::NoCaughtUpReplica => "no_caught_up_replica",
            Self::NoBrokerInRegion => "no_broker_in_region",
        }
    }
}

/// A write: the whole assignment, and what the same transaction does beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Which step it is.
    pub step: Step,
    /// Why.
    pub reason: Reason,
    /// Old leader, or the replaced follower.
    pub from: Option<BrokerId>,
    /// New leader, or the joiner.
    pub to: Option<BrokerId>,
    /// The assignment to write; its generation is one above the one planned from.
    pub next: Assignment,
    /// Whether the shard has a marker that this write removes.
    pub clears_marker: bool,
    /// The history entry that this write makes.
    pub history: Option<HistoryEntry>,
    /// Why this choice, as a sentence.
    pub detail: String,
}

/// Why not yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// What for.
    pub on: WaitingOn,
    /// The same as a sentence with names and numbers.
    pub detail: String,
    /// The operator's pause that holds the copy, if one does.
    pub pause: Option<CopyPauseRecord>,
}

impl Waiting {
    pub(crate) fn new(on: WaitingOn, detail: String) -> Self {
        Self { on, detail, pause: None }
    }

    /// A copy that a pause holds.
    pub(crate) fn for_pause(pause: &CopyPauseRecord, detail: String) -> Self {
        Self { pause: Some(pause.clone()), ..Self::new(WaitingOn::CopyPaused, detail) }
    }
}

/// Why not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What stands in the way.
    pub because: RefusedBecause,
    /// The same as a sentence with names and numbers.
    pub detail: String,
}

/// What a pass decided for one shard.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Write this.
    Write(Box<Write>),
    /// Not yet.
    Wait(Waiting),
    /// Not at all.
    Refuse(Refusal),
}

impl Decision {
    /// The write, if it is one.
    pub fn write(&self) -> Option<&Write> {
        match self {
            Self::Write(write) => Some(write),
            Self::Wait(_) | Self::Refuse(_) => None,
        }
    }
}

/// A decision with its shard.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardDecision {
    /// The shard.
    pub shard: ShardKey,
    /// What was decided for it.
    pub decision: Decision,
}

macro_rules! words {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.as_str())
            }
        }
    )*};
}

words!(Step, Reason, WaitingOn, RefusedBecause);

impl Serialize for ShardDecision {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("shard", &self.shard)?;
        match &self.decision {
            Decision::Write(write) => {
                map.serialize_entry("decision", "write")?;
                map.serialize_entry("step", &write.step)?;
                map.serialize_entry("reason", &write.reason)?;
                map.serialize_entry("from", &write.from)?;
                map.serialize_entry("to", &write.to)?;
                map.serialize_entry("next", &write.next)?;
                map.serialize_entry("detail", &write.detail)?;
            }
            Decision::Wait(waiting) => {
                map.serialize_entry("decision", "wait")?;
                map.serialize_entry("waiting", &waiting.on)?;
                map.serialize_entry("detail", &waiting.detail)?;
            }
            Decision::Refuse(refusal) => {
                map.serialize_entry("decision", "refuse")?;
                map.serialize_entry("refusal", &refusal.because)?;
                map.serialize_entry("detail", &refusal.detail)?;
            }
        }
        map.end()
    }
}

impl fmt::Display for ShardDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |b: &Option<BrokerId>| b.as_ref().map_or("-".to_owned(), ToString::to_string);
        match &self.decision {
            Decision::Write(w) => {
                write!(f, "{} {} ", w.step, self.shard)?;
                write!(f, "{} -> {} ({})", name(&w.from), name(&w.to), w.reason)?;
                if w.detail.is_empty() { Ok(()) } else { write!(f, ": {}", w.detail) }
            }
            Decision::Wait(w) => write!(f, "wait {} for {}: {}", self.shard, w.on, w.detail),
            Decision::Refuse(r) => write!(f, "refuse {} {}: {}", self.shard, r.because, r.detail),
        }
    }
}
