//! What replicas of a shard say to each other, and what goes in and out of the state machine.

use bytes::Bytes;
use evenkeel_model::{Assignment, BrokerId, ShardReport};

use crate::log::SyncJob;
use crate::record::{Position, Record, Term};

/// Asked of another replica. Each has exactly one answer; requests may be lost, late or repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Never accept an older term again.
    Promise {
        /// The asker's term.
        term: Term,
        /// The asker.
        leader: BrokerId,
    },
    /// Take these records.
    Append(Append),
    /// Hand out records, committed or not. Answered by whoever promised this very term.
    Fetch {
        /// The asker's term.
        term: Term,
        /// First offset wanted.
        from: u64,
        /// Term of the asker's record before it.
        prev_term: Term,
        /// At most so many bytes of frames, but one record.
        max_bytes: usize,
    },
}

/// Records from a leader, or none to probe and to tell what is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// The leader's term.
    pub term: Term,
    /// The leader.
    pub leader: BrokerId,
    /// Offset that the records follow.
    pub prev_end: u64,
    /// Term of the record before it.
    pub prev_term: Term,
    /// Consecutive records from `prev_end`.
    pub records: Vec<Record>,
    /// Everything before this offset is committed.
    pub committed: u64,
    /// The leader's end, for the lag.
    pub leader_end: u64,
    /// A log that matches up to here holds everything committed; `u64::MAX` while unknown.
    pub level: u64,
    /// The leader counts this member, or this learner, from here on.
    pub counted: bool,
    /// The leader's log begins at `prev_end`: one that does not match there begins anew at it.
    pub from_start: bool,
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To a promise.
    Promise {
        /// Whether it was given.
        granted: bool,
        /// The highest term promised.
        promised: Term,
        /// How far the log goes.
        position: Position,
        /// The log is known to have been whole, so the promise counts.
        trusted: bool,
    },
    /// To an append.
    Append {
        /// The records are there, durably.
        accepted: bool,
        /// The highest term promised.
        promised: Term,
        /// If accepted, the log is the leader's up to here; durable.
        matched: u64,
        /// Offset after the last record, whether it matches or not.
        end: u64,
        /// The log is level with what is committed, and that is remembered.
        level: bool,
        /// On a mismatch: try from here.
        retry_from: Option<u64>,
        /// Why it was not accepted, for people.
        detail: String,
    },
    /// To a fetch.
    Fetch {
        /// Consecutive records from the offset asked for.
        records: Vec<Record>,
        /// On a mismatch: try from here.
        retry_from: Option<u64>,
        /// The highest term promised; another than the asker's is a refusal.
        promised: Term,
        /// The log begins behind what was asked for: there, after a record of this term.
        begins: Option<Position>,
    },
}

/// A record on its way into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// 0 for no deduplication.
    pub producer: u64,
    /// The producer's own number of it.
    pub sequence: u64,
    /// What the content is the newest value of; at most [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES).
    pub key: Option<Bytes>,
    /// The content; with a key, none deletes the key.
    pub payload: Bytes,
}

/// Why a proposal was not acknowledged. Nothing was written unless it says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another leads.
    #[error("this replica does not lead the shard")]
    NotLeading,
    /// The generation start is not committed yet.
    #[error("the leader is still opening")]
    Opening,
    /// A move is being finished.
    #[error("the leader is fenced")]
    Fenced,
    /// Too much waits to be committed.
    #[error("too many records wait to be committed")]
    Overloaded,
    /// No room; it may work later.
    #[error("{0}")]
    DiskFull(String),
    /// It can never be written.
    #[error("{0}")]
    Invalid(String),
    /// The replica cannot go on.
    #[error("the replica halted: {0}")]
    Halted(String),
    /// It was appended, and leadership ended before it was known to be committed.
    #[error("leadership ended before the records were known to be committed")]
    Uncertain,
}

/// What happens to a replica.
#[derive(Debug)]
pub enum Event {
    /// The assignment to act on. It names this broker.
    Assigned(Assignment),
    /// Records to write.
    Propose {
        /// Names the proposal in the actions that answer it.
        id: u64,
        /// Wall-clock time for the records, milliseconds since the Unix epoch.
        timestamp_ms: i64,
        /// The records.
        drafts: Vec<Draft>,
    },
    /// As leader: give up every record before `offset`, on all replicas.
    GiveUpBefore {
        /// A segment's first offset; ignored if the log begins there, or if it is not committed.
        offset: u64,
        /// Wall-clock time for the record, milliseconds since the Unix epoch.
        timestamp_ms: i64,
    },
    /// A replica asks.
    Asked {
        /// Names the request in the action that answers it.
        reply: u64,
        /// What.
        request: Request,
    },
    /// A replica answered.
    Answered {
        /// Which.
        from: BrokerId,
        /// The id of the action that sent the request.
        id: u64,
        /// `None` if it could not be reached or knows nothing of the shard.
        answer: Option<Answer>,
    },
    /// A sync with this ticket ran.
    Synced(u64),
    /// A sync failed; the log cannot be trusted to be on disk.
    SyncFailed(String),
    /// Time passed.
    Tick,
}

/// What a replica wants done, in order.
pub enum Action {
    /// Send a request; answer with [`Event::Answered`].
    Send {
        /// To whom.
        to: BrokerId,
        /// Names the request.
        id: u64,
        /// What.
        request: Request,
    },
    /// Answer a request.
    Reply {
        /// As named by [`Event::Asked`].
        reply: u64,
        /// The answer.
        answer: Answer,
    },
    /// Sync; answer with [`Event::Synced`].
    Sync(SyncJob),
    /// The proposal's records are committed.
    Committed {
        /// The proposal.
        id: u64,
        /// One offset for each record; a repetition has the first one's.
        offsets: Vec<u64>,
    },
    /// The proposal is not acknowledged.
    Refused {
        /// The proposal.
        id: u64,
        /// Why.
        refusal: Refusal,
    },
    /// Something that the cluster's planner should know has changed.
    Report(ShardReport),
    /// One line for the log.
    Note(String),
}

/// What came of an event.
#[derive(Default)]
pub struct Output {
    /// In the order in which they must be done.
    pub actions: Vec<Action>,
    /// Send a tick no later than this, milliseconds on the caller's clock.
    pub wake_at: Option<u64>,
}
