//! What can go wrong, in one line each.

use std::time::Duration;

use evenkeel_proto::refusal::Reason;

/// What became of a publish that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nothing of it was stored.
    NotWritten,
    /// It may have been stored: an answer was lost.
    Unknown,
}

impl std::fmt::Display for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotWritten => "nothing was written",
            Self::Unknown => "some of it may have been written",
        })
    }
}

fn told(fate: Option<Fate>) -> String {
    fate.map(|fate| format!(" ({fate})")).unwrap_or_default()
}

/// A call that failed for good; what could be retried has been.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// No broker was named.
    #[error("no broker address was given: name at least one as host:port")]
    NoAddress,
    /// An address has not the form it must have.
    #[error("broker address '{address}' is not valid: expected host:port")]
    BadAddress {
        /// What was given.
        address: String,
    },
    /// A broker refused, and asking again would not help.
    #[error("cannot {action}: {detail}{}", told(*fate))]
    Refused {
        /// What was tried, such as `publish to stream/default/orders/3`.
        action: String,
        /// The stable word, if the broker gave one.
        reason: Option<Reason>,
        /// The broker's words.
        detail: String,
        /// Whether a publish may have had an effect; none of a call that only reads.
        fate: Option<Fate>,
    },
    /// No broker did it within the client's patience.
    #[error("cannot {action}: gave up after {:.1} s, last answer: {detail}{}", waited.as_secs_f64(), told(*fate))]
    GaveUp {
        /// What was tried.
        action: String,
        /// Since the first failed attempt.
        waited: Duration,
        /// The last answer.
        detail: String,
        /// Whether a publish may have had an effect; none of a call that only reads.
        fate: Option<Fate>,
    },
    /// A broker answered what no broker may answer.
    #[error("cannot {action}: the broker at {address} answered against the protocol: {detail}")]
    Protocol {
        /// What was tried.
        action: String,
        /// Who answered.
        address: String,
        /// What was wrong.
        detail: String,
    },
}

impl ClientError {
    /// Whether the call may have had an effect although it failed.
    pub fn fate(&self) -> Fate {
        match self {
            Self::Refused { fate, .. } | Self::GaveUp { fate, .. } => {
                fate.unwrap_or(Fate::NotWritten)
            }
            Self::Protocol { .. } => Fate::Unknown,
            Self::NoAddress | Self::BadAddress { .. } => Fate::NotWritten,
        }
    }

    /// The same failure, where an earlier part of the call was written.
    pub(crate) fn after_a_part(mut self) -> Self {
        if let Self::Refused { fate, .. } | Self::GaveUp { fate, .. } = &mut self {
            *fate = Some(Fate::Unknown);
        }
        self
    }

    /// The broker's stable word, if it gave one.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Refused { reason, .. } => *reason,
            _ => None,
        }
    }
}
