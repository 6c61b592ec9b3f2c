//! Operators' pauses of copies: which copies they hold, and from when the time of a copy counts.
//!
//! A held copy takes no slot of the moves that others need, and none is started that would be held
//! at once, so that a pause does not pile copies up.

use evenkeel_model::{CopyClass, CopyPauseRecord, Millis, MoveReason, ShardState};

use crate::world::{NONE, Ord32, World};

/// A copy as far as its class depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    pub(crate) reason: MoveReason,
    /// It adds a voter beside the leader; otherwise it is to lead.
    pub(crate) joins: bool,
    /// The voter that it replaces.
    pub(crate) replaces: Ord32,
}

/// The class of a shard's copy.
fn class_of(world: &World<'_>, shard: Ord32, copy: Copy) -> CopyClass {
    let voters = world.voters(shard).count();
    let live = world.live_replicas(shard);
    let replaces_live = copy.replaces != NONE && world.is_live(shard, copy.replaces);
    CopyClass::of_copy(copy.reason, copy.joins && !replaces_live, voters, live)
}

/// The copy that is under way for a shard; none of a transfer, and none once the leader is fenced.
fn under_way(world: &World<'_>, shard: Ord32) -> Option<Copy> {
    let facts = world.shard(shard);
    let assignment = world.assignment(shard).filter(|a| a.state != ShardState::Draining)?;
    let reason = assignment.move_.as_ref().map_or(MoveReason::Restore, |m| m.reason);
    if facts.successor != NONE {
        let copies = !world.followers(shard).contains(&facts.successor);
        return copies.then_some(Copy { reason, joins: false, replaces: NONE });
    }
    let replaces = world.shape(shard).leaving;
    (facts.joining != NONE).then_some(Copy { reason, joins: true, replaces })
}

fn on<'a>(
    world: &World<'a>,
    shard: Ord32,
    copy: Copy,
) -> impl Iterator<Item = &'a CopyPauseRecord> {
    let (class, key) = (class_of(world, shard, copy), world.key(shard));
    let begun = world.snapshot.copy_pauses.iter().filter(|pause| pause.at_ms <= world.now);
    begun.filter(move |pause| pause.scope.holds(class, &key))
}

/// The pause that would hold a copy now.
pub(crate) fn holds<'a>(
    world: &World<'a>,
    shard: Ord32,
    copy: Copy,
) -> Option<&'a CopyPauseRecord> {
    if world.snapshot.copy_pauses.is_empty() {
        return None;
    }
    on(world, shard, copy).find(|pause| pause.is_on(world.now))
}

/// The pause that holds the copy under way for a shard now.
pub(crate) fn held<'a>(world: &World<'a>, shard: Ord32) -> Option<&'a CopyPauseRecord> {
    if world.snapshot.copy_pauses.is_empty() {
        return None;
    }
    holds(world, shard, under_way(world, shard)?)
}

/// From when the time of the copy under way counts that began at `started`: no time under a pause
/// does, and none before the end of the last.
pub(crate) fn counts_from(world: &World<'_>, shard: Ord32, started: Millis) -> Millis {
    if world.snapshot.copy_pauses.is_empty() {
        return started;
    }
    let Some(copy) = under_way(world, shard) else { return started };
    let ended = on(world, shard, copy).map(|p| p.until_ms.map_or(world.now, |u| u.min(world.now)));
    ended.max().map_or(started, |end| started.max(end))
}

/// Who paused what, why, and what ends it. Times are left out: they would make news of every pass.
pub(crate) fn words(pause: &CopyPauseRecord) -> String {
    let CopyPauseRecord { scope, by, reason, until_ms, .. } = pause;
    let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    let until = if until_ms.is_some() { "for a time" } else { "until it is resumed" };
    format!("{by} paused copies of {scope}{reason} {until}")
}
