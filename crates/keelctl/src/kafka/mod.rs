//! Kafka's own descriptions of a cluster: the text of `kafka-topics --describe`, reassignment files,
//! and the snapshot that they make.
//!
//! **Invariant:** nothing that was given is passed over in silence. A line or a field that cannot be
//! used is named with its place; what is only read in part is noted.

pub mod cluster;
pub mod describe;
pub mod racks;
pub mod reassignment;
pub mod traffic;

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

/// A broker's number, as Kafka writes it: no sign, no zero before it, 32 bits with a sign.
pub(crate) fn broker(text: &str) -> Option<Broker> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|n| plain && *n <= i32::MAX as u32)
}
