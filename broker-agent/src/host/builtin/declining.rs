//! When a leader declines the generation that it is told to lead.
//!
//! A destination that finds its log damaged when it is to lead, or had halted before, has
//! acknowledged nothing, and who handed the shard over still holds everything. That one may serve
//! again once it is certain that nothing will ever be acknowledged in the generation between.
//!
//! **Invariant:** a broker that said that it declined a generation does not open it, whatever becomes
//! of its log and however often it restarts: the note is durable before the word is out, and is made
//! only where the generation was never accepted.

use std::sync::Arc;

use evenkeel_model::{BrokerShard, Role};
use evenkeel_shard_log::storage::Storage;
use evenkeel_shard_log::{LogError, Memo};

use super::disks::Disks;
use super::shard::off_the_runtime;

/// Whether this broker does not lead the generation that it is told, by a shard that it has not
/// open: it was declined before, or is now, as `is_unfit` to be led. What cannot be read or noted is
/// not said; such a shard does not act either.
pub(super) fn declines(disks: &Arc<dyn Disks>, told: &BrokerShard, is_unfit: bool) -> bool {
    if told.role != Role::Leader {
        return false;
    }
    let shard = &told.assignment.shard;
    let generation = told.assignment.generation;
    let declines = || {
        let storage = disks.open(shard).map_err(|e| e.to_string())?;
        has_declined(&storage, generation, is_unfit).map_err(|e| e.to_string())
    };
    match off_the_runtime(disks.is_blocking(), declines) {
        Ok(declined) => declined,
        Err(error) => {
            tracing::warn!(%shard, %error, "whether this generation was declined cannot be read");
            false
        }
    }
}

/// Whether the generation is declined, as it is now if the replica is unfit and this broker cannot
/// have acted in it.
fn has_declined(
    storage: &Arc<dyn Storage>,
    generation: u64,
    is_unfit: bool,
) -> Result<bool, LogError> {
    let mut memo = Memo::load(storage)?;
    // Without an assignment the memo may be a new one, and tells nothing of what was.
    let accepted = memo.held.as_ref().map(|held| held.generation.max(memo.promised.generation));
    let is_new = accepted.is_some_and(|accepted| accepted < generation);
    if memo.declined != generation && is_unfit && is_new {
        memo.declined = generation;
        memo.save(storage)?;
    }
    Ok(memo.declined == generation)
}

#[cfg(test)]
mod tests {
    use evenkeel_model::Assignment;
    use evenkeel_shard_log::Term;
    use evenkeel_shard_log::storage::MemoryStorage;

    use super::*;

    #[test]
    fn only_a_generation_that_was_never_accepted_is_declined_and_then_for_good() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let declines = |generation, unfit| has_declined(&storage, generation, unfit).unwrap();
        assert!(!declines(4, true), "what was before is not known");
        let mut held =
            Assignment::new("stream/d/s/0".parse().unwrap(), "a".parse().unwrap(), vec![]);
        held.generation = 3;
        let memo = Memo { held: Some(held), promised: Term::new(4, 1), ..Memo::default() };
        memo.save(&storage).unwrap();
        assert!(!declines(3, true) && !declines(4, true), "it may have acted in it");
        assert!(!declines(5, false));
        assert!(declines(5, true));
        assert!(declines(5, false), "the log was mended");
        assert!(!declines(6, false));
    }
}
