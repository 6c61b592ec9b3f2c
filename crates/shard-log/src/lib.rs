//! The log of one shard and the state machine that replicates it.
//!
//! **Invariant:** no clock and no randomness; the only I/O is what [`storage`] does.

mod content;
mod frames;
mod keys;
mod log;
mod memo;
mod message;
mod producers;
mod quorum;
mod record;
mod replica;
mod sealed;
pub mod storage;
mod varint;

pub use content::{Content, MAX_KEY_BYTES};
pub use frames::{FrameError, decode_frames, encode_frames};
pub use log::{
    ClosedSegment, IndexJob, IndexStep, Log, LogConfig, LogError, ReadLimit, RemovedSegment,
    Retention, Scanned, SyncJob, TornTail, Verified,
};
pub use memo::Memo;
pub use message::{Action, Answer, Append, Draft, Event, Output, Refusal, Request};
pub use producers::{Known, MAX_PRODUCERS, MAX_SEQUENCES, ProducerTable};
pub use quorum::{commit_quorum, held_by_quorum, open_quorum};
pub use record::{HEADER_BYTES, MAX_PAYLOAD_BYTES, Position, Record, RecordKind, Term};
pub use replica::{Compactable, CompactionStep, CopyRefusal, Replica, ReplicaConfig};
