//! Moves that an operator asks for: the same steps as placement's own, refused with stable reasons.
//! Zones are reported and never a reason to refuse.

use std::fmt;

use evenkeel_model::{
    Assignment, BrokerId, Move, MoveOutcome, MoveReason, ShardKey, ShardState, Snapshot,
};
use serde::Serialize;

use crate::decision::{Decision, Reason, ShardDecision, Step};
use crate::moves::{Destination, destinations, fits_brokers, start_leader_move, way_to};
use crate::pass::{Draft, Pass, Switches};
use crate::phases::drain::best_destination;
use crate::phases::failover;
use crate::slots::{Flight, Pool};
use crate::world::{NONE, Ord32, Shape, Standing, World};
use crate::zones::{span_after_move, span_now};

/// Why an operator's request cannot be done. The words are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveRefusedBecause {
    /// The snapshot has no such shard.
    UnknownShard,
    /// The snapshot has no such broker.
    UnknownBroker,
    /// The shard has no assignment yet.
    NotPlaced,
    /// The destination is not live and registered.
    DestinationNotLive,
    /// The destination holds a copy that halted.
    DestinationHalted,
    /// The destination leads the shard.
    AlreadyLeader,
    /// The destination is at its `max_shards`.
    AtCapacity,
    /// The stream may not be placed in the destination's region.
    RegionNotAllowed,
    /// A move or copy of the shard is under way.
    AlreadyMoving,
    /// The leader is lost, so that nothing can be copied or handed over.
    LeaderUnavailable,
    /// The limit on moves is reached.
    MoveLimit,
    /// Nothing is under way for the shard.
    NotMoving,
    /// The leader is there, so that nothing may be forced.
    LeaderAvailable,
    /// The broker holds no copy of the shard.
    NotAReplica,
}

impl MoveRefusedBecause {
    /// The word used in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownShard => "unknown_shard",
            Self::UnknownBroker => "unknown_broker",
            Self::NotPlaced => "not_placed",
            Self::DestinationNotLive => "destination_not_live",
            Self::DestinationHalted => "destination_halted",
            Self::AlreadyLeader => "already_leader",
            Self::AtCapacity => "at_capacity",
            Self::RegionNotAllowed => "region_not_allowed",
            Self::AlreadyMoving => "already_moving",
            Self::LeaderUnavailable => "leader_unavailable",
            Self::MoveLimit => "move_limit",
            Self::NotMoving => "not_moving",
            Self::LeaderAvailable => "leader_available",
            Self::NotAReplica => "not_a_replica",
        }
    }
}

impl fmt::Display for MoveRefusedBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("{reason}: {detail}")]
pub struct MoveRefusal {
    /// The stable reason.
    pub reason: MoveRefusedBecause,
    /// The same as a sentence.
    pub detail: String,
}

fn refusal(reason: MoveRefusedBecause, detail: String) -> MoveRefusal {
    MoveRefusal { reason, detail }
}

/// A move that an operator asked for and may have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OperatorMove {
    /// The write that starts it: a stage, or a fence if the destination is level.
    pub decision: ShardDecision,
    /// Zones that the shard spans now.
    pub zones_before: usize,
    /// Zones that it spans afterwards.
    pub zones_after: usize,
}

struct Request<'a> {
    pass: Pass<'a>,
    shard: Ord32,
    assignment: &'a Assignment,
}

fn open<'a>(snapshot: &'a Snapshot, key: &ShardKey) -> Result<Request<'a>, MoveRefusal> {
    let pass = Pass::new(snapshot, &snapshot.policy, Switches { stream_tiers: true });
    let Some(shard) = pass.world.shard_named(key) else {
        let detail = format!("there is no shard {key}");
        return Err(refusal(MoveRefusedBecause::UnknownShard, detail));
    };
    let Some(assignment) = pass.world.assignment(shard) else {
        let detail = format!("{key} has not been placed yet");
        return Err(refusal(MoveRefusedBecause::NotPlaced, detail));
    };
    Ok(Request { pass, shard, assignment })
}

fn take(mut pass: Pass<'_>, shard: Ord32) -> Option<ShardDecision> {
    let key = pass.world.key(shard);
    pass.decisions.remove(&shard).map(|decision| ShardDecision { shard: key, decision })
}

