//! The nouns of Evenkeel and their laws: identifiers, stored records, key paths, policy, snapshot.
//!
//! **Invariant:** no I/O, no clock, no randomness. Times are milliseconds since the Unix epoch and
//! come from the caller.

pub mod assignment;
pub mod broker;
pub mod copy_pause;
mod decimal;
pub mod hash;
pub mod history;
pub mod ids;
pub mod keys;
pub mod leadership;
pub mod load;
pub mod policy;
mod printable;
pub mod report;
pub mod snapshot;
pub mod stream;

pub use assignment::{
    Assignment, AssignmentRecord, BrokerShard, Move, MoveReason, Role, ShardState,
};
pub use broker::{Lifecycle, NodeRecord, Registration};
pub use copy_pause::{CopyPauseRecord, PauseScope};
pub use decimal::decimal;
pub use history::{HistoryEntry, MoveOutcome};
pub use ids::{BrokerId, IdError, Kind, ShardKey, StreamKey, StreamName};
pub use leadership::{LeaderRecord, PauseRecord};
pub use load::{LoadReport, ShardLoad};
pub use policy::{Aggressiveness, Policy, RebalancingPolicy, Strategy};
pub use printable::printable;
pub use report::{CopyClass, CopyRecord, LimitRecord, Phase, ReportRecord, ShardReport};
pub use snapshot::{BrokerView, Snapshot};
pub use stream::{Marker, MarkerReason, Stream};

/// Milliseconds since the Unix epoch.
pub type Millis = i64;

/// Version of one assignment; rises by one with every write of it.
pub type Generation = u64;

/// Version of every stored record's layout.
pub const RECORD_VERSION: u32 = 1;

pub(crate) fn record_version() -> u32 {
    RECORD_VERSION
}

/// Why stored bytes are not the record that their key promises.
#[derive(Debug, thiserror::Error)]
#[error("record at {key} cannot be read: {detail}")]
pub struct RecordError {
    /// The etcd key.
    pub key: String,
    /// What was found and what was expected.
    pub detail: String,
}

/// Parses a stored JSON record, naming the key and the field in the error.
pub fn decode<T: serde::de::DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, RecordError> {
    serde_json::from_slice(value)
        .map_err(|e| RecordError { key: key.to_owned(), detail: printable(&e.to_string()) })
}

/// Serialises a stored record as JSON.
pub fn encode<T: serde::Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(record).expect("records have string keys and finite numbers")
}
