//! The border between the agent and what holds the shards' bytes.
//!
//! The agent says what is assigned; the host opens, follows, fences, drains, copies and closes.
//! Offsets count records from 0, and a log may begin later, its oldest records given up; a host's
//! own records (such as a generation's start) take offsets too and are never handed to clients.
//!
//! **Invariant:** the host never leads a shard without an assignment that names this broker, nor
//! while [`Surroundings::is_alive`] is false.

pub mod builtin;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_model::{
    Assignment, BrokerId, BrokerShard, Generation, Millis, Phase, Role, ShardKey, ShardReport,
};
use evenkeel_runtime::grpc::Server;
use evenkeel_runtime::{Clock, Network};
use tokio::sync::{mpsc, watch};

use crate::config::LogConfig;
use crate::maintenance::admission::Admission;

/// What the host asks of the agent around it.
pub trait Surroundings: Send + Sync + 'static {
    /// Whether this broker's lease is provably alive now. A leader that is not alive neither
    /// accepts nor acknowledges.
    fn is_alive(&self) -> bool;
    /// `host:port` of a broker's services, if it is registered.
    fn address_of(&self, broker: &BrokerId) -> Option<String>;
}

/// What a host is given at its start.
#[derive(Clone)]
pub struct HostContext {
    /// This broker.
    pub broker: BrokerId,
    /// The host's own directory; the agent keeps others out of it.
    pub data_dir: PathBuf,
    /// Settings of its logs.
    pub log: LogConfig,
    /// Time of day, for the records.
    pub clock: Clock,
    /// To other brokers.
    pub network: Network,
    /// The agent around it.
    pub surroundings: Arc<dyn Surroundings>,
    /// Where its reports go.
    pub reports: ReportEdges,
    /// Passed by each step of its background work.
    pub maintenance: Admission,
}

/// A host that is ready to be told.
pub struct OpenHost {
    /// The host.
    pub host: Arc<dyn ShardHost>,
    /// Adds the services that its peers call, such as replication.
    pub serve: Box<dyn FnOnce(Server) -> Server + Send>,
}

/// Edges of the shards' reports, in order for each shard. The agent writes the latest of each.
pub type ReportEdges = mpsc::UnboundedSender<ShardReport>;

/// A record on its way in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// What the payload is the newest value of.
    pub key: Option<Bytes>,
    /// The client's bytes; with a key, none deletes the key.
    pub payload: Bytes,
    /// 0: repetitions are not looked for.
    pub producer_id: u64,
    /// Rises by one with each record of a producer to a shard.
    pub sequence: u64,
}

/// A committed record of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedRecord {
    /// Where it is.
    pub offset: u64,
    /// When its leader took it.
    pub timestamp_ms: Millis,
    /// What the payload is the newest value of.
    pub key: Option<Bytes>,
    /// The client's bytes; with a key, none deletes the key.
    pub payload: Bytes,
    /// Where it was before, if it was written again by a compaction: who read it there need not
    /// read it here.
    pub rewrites: Option<u64>,
    /// Its producer, 0 if none was named.
    pub producer_id: u64,
    /// Its place among the producer's records.
    pub sequence: u64,
}

/// Records that are committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// One for each record, in order. A repeated record has the offset of the first.
    pub offsets: Vec<u64>,
    /// The generation that committed them.
    pub generation: Generation,
}

/// Why a publish was not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// This broker does not lead the shard. Nothing was written.
    #[error("this broker does not lead the shard")]
    NotLeading,
    /// The shard is fenced for a move. Nothing was written.
    #[error("the shard is being handed over")]
    Fenced,
    /// This broker is to lead and cannot serve yet, or its lease is not provably alive. Nothing
    /// was written.
    #[error("the shard's leader does not serve yet: {0}")]
    NotServing(String),
    /// Too much is waiting to be committed. Nothing was written.
    #[error("too many records wait to be committed")]
    Overloaded,
    /// The disk is full. Nothing was written.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// The request cannot be stored, such as a record above the size limit. Nothing was written.
    #[error("{0}")]
    Invalid(String),
    /// The records were appended and leadership ended before they were known to be committed:
    /// they may or may not be there.
    #[error("leadership ended before the records were known to be committed")]
    Uncertain,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadBatch {
    /// Committed records of clients, in order.
    pub records: Vec<CommittedRecord>,
    /// Where to read on; past the host's own records, at most the committed end.
    pub next_offset: u64,
}

/// Why a read or a copy step failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// This broker does not hold the shard.
    #[error("this broker does not hold the shard")]
    NotHeld,
    /// A newer generation is known here.
    #[error("stale: generation {given}, and {known} is known here")]
    Stale {
        /// What the request named.
        given: Generation,
        /// What is known.
        known: Generation,
    },
    /// The destination's log and the source's are not the same up to the start offset.
    #[error("the copy diverges from its source before offset {0}")]
    Diverged(u64),
    /// The records are older than what is kept.
    #[error("record {asked} was given up: the log begins at {first}")]
    BeforeStart {
        /// What was asked for.
        asked: u64,
        /// The first record there is.
        first: u64,
    },
    /// A source knows fewer records to be committed than the destination has, as after a restart.
    #[error("only {0} records are known to be committed here, fewer than are copied already")]
    Behind(u64),
    /// A copy came to a replica that is no learner, or that its leader feeds already.
    #[error("this replica takes no copy: it is no learner, or its leader feeds it already")]
    TakesNoCopy,
    /// The frames do not follow the log's end, or their checksums fail.
    #[error("unusable frames: {0}")]
    BadFrames(String),
    /// The disk is full or fails.
    #[error("storage: {0}")]
    Storage(String),
}