/// Moves the leader of `shard` to `destination`, or, without one, to the broker that a drain would
/// choose.
pub fn operator_move(
    snapshot: &Snapshot,
    shard: &ShardKey,
    destination: Option<&BrokerId>,
) -> Result<OperatorMove, MoveRefusal> {
    let Request { mut pass, shard, assignment } = open(snapshot, shard)?;
    let key = &assignment.shard;
    let leader = pass.world.shard(shard).leader;
    if assignment.is_moving() {
        let detail = format!("a move of {key} is under way");
        return Err(refusal(MoveRefusedBecause::AlreadyMoving, detail));
    }
    if !pass.world.standing(leader).may_lead() {
        let detail = format!("the leader of {key} is lost");
        return Err(refusal(MoveRefusedBecause::LeaderUnavailable, detail));
    }
    if let Some(why) = pass.world.leader_halted(shard) {
        let detail = format!("the leader of {key} halted: {why}");
        return Err(refusal(MoveRefusedBecause::LeaderUnavailable, detail));
    }
    let to = match destination {
        Some(id) => check_destination(&pass, shard, id)?,
        None => any_destination(&pass, shard)?,
    };
    check_limits(&pass, shard, to)?;
    let shape = pass.world.shape(shard);
    let factor = pass.world.stream_of(shard).factor();
    let zones_before = span_now(&pass.world, &shape);
    let zones_after = span_after_move(&pass.world, shard, &shape, to, factor);
    let detail = match (zones_before, zones_after) {
        (before, after) if before != after => format!("zones {before} -> {after}"),
        _ => "asked for".to_owned(),
    };
    start_leader_move(&mut pass, shard, to, MoveReason::Operator, detail);
    let decision = take(pass, shard).expect("the move was just written");
    Ok(OperatorMove { decision, zones_before, zones_after })
}

fn check_destination(pass: &Pass<'_>, shard: Ord32, id: &BrokerId) -> Result<Ord32, MoveRefusal> {
    let world = &pass.world;
    let Some(to) = world.broker_named(id).filter(|b| world.brokers[*b as usize].view.is_some())
    else {
        let detail = format!("there is no broker {id}");
        return Err(refusal(MoveRefusedBecause::UnknownBroker, detail));
    };
    let stream = world.stream_of(shard);
    let votes = world.followers(shard).contains(&to);
    let (reason, detail) = if to == world.shard(shard).leader {
        (MoveRefusedBecause::AlreadyLeader, format!("{id} leads {} already", world.key(shard)))
    } else if world.standing(to) != Standing::Target {
        let state = world.brokers[to as usize].view.map_or("unknown", |v| v.lifecycle.as_str());
        let detail = format!("{id} is {state}: expected live and registered");
        (MoveRefusedBecause::DestinationNotLive, detail)
    } else if !world.group_of(shard).targets.contains(&to) {
        let region = stream.stream.region.as_deref().unwrap_or("-");
        let detail = format!("{} is bound to region {region} and {id} is not there", stream.key);
        (MoveRefusedBecause::RegionNotAllowed, detail)
    } else if let Some(why) = world.halted(shard, to).filter(|_| votes) {
        (MoveRefusedBecause::DestinationHalted, format!("the copy on {id} halted: {why}"))
    } else if way_to(pass, shard, to).is_none() {
        let cap = world.brokers[to as usize].cap;
        let detail = match pass.has_room(to) {
            true => world.disk_words(to),
            false => format!("{id} holds {} of {cap} shards", pass.tally.held[to as usize]),
        };
        (MoveRefusedBecause::AtCapacity, detail)
    } else {
        return Ok(to);
    };
    Err(refusal(reason, detail))
}

fn any_destination(pass: &Pass<'_>, shard: Ord32) -> Result<Ord32, MoveRefusal> {
    let all: Vec<Destination> = destinations(pass, shard);
    if let Some((to, _)) = best_destination(pass, shard, &all) {
        return Ok(to);
    }
    let world = &pass.world;
    let others = world.group_of(shard).targets.iter().any(|b| *b != world.shard(shard).leader);
    Err(if others {
        let detail =
            "every broker that could take it is at max_shards or has a full disk".to_owned();
        refusal(MoveRefusedBecause::AtCapacity, detail)
    } else {
        let detail = "there is no other live broker".to_owned();
        refusal(MoveRefusedBecause::DestinationNotLive, detail)
    })
}

fn check_limits(pass: &Pass<'_>, shard: Ord32, to: Ord32) -> Result<(), MoveRefusal> {
    if let Some((_, detail)) = pass.slots.full(&pass.world, Pool::Moves) {
        return Err(refusal(MoveRefusedBecause::MoveLimit, detail));
    }
    let Some(way) = way_to(pass, shard, to) else { return Ok(()) };
    if fits_brokers(pass, shard, to, way) {
        return Ok(());
    }
    let max = pass.world.policy.moves_max_per_node.unwrap_or_default();
    let detail = format!("the limit of {max} copies per broker is reached");
    Err(refusal(MoveRefusedBecause::MoveLimit, detail))
}

