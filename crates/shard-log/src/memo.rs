//! What a replica must not forget: its promise, the assignment it acts on, and what it was told.

use std::sync::Arc;

use evenkeel_model::{Assignment, BrokerId};
use serde::{Deserialize, Serialize};

use crate::log::LogError;
use crate::record::Term;
use crate::sealed;
use crate::storage::Storage;

const FILE: &str = "replica.json";

/// Kept in one small file, replaced in one step and durable before anything is answered that
/// depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memo {
    /// The highest term promised; nothing older is accepted.
    pub promised: Term,
    /// Who leads the promised term.
    pub promised_to: Option<String>,
    /// The last assignment accepted.
    pub held: Option<Assignment>,
    /// The log was once known to hold everything committed, so its promise counts.
    pub trusted: bool,
    /// The generation at which the log was last known to hold everything that is committed.
    pub level_at: u64,
    /// The voters of the generation before, which was larger and of which this log was not known to
    /// hold all: to be asked too when it opens. Empty once a start record was committed since.
    #[serde(default)]
    pub larger_before: Vec<BrokerId>,
    /// As leader of this generation it counts the joiner, and goes on so after a restart.
    pub joint_at: u64,
    /// What is from here on came by a copy that was not compared with its source as a whole yet.
    /// Until it is, a learner does not count as caught up, nor as near.
    #[serde(default)]
    pub copied_from: Option<u64>,
    /// As leader it drained in this generation: the log is whole and grows no more in it.
    pub drained_at: u64,
    /// Where the log ended when it last drained; 0 if an older version drained, which did not note it.
    #[serde(default)]
    pub drained_end: u64,
    /// The generation that it last declined to lead.
    #[serde(default)]
    pub declined: u64,
}

impl Memo {
    /// Reads the file; the default if there is none.
    pub fn load(storage: &Arc<dyn Storage>) -> Result<Self, LogError> {
        sealed::load(storage, FILE)
    }

    /// Replaces the file; durable when this returns.
    pub fn save(&self, storage: &Arc<dyn Storage>) -> Result<(), LogError> {
        sealed::save(storage, FILE, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;

    #[test]
    fn it_survives_a_crash_and_damage_is_named() {
        let memory = MemoryStorage::new();
        let storage: Arc<dyn Storage> = Arc::new(memory.clone());
        assert_eq!(Memo::load(&storage).unwrap(), Memo::default());
        let memo = Memo { promised: Term::new(4, 2), level_at: 3, ..Memo::default() };
        memo.save(&storage).unwrap();
        memory.crash(|_| 0);
        assert_eq!(Memo::load(&storage).unwrap(), memo);
        memory.flip_bit(FILE, 40, 1);
        let error = Memo::load(&storage).unwrap_err().to_string();
        assert!(error.starts_with("log memory:replica.json is damaged"), "{error}");
    }
}
