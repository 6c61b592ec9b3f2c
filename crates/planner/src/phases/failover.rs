//! Failover: a shard whose leader is lost, or runs and has halted, goes to a replica that is known to
//! hold everything, or waits for its broker. An empty copy is named only where the stream is not
//! durable.

use std::cmp::Reverse;

use evenkeel_model::{MarkerReason, MoveReason, ShardReport, ShardState};

use crate::decision::{Reason, RefusedBecause, Step, WaitingOn};
use crate::disk::Disk;
use crate::pass::{Draft, Pass};
use crate::phases::place;
use crate::slots::Slots;
use crate::world::{NONE, Ord32, Shape, Standing, World};

pub(crate) fn run(pass: &mut Pass<'_>) {
    for shard in pass.lists.leaderless.clone() {
        if pass.is_written(shard) {
            continue;
        }
        match best_replica(pass, shard, NONE) {
            Some(replica) => promote(pass, shard, replica),
            None => without_replica(pass, shard),
        }
    }
}

/// Followers that hold everything at the assignment's generation.
pub(crate) fn caught_up_followers(pass: &Pass<'_>, shard: Ord32) -> Vec<Ord32> {
    let holds = |b: &Ord32| {
        let report = pass.world.report(shard, *b);
        report.is_some_and(|r| r.caught_up && r.halted_because().is_none())
    };
    pass.world.followers(shard).iter().copied().filter(holds).collect()
}

/// The caught-up follower to lead next: one whose disk is not full first, then under both shares,
/// then the furthest log, then as any leader is chosen. One on a draining broker only when there is
/// no other.
pub(crate) fn best_replica(pass: &Pass<'_>, shard: Ord32, except: Ord32) -> Option<Ord32> {
    let world = &pass.world;
    let replicas = caught_up_followers(pass, shard);
    let of = |standing: Standing| -> Vec<Ord32> {
        let fits = |b: &&Ord32| world.standing(**b) == standing && **b != except;
        replicas.iter().filter(fits).copied().collect()
    };
    let live = of(Standing::Target);
    let mut candidates = if live.is_empty() { of(Standing::Draining) } else { live };
    let rules = pass.rules();
    let stream = world.shard(shard).stream;
    let end = |b: Ord32| world.report(shard, b).and_then(|r| r.log_end).unwrap_or(0);
    let rank = |b: Ord32| {
        let full = world.disk(b) == Disk::Full;
        (full, !rules.tier(stream, b).under_both(), Reverse(end(b)))
    };
    let best = candidates.iter().map(|b| rank(*b)).min()?;
    candidates.retain(|b| rank(*b) == best);
    candidates.sort_unstable();
    rules.choose(stream, world.key_hash(shard), &candidates).map(|(b, _)| b)
}

pub(crate) fn promote(pass: &mut Pass<'_>, shard: Ord32, replica: Ord32) {
    let world = &pass.world;
    let shape = world.shape(shard);
    // The lost leader keeps its seat until a restore replaces it: a set changes one at a time.
    let mut followers: Vec<Ord32> =
        shape.followers.iter().copied().filter(|b| *b != replica).collect();
    if shape.leader != NONE {
        followers.push(shape.leader);
    }
    // A copy that is under way for the set goes on under the new leader.
    let goes_on = shape.successor == NONE
        && shape.joining != NONE
        && shape.leaving != replica
        && world.standing(shape.joining) == Standing::Target;
    let (joining, leaving) = if goes_on { (shape.joining, shape.leaving) } else { (NONE, NONE) };
    let record = world.assignment(shard).and_then(|a| a.move_.clone());
    let detail = match world.leader_halted(shard) {
        Some(why) => format!(
            "{} halted ({why}) and {} holds everything",
            world.name(shape.leader),
            world.name(replica)
        ),
        None => format!(
            "{} is lost and {} holds everything",
            world.name(shape.leader),
            world.name(replica)
        ),
    };
    let draft = Draft {
        step: Step::Promote,
        reason: Reason::Marker(MarkerReason::Failover),
        from: shape.leader,
        to: replica,
        flight: if goes_on { Slots::under(world, shard, replica) } else { None },
        shape: Shape { leader: replica, followers, successor: NONE, joining, leaving },
        state: ShardState::Assigning,
        move_: record.filter(|_| goes_on),
        outcome: None,
        detail,
    };
    pass.write(shard, draft);
}

fn without_replica(pass: &mut Pass<'_>, shard: Ord32) {
    let world = &pass.world;
    let broker_is_gone = !world.standing(world.shard(shard).leader).may_lead();
    if broker_is_gone && !world.stream_of(shard).stream.durable {
        return place::leader(pass, shard, MarkerReason::Failover);
    }
    if let Some((to, detail)) = who_serves_again(world, shard) {
        return serve_again(pass, shard, to, detail);
    }
    let leader = world.shard(shard).leader;
    let owner = match (leader, world.leader_halted(shard)) {
        (NONE, _) => "its leader is lost".to_owned(),
        (b, None) => format!("its leader {} is lost", world.name(b)),
        (b, Some(why)) => format!("its leader {} halted ({why})", world.name(b)),
    };
    let followers: Vec<&str> = world.followers(shard).iter().map(|b| world.name(*b)).collect();
    if followers.is_empty() {
        let detail = format!("{owner} and no other broker holds it; it waits for that broker");
        return pass.wait(shard, WaitingOn::OwnerUnavailable, detail);
    }
    let detail =
        format!("{owner} and none of {} is known to hold everything", followers.join(", "));
    pass.refuse(shard, RefusedBecause::NoCaughtUpReplica, detail);
}

/// Who may lead a shard whose leader declined its generation, so that what was committed before is
/// all there is: who handed it over and says that its log was whole, or else that leader itself once
/// its log can be opened again.
fn who_serves_again(world: &World<'_>, shard: Ord32) -> Option<(Ord32, String)> {
    let facts = world.shard(shard);
    let word = world.report(shard, facts.leader).filter(|r| r.declined)?;
    let name = world.name(facts.leader);
    let before = facts.generation.checked_sub(1)?;
    let drained =
        |r: &&ShardReport| r.generation == before && r.drained && r.halted_because().is_none();
    let reports = world.snapshot.reports.get(&world.key(shard))?;
    let drained = reports.iter().filter(drained).filter_map(|r| world.broker_named(&r.broker));
    let mut former =
        drained.filter(|b| world.standing(*b).holds() && world.voters(shard).all(|v| v != *b));
    if let Some(former) = former.next() {
        let why = word.halted_because().unwrap_or_default();
        let former_name = world.name(former);
        let detail =
            format!("{name} halted ({why}) before it served, and {former_name} holds everything");
        return Some((former, detail));
    }
    let mended = word.is_mended() && world.standing(facts.leader).holds();
    mended.then(|| (facts.leader, format!("the log of {name} can be opened again")))
}

fn serve_again(pass: &mut Pass<'_>, shard: Ord32, to: Ord32, detail: String) {
    let world = &pass.world;
    let shape = world.shape(shard);
    let key = world.key(shard);
    let of_shard = world.snapshot.history.iter().rev().find(|h| h.shard == key);
    let reason = of_shard.map_or(MoveReason::Restore, |h| h.reason);
    let draft = Draft {
        step: Step::Retake,
        reason: Reason::Move(reason),
        from: shape.leader,
        to,
        shape: Shape { leader: to, successor: NONE, joining: NONE, leaving: NONE, ..shape },
        state: ShardState::Assigning,
        move_: None,
        flight: None,
        outcome: None,
        detail,
    };
    pass.write(shard, draft);
}