/// Ends the move of `shard`. Before the fence the destination is dropped, or stays as a joiner if
/// the set is short; after it the old leader serves again.
pub fn cancel_move(snapshot: &Snapshot, shard: &ShardKey) -> Result<ShardDecision, MoveRefusal> {
    let Request { mut pass, shard, assignment } = open(snapshot, shard)?;
    if !assignment.is_moving() {
        let detail = format!("nothing is under way for {}", assignment.shard);
        return Err(refusal(MoveRefusedBecause::NotMoving, detail));
    }
    let world = &pass.world;
    let shape = world.shape(shard);
    let fenced = assignment.state == ShardState::Draining;
    if fenced && !world.standing(shape.leader).may_lead() {
        let detail = format!("the leader of {} is lost", assignment.shard);
        return Err(refusal(MoveRefusedBecause::LeaderUnavailable, detail));
    }
    let reason = assignment.move_.as_ref().map_or(MoveReason::Operator, |m| m.reason);
    let (from, to) = match shape.successor {
        NONE => (shape.leaving, shape.joining),
        successor => (shape.leader, successor),
    };
    let joins = keeps_destination(world, shard, &shape);
    let (joining, move_, flight) = if joins {
        let record = Move {
            reason: MoveReason::Restore,
            started_at_ms: world.now,
            fenced_at_ms: None,
            progress_at_ms: None,
            give_ups: 0,
            next_try_ms: None,
        };
        let flight = Flight::copy(Pool::Moves, shape.leader, shape.successor);
        (shape.successor, Some(record), Some(flight))
    } else {
        (NONE, None, None)
    };
    let draft = Draft {
        step: Step::Cancel,
        reason: Reason::Move(reason),
        from,
        to,
        shape: Shape { successor: NONE, joining, leaving: NONE, ..shape },
        state: if fenced { ShardState::Assigning } else { world.state(shard) },
        move_,
        flight,
        outcome: Some(MoveOutcome::GivenUp),
        detail: "asked for".to_owned(),
    };
    pass.write(shard, draft);
    Ok(take(pass, shard).expect("the cancel was just written"))
}

/// Whether a cancelled destination goes on as a joiner, because the set is short.
fn keeps_destination(world: &World<'_>, shard: Ord32, shape: &Shape) -> bool {
    shape.successor != NONE
        && !shape.votes(shape.successor)
        && world.standing(shape.successor) == Standing::Target
        && shape.voters().count() < world.stream_of(shard).factor()
}

/// A failover that nothing vouches for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForcedPromotion {
    /// The write.
    pub decision: ShardDecision,
    /// Records that the lost leader may have acknowledged beyond what the replica holds; none if
    /// nobody knows.
    pub records_at_risk: Option<u64>,
}

/// Makes `replica` the leader of a shard whose leader is lost or has halted, caught up or not.
/// Acknowledged records that the replica does not hold are lost for good.
pub fn force_promote(
    snapshot: &Snapshot,
    shard: &ShardKey,
    replica: &BrokerId,
) -> Result<ForcedPromotion, MoveRefusal> {
    let Request { mut pass, shard, assignment } = open(snapshot, shard)?;
    let world = &pass.world;
    let leader = world.shard(shard).leader;
    if world.standing(leader).may_lead() && world.leader_halted(shard).is_none() {
        let detail = format!("{} leads {}: move it instead", world.name(leader), assignment.shard);
        return Err(refusal(MoveRefusedBecause::LeaderAvailable, detail));
    }
    let follower = world.broker_named(replica).filter(|b| world.followers(shard).contains(b));
    let Some(follower) = follower else {
        let detail = format!("{replica} does not follow {}", assignment.shard);
        return Err(refusal(MoveRefusedBecause::NotAReplica, detail));
    };
    if !matches!(world.standing(follower), Standing::Target | Standing::Draining) {
        let detail = format!("{replica} does not serve");
        return Err(refusal(MoveRefusedBecause::DestinationNotLive, detail));
    }
    if let Some(why) = world.halted(shard, follower) {
        let detail = format!("the copy on {replica} halted: {why}");
        return Err(refusal(MoveRefusedBecause::DestinationHalted, detail));
    }
    let last_end = |broker: &BrokerId| {
        let reports = snapshot.reports.get(&assignment.shard)?;
        reports.iter().filter(|r| r.broker == *broker).filter_map(|r| r.log_end).max()
    };
    let all = world.voters(shard).filter_map(|b| world.id(b)).filter_map(|id| last_end(&id)).max();
    let records_at_risk = all.zip(last_end(replica)).map(|(most, held)| most.saturating_sub(held));
    failover::promote(&mut pass, shard, follower);
    let decision = take(pass, shard).expect("the promotion was just written");
    Ok(ForcedPromotion { decision: forced(decision), records_at_risk })
}

/// Says in the decision that nothing vouched for it.
fn forced(mut decision: ShardDecision) -> ShardDecision {
    if let Decision::Write(write) = &mut decision.decision {
        write.detail = "forced by an operator; acknowledged records may be lost".to_owned();
    }
    decision
}
