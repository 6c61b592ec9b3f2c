//! What the migrator's records say of copies: since when one stands still, and what operators hold.
//!
//! A copy that waits for its turn, or that no migrator is there to run, has not failed: its partial
//! bytes are worth more than another try.

use evenkeel_model::{Assignment, CopyPauseRecord, Millis, ShardState};

use crate::records::Records;

/// Operators' pauses of copies.
pub(crate) fn pauses(records: &Records) -> Vec<CopyPauseRecord> {
    records.copy_pauses.iter().map(|stored| stored.value.clone()).collect()
}

/// Sets since when an assignment's copy stands still: since the migrator last saw it get on.
pub(crate) fn set_clocks(records: &Records, assignment: &mut Assignment, now_ms: Millis) {
    if !assignment.is_moving() || assignment.state == ShardState::Draining {
        return;
    }
    let shard = assignment.shard.clone();
    let copy = records.copies.get(&shard).map(|stored| &stored.value);
    let copy = copy.filter(|copy| copy.generation == assignment.generation);
    let Some(move_) = assignment.move_.as_mut() else { return };
    let migrator = records.leaders.get(&"migrator".to_owned()).map(|stored| &stored.value);
    let got_on = match (copy, migrator) {
        (Some(copy), _) if copy.waits => now_ms,
        (Some(copy), _) => copy.at_ms.min(now_ms),
        // Nobody copies anything, or somebody has only begun to.
        (None, None) => now_ms,
        (None, Some(migrator)) => migrator.elected_at_ms.min(now_ms),
    };
    move_.progress_at_ms = move_.progress_at_ms.max(Some(got_on));
}
