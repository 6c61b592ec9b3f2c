//! Repair: lost and missing replicas are copied anew, the most exposed shards first.

use evenkeel_model::{Millis, MoveReason};

use crate::decision::{Step, WaitingOn};
use crate::moves::{can_copy, copy_target, start_follower_copy, wait_for_broker};
use crate::pass::{Pass, gave_up};
use crate::phases::place;
use crate::slots::{Urgency, restore_pool};
use crate::world::{NONE, Ord32, World};

/// One replica to be made.
struct Need {
    shard: Ord32,
    /// The lost follower to replace, or none for a set that is short.
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

/// A short set grows before anybody is replaced; a lost follower is replaced after the delay.
fn need(world: &World<'_>, shard: Ord32) -> Result<Need, Option<String>> {
    if world.voters(shard).count() < world.stream_of(shard).factor() {
        return Ok(Need { shard, replaces: NONE });
    }
    let lost = || world.followers(shard).iter().copied().filter(|b| !world.standing(*b).holds());
    let delay = world.policy.restore_after_ms;
    if delay > 0
        && let Some(replaces) = lost().find(|b| lost_for(world, *b).is_none_or(|age| age > delay))
    {
        return Ok(Need { shard, replaces });
    }
    let Some(first) = lost().next().filter(|_| delay > 0) else { return Err(None) };
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
    if !can_copy(pass, shard) {
        let voters: Vec<Ord32> = pass.world.voters(shard).collect();
        return place::refuse(pass, shard, |b| voters.contains(&b));
    }
    if pass.world.snapshot.paused {
        return pass.wait(shard, WaitingOn::Paused, "placement is paused".to_owned());
    }
    if pass.world.live_replicas(shard) >= 2 {
        let world = &pass.world;
        let lost = world.followers(shard).iter().copied();
        let lost = lost.filter(|b| !world.standing(*b).holds());
        if let Some(detail) = pass.loss.holds(world, lost) {
            return pass.wait(shard, WaitingOn::MassLoss, detail);
        }
    }
    let pool = restore_pool(&pass.world, shard, replaces != NONE);
    if let Some((on, detail)) = pass.slots.full(&pass.world, pool) {
        return pass.wait(shard, on, detail);
    }
    let Some(joining) = copy_target(pass, shard, replaces) else {
        return wait_for_broker(pass, shard);
    };
    let world = &pass.world;
    let detail = if replaces == NONE {
        let (held, factor) = (world.voters(shard).count(), world.stream_of(shard).factor());
        format!("the set has {held} of {factor} replicas")
    } else {
        format!("{} is lost", world.name(replaces))
    };
    let kind = (Step::Restore, MoveReason::Restore, pool);
    start_follower_copy(pass, shard, kind, (joining, replaces), detail);
}
