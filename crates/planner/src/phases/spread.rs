//! Spread: a follower that shares a zone is replaced by one in a zone that its shard lacks.

use evenkeel_model::{MoveReason, ShardState};

use crate::decision::{Step, WaitingOn};
use crate::moves::{copy_target, start_follower_copy, wait_for_broker};
use crate::pass::{Pass, resting};
use crate::slots::Pool;
use crate::world::{NONE, Ord32, World};
use crate::zones::span;

pub(crate) fn run(pass: &mut Pass<'_>) {
    if pass.world.zones < 2 {
        return;
    }
    let reach = Reach::new(&pass.world);
    for shard in 0..pass.world.shards.len() as Ord32 {
        let world = &pass.world;
        if !reach.is_crowded(world, shard)
            || !pass.is_at_rest(shard)
            || world.live_replicas(shard) < world.voters(shard).count()
            || resting(world, shard).is_some()
            || world.state(shard) != ShardState::Active
        {
            continue;
        }
        if let Some(leaving) = sharing(world, shard) {
            exchange(pass, shard, leaving);
        }
    }
}

/// How many zones the shards of each group could span.
pub(crate) struct Reach {
    zones: Vec<usize>,
}

impl Reach {
    pub(crate) fn new(world: &World<'_>) -> Self {
        let zones = world.groups.iter().map(|g| span(world, g.targets.iter().copied()));
        Self { zones: zones.collect() }
    }

    /// Zones that the targets of a stream lie in.
    pub(crate) fn of(&self, world: &World<'_>, shard: Ord32) -> usize {
        self.zones[world.stream_of(shard).group]
    }

    /// Whether a placed shard spans fewer zones than it could, caps aside.
    pub(crate) fn is_crowded(&self, world: &World<'_>, shard: Ord32) -> bool {
        let factor = world.stream_of(shard).factor();
        let could = self.of(world, shard).min(factor);
        if could < 2 || world.shard(shard).assignment.is_none() {
            return false;
        }
        let voters = world.voters(shard).filter(|b| world.standing(*b).holds());
        span(world, voters) < could
    }
}

/// The last follower whose zone another copy covers too.
fn sharing(world: &World<'_>, shard: Ord32) -> Option<Ord32> {
    let shares = |b: &&Ord32| {
        let zone = world.zone(**b);
        zone == NONE || world.voters(shard).any(|v| v != **b && world.zone(v) == zone)
    };
    world.followers(shard).iter().rfind(shares).copied()
}

fn exchange(pass: &mut Pass<'_>, shard: Ord32, leaving: Ord32) {
    let (target, limited) = copy_target(pass, shard, leaving);
    let world = &pass.world;
    let before = span(world, world.voters(shard));
    let wider = |b: Ord32| {
        let kept = world.voters(shard).filter(|v| *v != leaving);
        span(world, kept.chain([b])) > before
    };
    match target {
        Some(to) if !wider(to) => return,
        None if !limited => return,
        _ => {}
    }
    if let Some(detail) = pass.loss.held.clone() {
        return pass.wait(shard, WaitingOn::MassLoss, detail);
    }
    if world.snapshot.paused {
        return pass.wait(shard, WaitingOn::Paused, "placement is paused".to_owned());
    }
    if let Some((on, detail)) = pass.slots.full(&pass.world, Pool::Moves) {
        return pass.wait(shard, on, detail);
    }
    let Some(joining) = target else { return wait_for_broker(pass, shard) };
    let detail = format!("{} shares a zone with another copy", pass.world.name(leaving));
    let kind = (Step::Reseat, MoveReason::Spread, Pool::Moves);
    start_follower_copy(pass, shard, kind, (joining, leaving), detail);
}
