//! Advance: moves in flight finish, or are given up, before anything new starts.

use evenkeel_model::{Move, MoveOutcome, MoveReason, ShardReport, ShardState};

use crate::decision::{Reason, Step, Waiting, WaitingOn};
use crate::given_up::at_once;
use crate::pass::{Draft, Pass};
use crate::pauses;
use crate::phases::hand_over;
use crate::slots::Slots;
use crate::world::{NONE, Ord32, Shape, Standing};

pub(crate) fn run(pass: &mut Pass<'_>) {
    for shard in pass.lists.moving.clone() {
        let Some(assignment) = pass.world.assignment(shard) else { continue };
        if assignment.state == ShardState::Draining {
            hand_over::run(pass, shard);
        } else if !leads(pass, shard) {
            // Failover's business.
        } else if assignment.successor.is_some() {
            staged(pass, shard);
        } else {
            copying(pass, shard);
        }
    }
}

/// Whether the leader is there to hand anything over.
fn leads(pass: &Pass<'_>, shard: Ord32) -> bool {
    let world = &pass.world;
    world.standing(world.shard(shard).leader).may_lead() && world.leader_halted(shard).is_none()
}

/// The move record, or one made up for a snapshot that left it out.
pub(super) fn move_of(pass: &Pass<'_>, shard: Ord32) -> Move {
    let assignment = pass.world.assignment(shard);
    assignment.and_then(|a| a.move_.clone()).unwrap_or(Move {
        reason: MoveReason::Operator,
        started_at_ms: pass.world.now,
        fenced_at_ms: None,
        progress_at_ms: None,
        give_ups: 0,
        next_try_ms: None,
    })
}

fn stored_state(pass: &Pass<'_>, shard: Ord32) -> ShardState {
    pass.world.state(shard)
}

/// Whether an agent's report says that its broker is close enough to take over, or why not.
pub(crate) fn is_close(report: Option<&ShardReport>, bound: u64) -> Result<(), String> {
    match report {
        None => Err("it has not reported at this generation".to_owned()),
        Some(r) => match (r.halted_because(), r.lag_records) {
            (Some(why), _) => Err(format!("it halted: {why}")),
            (None, Some(lag)) if lag <= bound => Ok(()),
            (None, Some(lag)) => {
                Err(format!("it is {lag} records behind and the bound is {bound}"))
            }
            (None, None) if r.caught_up => Ok(()),
            (None, None) => Err("the leader does not count it yet".to_owned()),
        },
    }
}

fn staged(pass: &mut Pass<'_>, shard: Ord32) {
    let world = &pass.world;
    let shape = world.shape(shard);
    let record = move_of(pass, shard);
    let name = world.name(shape.successor).to_owned();
    let level = shape.successor == shape.leader;
    if let Some(why) = unusable(world.standing(shape.successor), level) {
        return end_copy(pass, shard, Step::Abandon, format!("{name} {why}"));
    }
    let bound = world.policy.move_fence_max_lag_records;
    let close = is_close(world.report(shard, shape.successor), bound);
    let serves = !world.is_opening(shard);
    if close.is_ok() && serves && world.standing(shape.successor) == Standing::Target {
        let draft = Draft {
            step: Step::Fence,
            reason: Reason::Move(record.reason),
            from: shape.leader,
            to: shape.successor,
            flight: Slots::under(world, shard, shape.leader),
            detail: format!("{name} is within {bound} records"),
            shape,
            state: ShardState::Draining,
            move_: Some(Move { fenced_at_ms: Some(world.now), ..record }),
            outcome: None,
        };
        return pass.write(shard, draft);
    }
    if let Some(detail) = at_once(pass, shard, shape.successor, record.reason) {
        return end_copy(pass, shard, Step::Abandon, detail);
    }
    if let Some(detail) = overdue(pass, shard, &record) {
        return end_copy(pass, shard, Step::TimedOut, detail);
    }
    let detail = match close {
        Err(why) => format!("{name} is the destination; {why}"),
        Ok(()) if !serves => format!("{} does not serve yet", world.name(shape.leader)),
        Ok(()) => format!("{name} lost its registration"),
    };
    wait_for_copy(pass, shard, detail);
}

/// Says why a copy under way is not done: an operator holds it, or it is behind.
fn wait_for_copy(pass: &mut Pass<'_>, shard: Ord32, behind: String) {
    match pauses::held(&pass.world, shard) {
        Some(pause) => {
            let detail = format!("{behind}; {}", pauses::words(pause));
            pass.wait_as(shard, Waiting::for_pause(pause, detail));
        }
        None => pass.wait(shard, WaitingOn::CopyBehind, behind),
    }
}