/// Where a replica stands; the last value of a watch is the truth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// What this broker is to the shard.
    pub role: Role,
    /// The assignment that is acted on.
    pub assignment: Arc<Assignment>,
    /// What the replica is doing. From `Fencing` on, `log_end` does not grow at this generation.
    pub phase: Phase,
    /// Offset after the last committed record, as far as this replica knows.
    pub committed: u64,
    /// Offset after the last record.
    pub log_end: u64,
}

/// Counts since the host started, for load reports and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardCounters {
    /// The shard.
    pub shard: ShardKey,
    /// Whether this broker leads it.
    pub leads: bool,
    /// Records published here.
    pub records_in: u64,
    /// Bytes of records published here.
    pub bytes_in: u64,
    /// Bytes of records read here by clients.
    pub bytes_out: u64,
    /// Bytes on disk.
    pub size_bytes: u64,
    /// Offset after the last record.
    pub log_end: u64,
    /// Records that each follower lacks, where this broker leads.
    pub follower_lag: Vec<(BrokerId, u64)>,
}

/// Encoded committed records of a copy's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyChunk {
    /// Encoded log records, checksums included.
    pub frames: Bytes,
    /// Offset after the last of them.
    pub end_offset: u64,
    /// The source's committed end.
    pub committed: u64,
    /// Bytes from `end_offset` to the committed end.
    pub bytes_remaining: u64,
}

/// A range's checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeDigest {
    /// CRC32C over the encoded records.
    pub crc32c: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Offset after the last record that was counted.
    pub to_offset: u64,
}

/// Where a copy stands at its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyPosition {
    /// Where the log begins.
    pub start_offset: u64,
    /// Offset after the last durable record.
    pub end_offset: u64,
    /// That record's generation, 0 if there is none.
    pub last_generation: Generation,
    /// Where the records begin that were copied and not compared with their source yet.
    pub copied_from: Option<u64>,
}

/// What a leader had when it drained to hand its shard over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandedOver {
    /// The fenced generation.
    pub generation: Generation,
    /// Offset after the last record, all of them committed.
    pub log_end: u64,
}

/// Holds shards. Every call may come in any order and more than once.
#[tonic::async_trait]
pub trait ShardHost: Send + Sync + 'static {
    /// Acts on what this broker is told; the caller has refused older generations.
    async fn apply(&self, told: BrokerShard);
    /// This broker no longer holds the shard: stops it at once and keeps its bytes.
    async fn release(&self, shard: &ShardKey);
    /// Gives up the bytes of a shard that was released or never assigned; ignored while it is held.
    /// They are gone for good when this returns; the disk gets its room back little by little.
    async fn erase(&self, shard: &ShardKey);
    /// Appends and waits until committed.
    async fn publish(
        &self,
        shard: &ShardKey,
        records: Vec<NewRecord>,
    ) -> Result<Published, PublishError>;
    /// Reads committed records from an offset on, at least one if there is one; refuses an offset
    /// before the log's start.
    async fn read(
        &self,
        shard: &ShardKey,
        from_offset: u64,
        max_bytes: usize,
    ) -> Result<ReadBatch, ShardError>;
    /// Where a held replica stands, now and on every change.
    fn watch(&self, shard: &ShardKey) -> Option<watch::Receiver<ShardStatus>>;
    /// Every held replica, in key order.
    fn counters(&self) -> Vec<ShardCounters>;

    /// Shards with bytes on this broker, whether assigned or not, in key order.
    fn stored(&self) -> Vec<ShardKey>;
    /// The hand-over, if that was the last that this broker did with a shard that it does not hold
    /// now. An error says what could not be read.
    async fn handed_over(&self, shard: &ShardKey) -> Result<Option<HandedOver>, String>;

    /// Committed records for a copy. Refuses a generation older than the one known here, and a
    /// destination whose last record (`start_generation`, before `from_offset`) differs from the
    /// record here; `start_generation` 0 is not compared.
    async fn copy_read(
        &self,
        shard: &ShardKey,
        generation: Generation,
        from_offset: u64,
        start_generation: Generation,
        max_bytes: usize,
    ) -> Result<CopyChunk, ShardError>;
    /// Checksum of the encoded records of a range as they are stored, cut at the committed end
    /// (source) or the durable end (destination), and after so many bytes or one record.
    async fn digest(
        &self,
        shard: &ShardKey,
        from_offset: u64,
        to_offset: u64,
        max_bytes: u64,
    ) -> Result<RangeDigest, ShardError>;
    /// Where a copy stands here, once all that was written so far is durable.
    async fn copy_position(&self, shard: &ShardKey) -> Result<CopyPosition, ShardError>;
    /// Appends a copy's frames, pieces that follow each other, at the durable end; answers with the
    /// new durable end. Frames below the end are a repetition and harmless. Refused when this broker
    /// is no learner of the shard.
    async fn copy_append(
        &self,
        shard: &ShardKey,
        generation: Generation,
        first_offset: u64,
        frames: Vec<Bytes>,
    ) -> Result<CopyPosition, ShardError>;
    /// What copies brought was compared with their source, as it is stored here: only then may the
    /// learner count as caught up.
    async fn copy_verified(
        &self,
        shard: &ShardKey,
        generation: Generation,
    ) -> Result<CopyPosition, ShardError>;
    /// Throws away a learner's records from an offset on, because they diverge from the source.
    async fn copy_truncate(
        &self,
        shard: &ShardKey,
        generation: Generation,
        to_offset: u64,
    ) -> Result<CopyPosition, ShardError>;

    /// Stops every shard in order and flushes what is buffered.
    async fn close(&self);
}
