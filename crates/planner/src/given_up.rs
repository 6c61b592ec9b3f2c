//! Copies that are given up: which of those under way are before their time is over, and where some
//! were, by the history of moves.

use std::collections::BTreeSet;

use evenkeel_model::{HistoryEntry, Millis, MoveOutcome, MoveReason};

use crate::disk::Disk;
use crate::moves::{Way, may_hold, way_to};
use crate::pass::Pass;
use crate::pauses;
use crate::phases::repair::held_by_loss;
use crate::world::{NONE, Ord32, World};

/// For so long after a copy was given up its destination comes after the others.
const AVOIDED_MS: Millis = 600_000;

/// Copies that were given up lately, the latest first.
fn lately<'w>(world: &World<'w>) -> impl Iterator<Item = &'w HistoryEntry> {
    let now = world.now;
    let history = world.snapshot.history.iter().rev();
    let recent = history.take_while(move |h| now.saturating_sub(h.at_ms) <= AVOIDED_MS);
    recent.filter(|h| h.outcome == MoveOutcome::GivenUp)
}

/// Brokers to which a copy of the shard was given up lately.
pub(crate) fn given_up_lately(world: &World<'_>, shard: Ord32) -> Vec<Ord32> {
    let mut given_up = lately(world).peekable();
    if given_up.peek().is_none() {
        return Vec::new();
    }
    let key = world.key(shard);
    let of_shard = given_up.filter(|h| h.shard == key);
    of_shard.filter_map(|h| world.broker_named(h.to.as_ref()?)).collect()
}

/// Each shard of which a copy was given up lately, with where it was going.
pub(crate) fn all_given_up_lately(world: &World<'_>) -> BTreeSet<(Ord32, Ord32)> {
    let pair = |h: &HistoryEntry| {
        Some((world.shard_named(&h.shard)?, world.broker_named(h.to.as_ref()?)?))
    };
    lately(world).filter_map(pair).collect()
}

/// Why the copy under way to `to` is given up at once, if it is. The destination halted: where
/// nobody else can take the copy it is begun anew there once, and after that has the time that
/// copies have. Or its disk became full, and another one has room and could be given it now; an
/// operator's move has no other destination.
pub(crate) fn at_once(
    pass: &Pass<'_>,
    shard: Ord32,
    to: Ord32,
    reason: MoveReason,
) -> Option<String> {
    let world = &pass.world;
    if let Some(why) = world.report(shard, to).and_then(|r| r.halted_because()) {
        let is_new = || !given_up_lately(world, shard).contains(&to);
        let votes = world.voters(shard).any(|b| b == to);
        let ends = votes || is_new() || has_other(pass, shard, to, Disk::Short);
        return ends.then(|| format!("{} halted ({why})", world.name(to)));
    }
    let full = world.disk(to) == Disk::Full && reason != MoveReason::Operator;
    let goes = full && has_other(pass, shard, to, Disk::Roomy) && !is_held(pass, shard, reason);
    goes.then(|| world.disk_words(to))
}

/// Whether no copy like the one under way would be started now.
fn is_held(pass: &Pass<'_>, shard: Ord32, reason: MoveReason) -> bool {
    let world = &pass.world;
    let loss = match reason {
        MoveReason::Drain => false,
        MoveReason::Restore => held_by_loss(pass, shard).is_some(),
        _ => pass.loss.held.is_some(),
    };
    loss || world.snapshot.paused || pauses::held(world, shard).is_some()
}

/// Whether a broker other than `to`, its disk no worse than that, can take the copy and was not
/// given up lately.
fn has_other(pass: &Pass<'_>, shard: Ord32, to: Ord32, worst: Disk) -> bool {
    let world = &pass.world;
    let failed = given_up_lately(world, shard);
    let leads = world.shard(shard).successor != NONE;
    let takes = |b: Ord32| match leads {
        true => way_to(pass, shard, b).is_some_and(|way| way != Way::Follower),
        false => may_hold(pass, shard, b),
    };
    let others = world.group_of(shard).targets.iter().copied().filter(|b| *b != to);
    others.filter(|b| world.disk(*b) <= worst && !failed.contains(b)).any(takes)
}
