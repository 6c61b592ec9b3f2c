//! Starting moves: where a leader may go, where a copy may go, and the write that starts it.

use std::cmp::Reverse;

use evenkeel_model::{Move, MoveReason, ShardState};

use crate::decision::{Reason, Step, WaitingOn};
use crate::disk::Disk;
use crate::given_up::given_up_lately;
use crate::pass::{Draft, Pass, started};
use crate::phases::advance::is_close;
use crate::phases::failover::caught_up_followers;
use crate::slots::{Flight, Pool};
use crate::world::{Ord32, Shape, Standing};
use crate::zones::{span, span_after_move};

/// What moving a leader to some broker takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// It is a caught-up follower: no bytes.
    Transfer,
    /// It needs a copy.
    Copy,
    /// It is a follower that has still to catch up, good only where there is nobody else.
    Follower,
}

/// Where a shard's leader could go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination {
    pub(crate) broker: Ord32,
    pub(crate) way: Way,
    /// Zones that the shard spans afterwards.
    pub(crate) zones: usize,
}

/// What moving the shard's leader to `broker` takes; none if it may not go there.
pub(crate) fn way_to(pass: &Pass<'_>, shard: Ord32, broker: Ord32) -> Option<Way> {
    let world = &pass.world;
    let facts = world.shard(shard);
    if broker == facts.leader {
        return None;
    }
    if !world.followers(shard).contains(&broker) {
        let takes = pass.has_room(broker) && world.disk(broker) != Disk::Full;
        return takes.then_some(Way::Copy);
    }
    let bound = world.policy.move_fence_max_lag_records;
    match is_close(world.report(shard, broker), bound) {
        Ok(()) if caught_up_followers(pass, shard).contains(&broker) => Some(Way::Transfer),
        Ok(()) => Some(Way::Follower),
        Err(_) => world.halted(shard, broker).is_none().then_some(Way::Follower),
    }
}

/// Every broker that could lead the shard next, in order of id.
pub(crate) fn destinations(pass: &Pass<'_>, shard: Ord32) -> Vec<Destination> {
    let world = &pass.world;
    let shape = world.shape(shard);
    let factor = world.stream_of(shard).factor();
    let targets = &world.group_of(shard).targets;
    let legal = targets.iter().filter_map(|b| way_to(pass, shard, *b).map(|way| (*b, way)));
    legal
        .map(|(broker, way)| {
            let zones = span_after_move(world, shard, &shape, broker, factor);
            Destination { broker, way, zones }
        })
        .collect()
}

/// Whether the limit on copies per broker lets this move start.
pub(crate) fn fits_brokers(pass: &Pass<'_>, shard: Ord32, to: Ord32, way: Way) -> bool {
    let leader = pass.world.shard(shard).leader;
    way != Way::Copy
        || (pass.slots.broker_has_room(&pass.world, leader)
            && pass.slots.broker_has_room(&pass.world, to))
}

/// Says that a copy waits for a broker's slot.
pub(crate) fn wait_for_broker(pass: &mut Pass<'_>, shard: Ord32) {
    let world = &pass.world;
    let leader = world.shard(shard).leader;
    let max = world.policy.moves_max_per_node.unwrap_or_default();
    let whose = if pass.slots.broker_has_room(world, leader) {
        "any broker that could take it".to_owned()
    } else {
        world.name(leader).to_owned()
    };
    let detail = format!("for a slot on {whose}: the limit is {max} copies per broker");
    pass.wait(shard, WaitingOn::BrokerSlots, detail);
}

