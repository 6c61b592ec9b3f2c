//! Hand-over: a fenced shard goes to its destination once its leader drained, to another replica
//! that holds everything, or back to its leader.

use evenkeel_model::{Move, MoveOutcome, MoveReason, Phase, ShardState};

use crate::decision::{Reason, Step, WaitingOn};
use crate::pass::{Draft, Pass};
use crate::phases::advance::move_of;
use crate::phases::failover::best_replica;
use crate::world::{NONE, Ord32, Shape, Standing, World};
use crate::zones::followers_after;

/// The longest rest after fences that were given up.
const LONGEST_REST_MS: i64 = 3_600_000;

/// What a destination may get.
enum Destination {
    /// The shard.
    Ready,
    /// Nothing any more, and why.
    Gone(String),
    /// The shard, but not yet, and why.
    Behind(String),
}

/// A leader drains while its destination holds everything. What became of that since, only the
/// destination knows: its own word counts, and the leader's while it has said nothing and is not
/// known to have started again.
fn destination(world: &World<'_>, shard: Ord32, to: Ord32) -> Destination {
    let name = world.name(to);
    match world.standing(to) {
        Standing::Leaving | Standing::Lost => Destination::Gone(format!("{name} was lost")),
        Standing::Unregistered => Destination::Behind(format!("{name} lost its registration")),
        Standing::Target | Standing::Draining => {
            if let Some(why) = world.halted(shard, to) {
                return Destination::Gone(format!("{name} halted ({why})"));
            }
            match world.report(shard, to) {
                Some(report) if !report.caught_up => {
                    Destination::Behind(format!("{name} says that it does not hold everything"))
                }
                None if began_anew(world, shard, to) => Destination::Behind(format!(
                    "{name} registered after the fence and has not said that it holds everything"
                )),
                _ => Destination::Ready,
            }
        }
    }
}

/// Whether a broker registered after the shard was fenced. Until it speaks of the shard, nobody
/// knows what its disk holds.
fn began_anew(world: &World<'_>, shard: Ord32, broker: Ord32) -> bool {
    let since = world.brokers[broker as usize].view.map(|v| v.since_ms);
    let record = world.assignment(shard).and_then(|a| a.move_.as_ref());
    since.zip(record.and_then(|m| m.fenced_at_ms)).is_some_and(|(since, fenced)| since > fenced)
}

pub(super) fn run(pass: &mut Pass<'_>, shard: Ord32) {
    let world = &pass.world;
    let shape = world.shape(shard);
    let drained = world
        .report(shard, shape.leader)
        .is_some_and(|r| r.drained || r.phase == Some(Phase::Drained));
    if drained { stopped(pass, shard, shape) } else { stopping(pass, shard, shape) }
}

/// The leader's log is whole and grows no more.
fn stopped(pass: &mut Pass<'_>, shard: Ord32, shape: Shape) {
    let world = &pass.world;
    let record = move_of(pass, shard);
    if shape.successor == shape.leader {
        return retake(pass, shard, shape, record);
    }
    let leads = world.standing(shape.leader).may_lead();
    match destination(world, shard, shape.successor) {
        Destination::Ready => cut_over(pass, shard, &shape, shape.successor, record.reason),
        Destination::Gone(_) => {
            if let Some(other) = best_replica(pass, shard, NONE) {
                cut_over(pass, shard, &shape, other, record.reason);
            } else if leads {
                retake(pass, shard, shape, record);
            }
        }
        Destination::Behind(why) => {
            if leads && is_overdue(pass, &record) {
                let timeout = world.policy.fence_timeout_ms;
                let leader = world.name(shape.leader);
                let why = format!("{why} after {timeout} ms, and {leader} serves again");
                return give_up(pass, shard, shape, record, &why);
            }
            pass.wait(shard, WaitingOn::CopyBehind, why);
        }
    }
}

