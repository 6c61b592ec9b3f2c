//! Repair: lost and missing replicas are copied anew, the most exposed shards first.

use evenkeel_model::{Millis, MoveReason};

use crate::decision::{Step, WaitingOn};
use crate::moves::{can_copy, copy_target, start_follower_copy, wait_for_broker};
use crate::pass::{Pass, gave_up};
use crate::pauses::Copy;
use crate::phases::{place, rebuild};
use crate::slots::{Urgency, restore_pool};
use crate::world::{NONE, Ord32, World};

/// One replica to be made.
struct Need {
    shard: Ord32,
    /// The lost or halted follower to replace, or none for a set that is short.
    replaces: Ord32,
}

pub(crate) fn run(pass: &mut Pass<'_>) {
    let mut shards: Vec<(Urgency, bool, Ord32)> = pass
        .lists
        .short
        .iter()
        .filter(|s| pass.is_at_rest(**s))
        .map(|s| (Urgency::of(&pass.world, *s), gave_up(&pass.world, *s), *s))
        .collect();
    shards.sort_unstable();
    for (_, _, shard) in shards {
        match need(&pass.world, shard) {
            Ok(need) => restore(pass, &need),
            Err(Some(detail)) => pass.wait(shard, WaitingOn::RestoreDelay, detail),
            Err(None) => {}
        }
    }
}

/// A short set grows before anybody is replaced; a follower that halted is replaced at once, for it
/// does not come back, and one whose broker is lost after the delay.
fn need(world: &World<'_>, shard: Ord32) -> Result<Need, Option<String>> {
    if world.voters(shard).count() < world.stream_of(shard).factor() {
        return Ok(Need { shard, replaces: NONE });
    }
    let delay = world.policy.restore_after_ms;
    if delay == 0 {
        return Err(None);
    }
    let lost = || world.followers(shard).iter().copied().filter(|b| !world.is_live(shard, *b));
    let is_due =
        |b: &Ord32| world.standing(*b).holds() || lost_for(world, *b).is_none_or(|age| age > delay);
    if let Some(replaces) = lost().find(is_due) {
        return Ok(Need { shard, replaces });
    }
    let Some(first) = lost().next() else { return Err(None) };
    let name = world.name(first);
    let age = lost_for(world, first).unwrap_or_default();
    Err(Some(format!("{name} has been lost for {age} ms and is replaced after {delay} ms")))
}

/// How long a broker has been gone; none if nobody remembers it.
fn lost_for(world: &World<'_>, broker: Ord32) -> Option<Millis> {
    let view = world.brokers[broker as usize].view?;
    Some(world.now.saturating_sub(view.since_ms))
}

fn restore(pass: &mut Pass<'_>, need: &Need) {
    let Need { shard, replaces } = *need;
    let in_place = !can_copy(pass, shard);
    if in_place && let Err(why) = rebuild::is_safe(pass, shard, replaces) {
        return refuse(pass, shard, why);
    }
    if pass.world.snapshot.paused {
        return pass.wait(shard, WaitingOn::Paused, "placement is paused".to_owned());
    }
    if let Some(detail) = held_by_loss(pass, shard) {
        return pass.wait(shard, WaitingOn::MassLoss, detail);
    }
    let copy = Copy { reason: MoveReason::Restore, joins: true, replaces };
    if pass.is_copy_paused(shard, copy) {
        return;
    }
    let pool = restore_pool(&pass.world, shard, replaces != NONE);
    if let Some((on, detail)) = pass.slots.full(&pass.world, pool) {
        return pass.wait(shard, on, detail);
    }
    if in_place {
        return rebuild::drop_replica(pass, shard, replaces);
    }
    let Some(joining) = copy_target(pass, shard, replaces) else {
        return wait_for_broker(pass, shard);
    };
    let kind = (Step::Restore, MoveReason::Restore, pool);
    let detail = why_restore(&pass.world, need);
    start_follower_copy(pass, shard, kind, (joining, replaces), detail);
}

/// Why the guard against mass loss lets no repair of the shard start, if so.
pub(crate) fn held_by_loss(pass: &Pass<'_>, shard: Ord32) -> Option<String> {
    let world = &pass.world;
    if world.live_replicas(shard) < 2 {
        return None;
    }
    let lost = world.followers(shard).iter().copied();
    pass.loss.holds(world, lost.filter(|b| !world.standing(*b).holds()))
}

/// Says that no broker can take a copy, and why a halted replica is not rebuilt where it is.
fn refuse(pass: &mut Pass<'_>, shard: Ord32, stays: Option<String>) {
    let voters: Vec<Ord32> = pass.world.voters(shard).collect();
    let (because, detail) = place::why_no_broker(pass, shard, |b| voters.contains(&b));
    let detail = stays.map_or(detail.clone(), |stays| format!("{detail}; {stays}"));
    pass.refuse(shard, because, detail);
}

fn why_restore(world: &World<'_>, Need { shard, replaces }: &Need) -> String {
    if *replaces == NONE {
        let (held, factor) = (world.voters(*shard).count(), world.stream_of(*shard).factor());
        return format!("the set has {held} of {factor} replicas");
    }
    let name = world.name(*replaces);
    match world.halted(*shard, *replaces).filter(|_| world.standing(*replaces).holds()) {
        Some(why) => format!("{name} halted ({why})"),
        None => format!("{name} is lost"),
    }
}
