//! Rebalance: three objectives in order, each only when the one before wants nothing. First each
//! stream's leaders, then the totals (or, when load rebalancing is on, the load).
//!
//! Every move lowers (sum of the streams' squares, sum of the totals' squares or the coefficient of
//! variation) lexicographically, so that moves cannot undo each other.

pub(crate) mod filters;
mod load;
mod pick;
mod streams;
mod totals;

use evenkeel_model::{CopyClass, CopyPauseRecord, MoveReason, PauseScope, ShardState};

use crate::decision::{Waiting, WaitingOn};
use crate::given_up::all_given_up_lately;
use crate::moves::{start_leader_move, wait_for_broker};
use crate::pass::{Pass, resting};
use crate::pauses;
use crate::slots::Pool;
use crate::world::{BrokerFacts, Ord32, Standing, World};
pub(crate) use streams::WORTH;

use pick::{Asked, Hold, Moved, Pick};

/// What an objective said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// It wants nothing.
    Nothing,
    /// It started moves, or would like to.
    Moves,
    /// It would like to and found no slot: nothing after it may start.
    Held,
}

pub(crate) fn run(pass: &mut Pass<'_>) {
    let policy = &pass.world.policy.rebalancing;
    let (leaders, load) = (policy.leaders, policy.enabled);
    let no_copy = paused(&pass.world).or_else(|| away(&pass.world));
    let given_up = all_given_up_lately(&pass.world);
    let mut asked = Asked { moved: Moved::default(), no_copy, given_up, catching_up: Vec::new() };
    let streams = leaders && pass.switches.stream_tiers;
    let wish = if streams { streams::run(pass, &mut asked) } else { Wish::Nothing };
    if load && wish == Wish::Nothing {
        // Only then: moves of this pass are not in the scores yet.
        load::run(pass, &mut asked);
    }
    if !load && leaders && wish != Wish::Held {
        // Moves that just started count as finished: every stream has what it wants.
        totals::run(pass, &mut asked);
    }
}

/// Why no copy is made for balance: a broker is restarting, or has not been gone for so long that its
/// copies would be restored. What is uneven now may be even when it is back.
fn away(world: &World<'_>) -> Option<Waiting> {
    let delay = world.policy.restore_after_ms;
    let back = |b: &&BrokerFacts<'_>| match b.standing {
        Standing::Draining => b.view.is_some_and(|v| v.stopping),
        Standing::Leaving | Standing::Lost => {
            b.view.is_some_and(|v| world.now.saturating_sub(v.since_ms) <= delay)
        }
        Standing::Target | Standing::Unregistered => false,
    };
    let first = world.brokers.iter().filter(|_| delay > 0).find(back)?;
    let detail = format!("{} may come back, and no copy is made for balance until then", first.id);
    Some(Waiting::new(WaitingOn::RestoreDelay, detail))
}

/// An operator's pause of all copies for balance.
fn paused(world: &World<'_>) -> Option<Waiting> {
    let class = PauseScope::Class(CopyClass::Balance);
    let on = |p: &&CopyPauseRecord| p.scope == class && p.at_ms <= world.now && p.is_on(world.now);
    let pause = world.snapshot.copy_pauses.iter().find(on)?;
    Some(Waiting::for_pause(pause, pauses::words(pause)))
}

/// Whether a shard may be moved to even something out: it is served by a live broker, nothing is
/// under way, and it does not rest.
pub(crate) fn is_movable(pass: &Pass<'_>, shard: Ord32) -> bool {
    let world = &pass.world;
    world.standing(world.shard(shard).leader) == Standing::Target
        && pass.is_at_rest(shard)
        && resting(world, shard).is_none()
        && world.state(shard) == ShardState::Active
}

/// Starts a move, or says what it waits for.
fn begin(pass: &mut Pass<'_>, pick: Pick, reason: MoveReason, detail: String) -> Wish {
    let held = if pass.world.snapshot.paused {
        Some((WaitingOn::Paused, "placement is paused".to_owned()))
    } else if let Some(detail) = pass.loss.held.clone() {
        Some((WaitingOn::MassLoss, detail))
    } else {
        pass.slots.full(&pass.world, Pool::Moves)
    };
    if let Some((on, why)) = held {
        pass.wait(
            pick.shard,
            on,
            format!("{why}; it would go to {}: {detail}", pass.world.name(pick.to)),
        );
        return Wish::Held;
    }
    start_leader_move(pass, pick.shard, pick.to, reason, detail);
    Wish::Moves
}

/// Says that a wanted move is held, if one is.
fn held(pass: &mut Pass<'_>, asked: &Asked, held: Option<(Ord32, Hold)>) -> Wish {
    match held {
        None => return Wish::Nothing,
        Some((shard, Hold::Broker)) => wait_for_broker(pass, shard),
        Some((shard, Hold::NoCopy)) => {
            if let Some(waiting) = asked.no_copy.clone() {
                pass.wait_as(shard, waiting);
            }
        }
        Some((shard, Hold::Behind)) => {
            let detail = "a follower would take over and is not level yet".to_owned();
            pass.wait(shard, WaitingOn::CopyBehind, detail);
        }
    }
    Wish::Held
}