fn stopping(pass: &mut Pass<'_>, shard: Ord32, shape: Shape) {
    let world = &pass.world;
    if !world.standing(shape.leader).may_lead() {
        return;
    }
    let record = move_of(pass, shard);
    let leader = world.name(shape.leader);
    if is_overdue(pass, &record) {
        let timeout = world.policy.fence_timeout_ms;
        let why = format!("{leader} did not drain within {timeout} ms and serves again");
        return give_up(pass, shard, shape, record, &why);
    }
    let gone = match destination(world, shard, shape.successor) {
        _ if shape.successor == shape.leader => Some(format!("{leader} leads already")),
        Destination::Gone(why) => Some(why),
        _ => None,
    };
    if let Some(why) = gone.filter(|_| shape.successor != NONE) {
        let draft = Draft {
            step: Step::Abandon,
            reason: Reason::Move(record.reason),
            from: shape.leader,
            to: shape.successor,
            shape: Shape { successor: NONE, ..shape },
            state: ShardState::Draining,
            move_: Some(record),
            flight: None,
            outcome: Some(MoveOutcome::GivenUp),
            detail: format!("{why} before the cut-over"),
        };
        return pass.write(shard, draft);
    }
    let detail = format!("{leader} has not reported that it drained");
    pass.wait(shard, WaitingOn::LeaderStopping, detail);
}

fn is_overdue(pass: &Pass<'_>, record: &Move) -> bool {
    let timeout = pass.world.policy.fence_timeout_ms;
    let since = record.fenced_at_ms.unwrap_or(record.started_at_ms);
    timeout > 0 && pass.world.now.saturating_sub(since) > timeout
}

fn cut_over(pass: &mut Pass<'_>, shard: Ord32, shape: &Shape, to: Ord32, reason: MoveReason) {
    let factor = pass.world.stream_of(shard).factor();
    let followers = followers_after(&pass.world, shard, shape, to, factor);
    let detail = format!("{} drained", pass.world.name(shape.leader));
    let next = Shape { leader: to, followers, successor: NONE, joining: NONE, leaving: NONE };
    let draft = Draft {
        step: Step::CutOver,
        reason: Reason::Move(reason),
        from: shape.leader,
        to,
        shape: next,
        state: ShardState::Assigning,
        move_: None,
        flight: None,
        outcome: Some(MoveOutcome::CutOver),
        detail,
    };
    pass.write(shard, draft);
}

fn retake(pass: &mut Pass<'_>, shard: Ord32, shape: Shape, record: Move) {
    let draft = Draft {
        step: Step::Retake,
        reason: Reason::Move(record.reason),
        from: shape.leader,
        to: shape.leader,
        detail: "the destination is gone and no other replica holds everything".to_owned(),
        shape: Shape { successor: NONE, joining: NONE, leaving: NONE, ..shape },
        state: ShardState::Assigning,
        // Nothing was finished: earlier give-ups count on.
        move_: Some(Move { fenced_at_ms: None, ..record }).filter(|m| m.give_ups > 0),
        flight: None,
        outcome: None,
    };
    pass.write(shard, draft);
}

fn give_up(pass: &mut Pass<'_>, shard: Ord32, shape: Shape, record: Move, why: &str) {
    let timeout = pass.world.policy.fence_timeout_ms;
    let give_ups = record.give_ups.saturating_add(1);
    let doublings = record.give_ups.min(32);
    let rest = timeout.saturating_mul(1_i64 << doublings).min(LONGEST_REST_MS.max(timeout));
    let detail = format!("{why}; the next try rests {rest} ms");
    let move_ = Move {
        fenced_at_ms: None,
        progress_at_ms: None,
        give_ups,
        next_try_ms: Some(pass.world.now.saturating_add(rest)),
        ..record
    };
    let draft = Draft {
        step: Step::TimedOut,
        reason: Reason::Move(move_.reason),
        from: shape.leader,
        to: shape.successor,
        shape: Shape { successor: NONE, joining: NONE, leaving: NONE, ..shape },
        state: ShardState::Assigning,
        move_: Some(move_),
        flight: None,
        outcome: Some(MoveOutcome::GivenUp),
        detail,
    };
    pass.write(shard, draft);
}
