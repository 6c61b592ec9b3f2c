//! The log of one shard and the state machine that replicates it.
//!
//! **Invariant:** no clock and no randomness; the only I/O is what [`storage`] does.

mod log;
mod producers;
mod record;
pub mod storage;

pub use log::{Log, LogConfig, LogError, ReadLimit, SyncJob, TornTail};
pub use producers::{Known, MAX_PRODUCERS, MAX_SEQUENCES, ProducerTable};
pub use record::{HEADER_BYTES, MAX_PAYLOAD_BYTES, Position, Record, RecordKind, Term};
