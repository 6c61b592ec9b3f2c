//! Kafka's own descriptions of a cluster: the text of `kafka-topics --describe`, reassignment files,
//! and the snapshot that they make.
//!
//! **Invariant:** nothing that was given is passed over in silence. A line or a field that cannot be
//! used is named with its place; what is only read in part is noted.

pub mod cluster;
pub mod describe;
pub mod racks;
pub mod reassignment;

/// Topics become streams of this namespace.
pub const NAMESPACE: &str = "kafka";

/// A broker's number.
pub type Broker = u32;

/// A line that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {detail}")]
pub struct Fault {
    /// Its number, from 1.
    pub line: usize,
    /// What was found and what was expected.
    pub detail: String,
}

/// A broker's number, as Kafka writes it.
pub(crate) fn broker(text: &str) -> Option<Broker> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Kafka's numbers are 32 bits with a sign.
    text.parse().ok().filter(|n| digits && *n <= i32::MAX as u32)
}