/// Starts the move of a leader: fenced at once if the destination is level, else staged.
pub(crate) fn start_leader_move(
    pass: &mut Pass<'_>,
    shard: Ord32,
    to: Ord32,
    reason: MoveReason,
    detail: String,
) {
    let world = &pass.world;
    let shape = world.shape(shard);
    let way = way_to(pass, shard, to).unwrap_or(Way::Copy);
    let state = world.state(shard);
    let at_once = way == Way::Transfer && !world.is_opening(shard);
    let flight = match way {
        Way::Transfer | Way::Follower => Flight::transfer(),
        Way::Copy => Flight::copy(Pool::Moves, shape.leader, to),
    };
    let record = started(world, shard, reason);
    let fenced_at_ms = at_once.then_some(world.now);
    let draft = Draft {
        step: if at_once { Step::Fence } else { Step::Stage },
        reason: Reason::Move(reason),
        from: shape.leader,
        to,
        shape: Shape { successor: to, ..shape },
        state: if at_once { ShardState::Draining } else { state },
        move_: Some(Move { fenced_at_ms, ..record }),
        flight: Some(flight),
        outcome: None,
        detail,
    };
    pass.write(shard, draft);
}

/// Whether any broker could lead the shard next, limits aside.
pub(crate) fn can_move(pass: &Pass<'_>, shard: Ord32) -> bool {
    let targets = &pass.world.group_of(shard).targets;
    targets.iter().any(|b| way_to(pass, shard, *b).is_some())
}

/// Whether a broker may be given one more copy of the shard, limits aside.
pub(crate) fn may_hold(pass: &Pass<'_>, shard: Ord32, broker: Ord32) -> bool {
    pass.has_room(broker)
        && pass.world.disk(broker) != Disk::Full
        && pass.world.voters(shard).all(|v| v != broker)
}

/// Whether any broker may be given one more copy of the shard, limits aside.
pub(crate) fn can_copy(pass: &Pass<'_>, shard: Ord32) -> bool {
    let targets = &pass.world.group_of(shard).targets;
    targets.iter().any(|b| may_hold(pass, shard, *b))
}

/// Where a copy of the shard may go in place of `leaving` (or beside the set), the limit on copies
/// per broker kept: first where none was given up lately, then most zones, then where the disk has
/// room, then fewest copies under way, then fewest roles, then the rendezvous score.
pub(crate) fn copy_target(pass: &Pass<'_>, shard: Ord32, leaving: Ord32) -> Option<Ord32> {
    let world = &pass.world;
    if !pass.slots.broker_has_room(world, world.shard(shard).leader) {
        return None;
    }
    let key_hash = world.key_hash(shard);
    let stays = |b: &Ord32| *b != leaving && world.standing(*b) != Standing::Lost;
    let kept: Vec<Ord32> = world.voters(shard).filter(stays).collect();
    let targets = world.group_of(shard).targets.iter().copied();
    let legal =
        targets.filter(|b| may_hold(pass, shard, *b) && pass.slots.broker_has_room(world, *b));
    let failed = given_up_lately(world, shard);
    legal.min_by_key(|b| {
        let zones = span(world, kept.iter().copied().chain([*b]));
        let roles = pass.tally.held[*b as usize];
        let rendezvous = Reverse(world.rendezvous(key_hash, *b));
        let copies = pass.slots.copies(*b);
        (failed.contains(b), Reverse(zones), world.disk(*b), copies, roles, rendezvous, *b)
    })
}

/// Starts the copy of a follower: `restore` or `reseat`.
pub(crate) fn start_follower_copy(
    pass: &mut Pass<'_>,
    shard: Ord32,
    (step, reason, pool): (Step, MoveReason, Pool),
    (joining, leaving): (Ord32, Ord32),
    detail: String,
) {
    let world = &pass.world;
    let shape = world.shape(shard);
    let draft = Draft {
        step,
        reason: Reason::Move(reason),
        from: leaving,
        to: joining,
        flight: Some(Flight::copy(pool, shape.leader, joining)),
        shape: Shape { joining, leaving, ..shape },
        state: world.state(shard),
        move_: Some(started(world, shard, reason)),
        outcome: None,
        detail,
    };
    pass.write(shard, draft);
}
