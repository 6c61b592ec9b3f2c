//! Drain: leaders leave a draining broker first, then the followers there are replaced.

use evenkeel_model::MoveReason;

use crate::decision::{RefusedBecause, Step, WaitingOn};
use crate::disk::Disk;
use crate::given_up::given_up_lately;
use crate::moves::{
    Destination, Way, can_copy, can_move, copy_target, destinations, fits_brokers,
    start_follower_copy, start_leader_move, wait_for_broker,
};
use crate::pass::{Pass, gave_up, resting};
use crate::pauses::{self, Copy};
use crate::phases::place;
use crate::slots::Pool;
use crate::world::{NONE, Ord32};

pub(crate) fn run(pass: &mut Pass<'_>) {
    for shard in in_turn(pass, &pass.lists.leader_leaves) {
        leader(pass, shard);
    }
    for shard in in_turn(pass, &pass.lists.follower_leaves) {
        follower(pass, shard);
    }
}

/// Shards at rest, those whose last move was given up behind the others.
fn in_turn(pass: &Pass<'_>, shards: &[Ord32]) -> Vec<Ord32> {
    let mut turn: Vec<(bool, Ord32)> = shards
        .iter()
        .filter(|s| pass.is_at_rest(**s))
        .map(|s| (gave_up(&pass.world, *s), *s))
        .collect();
    turn.sort_unstable();
    turn.into_iter().map(|(_, s)| s).collect()
}

/// Says that a drain has nowhere to go: everybody is full, or there is nobody else.
fn refuse(pass: &mut Pass<'_>, shard: Ord32) {
    let voters: Vec<Ord32> = pass.world.voters(shard).collect();
    let (because, detail) = place::why_no_broker(pass, shard, |b| voters.contains(&b));
    let because = match because {
        RefusedBecause::NoBrokerInRegion => RefusedBecause::NoLiveBroker,
        other => other,
    };
    pass.refuse(shard, because, detail);
}

/// Whether the drain of a shard is held for now, and says so.
fn is_held(pass: &mut Pass<'_>, shard: Ord32) -> bool {
    if pass.world.snapshot.paused {
        pass.wait(shard, WaitingOn::Paused, "placement is paused".to_owned());
        return true;
    }
    if let Some(until) = resting(&pass.world, shard) {
        let left = until.saturating_sub(pass.world.now);
        let detail = format!("the last fence was given up; the next try is in {left} ms");
        pass.wait(shard, WaitingOn::Cooldown, detail);
        return true;
    }
    false
}

fn leader(pass: &mut Pass<'_>, shard: Ord32) {
    if !can_move(pass, shard) {
        return refuse(pass, shard);
    }
    if is_held(pass, shard) {
        return;
    }
    if let Some((on, detail)) = pass.slots.full(&pass.world, Pool::Moves) {
        return pass.wait(shard, on, detail);
    }
    if pass.world.is_opening(shard) {
        let detail =
            format!("{} does not serve yet", pass.world.name(pass.world.shard(shard).leader));
        return pass.wait(shard, WaitingOn::CopyBehind, detail);
    }
    let copy = Copy { reason: MoveReason::Drain, joins: false, replaces: NONE };
    let paused = pauses::holds(&pass.world, shard, copy).is_some();
    let fits = |d: &Destination| {
        fits_brokers(pass, shard, d.broker, d.way) && !(paused && d.way == Way::Copy)
    };
    let fitting: Vec<Destination> = destinations(pass, shard).into_iter().filter(fits).collect();
    let Some((to, detail)) = best_destination(pass, shard, &fitting) else {
        if pass.is_copy_paused(shard, copy) {
            return;
        }
        return wait_for_broker(pass, shard);
    };
    start_leader_move(pass, shard, to, MoveReason::Drain, detail);
}

/// Where the shard keeps most zones; then by the stream's tiers; then without a copy if that can
/// be; then as any leader is chosen. Off a broker that restarts, without a copy comes before the
/// tiers.
pub(crate) fn best_destination(
    pass: &Pass<'_>,
    shard: Ord32,
    candidates: &[Destination],
) -> Option<(Ord32, String)> {
    let rules = pass.rules();
    let stream = pass.world.shard(shard).stream;
    // A full disk takes nothing new; it leads only what nobody else can.
    // The same for where the last copy was given up.
    let failed = given_up_lately(&pass.world, shard);
    let poor = |d: &Destination| {
        let full = pass.world.disk(d.broker) == Disk::Full;
        full || (d.way == Way::Copy && failed.contains(&d.broker))
    };
    let all_poor = candidates.iter().all(poor);
    let roomy = || candidates.iter().filter(|d| all_poor || !poor(d));
    let behind = roomy().all(|d| d.way == Way::Follower);
    let eligible = || roomy().filter(|d| behind || d.way != Way::Follower);
    let zones = eligible().map(|d| d.zones).max()?;
    // A broker that restarts is empty-handed for a moment only: no bytes are worth it.
    let restarts = pass.world.restarts(pass.world.shard(shard).leader);
    let rank = |d: &Destination| {
        let level = rules.tier(stream, d.broker).of_stream();
        (restarts && d.way != Way::Transfer, level, d.way)
    };
    let widest = || eligible().filter(|d| d.zones == zones);
    let best = widest().map(rank).min()?;
    let equals: Vec<Ord32> = widest().filter(|d| rank(d) == best).map(|d| d.broker).collect();
    let (to, tier) = rules.choose(stream, pass.world.key_hash(shard), &equals)?;
    let how = match best.2 {
        Way::Transfer => "holds everything already",
        Way::Follower => "follows already",
        Way::Copy => "gets a copy",
    };
    let detail = format!("{} is {} and {how}", pass.world.name(to), tier.as_str());
    Some((to, detail))
}

fn follower(pass: &mut Pass<'_>, shard: Ord32) {
    let world = &pass.world;
    let leaves = |b: &&Ord32| world.empties(**b);
    let Some(leaving) = world.followers(shard).iter().find(leaves).copied() else { return };
    if !can_copy(pass, shard) {
        return refuse(pass, shard);
    }
    if is_held(pass, shard) {
        return;
    }
    if let Some((on, detail)) = pass.slots.full(&pass.world, Pool::Moves) {
        return pass.wait(shard, on, detail);
    }
    let copy = Copy { reason: MoveReason::Drain, joins: true, replaces: leaving };
    if pass.is_copy_paused(shard, copy) {
        return;
    }
    let Some(joining) = copy_target(pass, shard, leaving) else {
        return wait_for_broker(pass, shard);
    };
    let detail = format!("{} is draining", pass.world.name(leaving));
    let kind = (Step::Reseat, MoveReason::Drain, Pool::Moves);
    start_follower_copy(pass, shard, kind, (joining, leaving), detail);
}
