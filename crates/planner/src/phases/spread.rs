//! Spread: a follower that shares a zone is replaced by one in a zone that its shard lacks.

use evenkeel_model::{MoveReason, ShardState};

use crate::decision::{Step, WaitingOn};
use crate::moves::{copy_target, start_follower_copy, wait_for_broker};
use crate::pass::{Pass, gave_up, resting};
use crate::pauses::Copy;
use crate::slots::Pool;
use crate::world::{Group, NONE, Ord32, World};
use crate::zones::span;

pub(crate) fn run(pass: &mut Pass<'_>) {
    if pass.world.zones < 2 {
        return;
    }
    let mut rooms = Rooms::new(pass);
    for (_, shard, leaving) in in_turn(pass) {
        if rooms.has_any(&pass.world, shard) && exchange(pass, shard, leaving) {
            rooms = Rooms::new(pass);
        }
    }
}

/// Crowded shards at rest, each with the follower to replace, those whose last move was given up
/// behind the others.
fn in_turn(pass: &Pass<'_>) -> Vec<(bool, Ord32, Ord32)> {
    let world = &pass.world;
    let reach = Reach::new(world);
    let mut turn: Vec<(bool, Ord32, Ord32)> = (0..world.shard_count())
        .filter(|shard| {
            reach.is_crowded(world, *shard)
                && pass.is_at_rest(*shard)
                && world.live_replicas(*shard) == world.voters(*shard).count()
                && resting(world, *shard).is_none()
                && world.state(*shard) == ShardState::Active
        })
        .filter_map(|shard| Some((gave_up(world, shard), shard, sharing(world, shard)?)))
        .collect();
    turn.sort_unstable();
    turn
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
        if could < 2 || !world.is_placed(shard) {
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

/// Per group and zone, the targets that have room. Reckoned anew after every write.
struct Rooms {
    by_group: Vec<Vec<u32>>,
}

impl Rooms {
    fn new(pass: &Pass<'_>) -> Self {
        let world = &pass.world;
        let count = |group: &Group| {
            let mut rooms = vec![0; world.zones];
            for &broker in &group.targets {
                let zone = world.zone(broker);
                if zone != NONE && pass.has_room(broker) {
                    rooms[zone as usize] += 1;
                }
            }
            rooms
        };
        Self { by_group: world.groups.iter().map(count).collect() }
    }

    /// Whether a zone that the shard lacks has room. Nobody there holds the shard.
    fn has_any(&self, world: &World<'_>, shard: Ord32) -> bool {
        let lacks = |zone: Ord32| world.voters(shard).all(|v| world.zone(v) != zone);
        let rooms = &self.by_group[world.stream_of(shard).group];
        rooms.iter().enumerate().any(|(zone, n)| *n > 0 && lacks(zone as Ord32))
    }
}

/// Why no exchange may start now.
fn held(pass: &Pass<'_>) -> Option<(WaitingOn, String)> {
    if let Some(detail) = pass.loss.held.clone() {
        return Some((WaitingOn::MassLoss, detail));
    }
    if pass.world.snapshot.paused {
        return Some((WaitingOn::Paused, "placement is paused".to_owned()));
    }
    pass.slots.full(&pass.world, Pool::Moves)
}

/// Starts the exchange of a follower; tells whether it wrote.
fn exchange(pass: &mut Pass<'_>, shard: Ord32, leaving: Ord32) -> bool {
    if let Some((on, detail)) = held(pass) {
        pass.wait(shard, on, detail);
        return false;
    }
    let copy = Copy { reason: MoveReason::Spread, joins: true, replaces: leaving };
    if pass.is_copy_paused(shard, copy) {
        return false;
    }
    let target = copy_target(pass, shard, leaving);
    let world = &pass.world;
    let before = span(world, world.voters(shard));
    let wider = |b: &Ord32| {
        let kept = world.voters(shard).filter(|v| *v != leaving);
        span(world, kept.chain([*b])) > before
    };
    let Some(joining) = target.filter(wider) else {
        wait_for_broker(pass, shard);
        return false;
    };
    let detail = format!("{} shares a zone with another copy", pass.world.name(leaving));
    let kind = (Step::Reseat, MoveReason::Spread, Pool::Moves);
    start_follower_copy(pass, shard, kind, (joining, leaving), detail);
    true
}
