//! Why a copy was interrupted.

use evenkeel_proto::refusal::{Reason, first_offset};
use tonic::Status;

use crate::host::ShardError;

/// Why an attempt ended before the copy was level.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error("the order is for generation {0}, and this broker is no learner of it")]
    NotLearner(u64),
    #[error("the source's records differ before offset {0}")]
    Diverged(u64),
    #[error("the source's records begin at offset {0}")]
    BeforeStart(u64),
    #[error("a chunk was damaged on its way, at offset {0}")]
    Damaged(u64),
    #[error("verification failed: records {0} to {1} differ from the source")]
    Differs(u64, u64),
    #[error("verification failed: records {0} to {1} are not stored as they came")]
    Decayed(u64, u64),
    #[error("records {0} to {1} are not all here any more")]
    Gone(u64, u64),
    #[error("source: {0}")]
    Source(String),
    #[error(transparent)]
    Here(#[from] ShardError),
}

impl Failed {
    /// Another try cannot succeed.
    pub(super) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::NotLearner(_) | Self::Here(ShardError::NotHeld | ShardError::Stale { .. })
        )
    }
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        if let Some(first) = first_offset(&status) {
            return Self::BeforeStart(first);
        }
        match Reason::of(&status) {
            Some((Reason::Conflict, metadata)) => {
                let at = metadata.get("diverged_at").and_then(|at| at.parse().ok());
                Self::Diverged(at.unwrap_or(0))
            }
            _ => Self::Source(status.message().to_owned()),
        }
    }
}