fn copying(pass: &mut Pass<'_>, shard: Ord32) {
    let world = &pass.world;
    let shape = world.shape(shard);
    let record = move_of(pass, shard);
    let name = world.name(shape.joining).to_owned();
    if let Some(why) = unusable(world.standing(shape.joining), shape.votes(shape.joining)) {
        return end_copy(pass, shard, Step::Abandon, format!("{name} {why}"));
    }
    let restore = record.reason == MoveReason::Restore;
    if restore && shape.leaving != NONE && world.is_live(shard, shape.leaving) {
        let detail = format!("{} came back", world.name(shape.leaving));
        return end_copy(pass, shard, Step::Abandon, detail);
    }
    let seatable = is_seatable(pass, shard, &shape);
    if seatable.is_ok() && world.standing(shape.joining) == Standing::Target {
        return seat(pass, shard, shape, record.reason);
    }
    if let Some(detail) = at_once(pass, shard, shape.joining, record.reason) {
        return end_copy(pass, shard, Step::Abandon, detail);
    }
    if let Some(detail) = overdue(pass, shard, &record) {
        return end_copy(pass, shard, Step::TimedOut, detail);
    }
    let stall = world.policy.restore_stall_ms;
    let counts = pauses::counts_from(world, shard, record.started_at_ms);
    let moved = record.progress_at_ms.unwrap_or(counts).max(counts);
    if restore && stall > 0 && world.now.saturating_sub(moved) > stall {
        let detail = format!("the copy on {name} stood still for more than {stall} ms");
        return end_copy(pass, shard, Step::Stalled, detail);
    }
    let detail = match seatable {
        Err(why) => format!("{name} is joining; {why}"),
        Ok(()) => format!("{name} lost its registration"),
    };
    wait_for_copy(pass, shard, detail);
}

/// A joiner may vote when it is close, and holds what a majority of the old set holds: then no
/// record that was acknowledged can be lost by the exchange.
fn is_seatable(pass: &Pass<'_>, shard: Ord32, shape: &Shape) -> Result<(), String> {
    let world = &pass.world;
    let report = world.report(shard, shape.joining);
    let whole = report.is_some_and(|r| r.caught_up && r.halted_because().is_none());
    if !whole {
        is_close(report, world.policy.move_fence_max_lag_records)?;
    }
    let end = |b: Ord32| world.report(shard, b).and_then(|r| r.log_end);
    let mut ends: Vec<u64> = shape.voters().map(|b| end(b).unwrap_or(0)).collect();
    ends.sort_unstable_by(|a, b| b.cmp(a));
    let majority = ends.get(ends.len() / 2).copied().unwrap_or(0);
    let reached = report.and_then(|r| r.log_end).or_else(|| {
        let lag = report.and_then(|r| r.lag_records.or(r.caught_up.then_some(0)))?;
        end(shape.leader).map(|leader| leader.saturating_sub(lag))
    });
    match reached {
        Some(at) if at < majority => {
            Err(format!("it holds {at} records and a majority holds {majority}"))
        }
        _ => Ok(()),
    }
}

fn seat(pass: &mut Pass<'_>, shard: Ord32, shape: Shape, reason: MoveReason) {
    let (joining, leaving) = (shape.joining, shape.leaving);
    let mut followers: Vec<Ord32> =
        shape.followers.iter().copied().filter(|b| *b != leaving).collect();
    followers.push(joining);
    let detail = format!("{} holds what a majority holds", pass.world.name(joining));
    let draft = Draft {
        step: Step::Seat,
        reason: Reason::Move(reason),
        from: leaving,
        to: joining,
        shape: Shape { followers, joining: NONE, leaving: NONE, ..shape },
        state: stored_state(pass, shard),
        move_: None,
        flight: None,
        outcome: Some(MoveOutcome::CutOver),
        detail,
    };
    pass.write(shard, draft);
}

/// Why a destination or joiner has to be dropped. `there` tells that it is what it should become.
fn unusable(standing: Standing, there: bool) -> Option<&'static str> {
    match standing {
        _ if there => Some("is there already"),
        Standing::Target | Standing::Unregistered => None,
        Standing::Draining | Standing::Leaving => Some("is leaving"),
        Standing::Lost => Some("is lost"),
    }
}

fn overdue(pass: &Pass<'_>, shard: Ord32, record: &Move) -> Option<String> {
    let timeout = pass.world.policy.move_timeout_ms;
    let counts = pauses::counts_from(&pass.world, shard, record.started_at_ms);
    let age = pass.world.now.saturating_sub(counts);
    (timeout > 0 && age > timeout).then(|| format!("not done after more than {timeout} ms"))
}

/// Drops the destination or joiner; the set stays as it is. A give-up leaves a trace.
pub(crate) fn end_copy(pass: &mut Pass<'_>, shard: Ord32, step: Step, detail: String) {
    let shape = pass.world.shape(shard);
    let record = move_of(pass, shard);
    let reason = record.reason;
    let gives_up = matches!(step, Step::TimedOut | Step::Stalled);
    let move_ = if gives_up {
        Some(Move { give_ups: record.give_ups.saturating_add(1), ..record })
    } else {
        // Give-ups in a row count on across an abandoned try.
        Some(record).filter(|m| m.give_ups > 0)
    };
    let (from, to) = if shape.successor != NONE {
        (shape.leader, shape.successor)
    } else {
        (shape.leaving, shape.joining)
    };
    let draft = Draft {
        step,
        reason: Reason::Move(reason),
        from,
        to,
        shape: Shape { successor: NONE, joining: NONE, leaving: NONE, ..shape },
        state: stored_state(pass, shard),
        move_,
        flight: None,
        outcome: Some(MoveOutcome::GivenUp),
        detail,
    };
    pass.write(shard, draft);
}
