//! From when the clocks of a move count that give it up, as far as its copy has a say in it.
//!
//! A copy that an operator holds, that waits for its turn, or that no migrator is there to run has
//! not failed: its partial bytes are worth more than another try.

use evenkeel_model::{Assignment, CopyClass, Millis, ShardState};

use crate::records::Records;

/// Sets them for an assignment with a copy under way: no time under a pause counts for its age, and
/// it stands still only since the migrator last saw it get on.
pub(crate) fn set_clocks(records: &Records, assignment: &mut Assignment, now_ms: Millis) {
    if !assignment.is_moving() || assignment.state == ShardState::Draining {
        return;
    }
    let shard = assignment.shard.clone();
    let copy = records.copies.get(&shard).map(|stored| &stored.value);
    let copy = copy.filter(|copy| copy.generation == assignment.generation);
    let Some(move_) = assignment.move_.as_mut() else { return };
    let class = copy.map_or_else(|| CopyClass::from(move_.reason), |copy| copy.class);
    let held_until = records
        .copy_pauses
        .iter()
        .map(|stored| &stored.value)
        .filter(|pause| pause.at_ms <= now_ms && pause.scope.holds(class, &shard))
        .map(|pause| pause.until_ms.map_or(now_ms, |until| until.min(now_ms)))
        .max();
    if let Some(until) = held_until {
        move_.started_at_ms = move_.started_at_ms.max(until);
    }
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
