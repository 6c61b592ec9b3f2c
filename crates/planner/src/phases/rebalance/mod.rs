//! Rebalance: three objectives in order, each only when the one before wants nothing. First each
//! stream's leaders, then the totals (or, when load rebalancing is on, the load).
//!
//! Every move lowers (sum of the streams' squares, sum of the totals' squares or the coefficient of
//! variation) lexicographically, so that moves cannot undo each other.

mod load;
mod pick;
mod streams;
mod totals;

use evenkeel_model::{MoveReason, ShardState};

use crate::decision::WaitingOn;
use crate::moves::{start_leader_move, wait_for_broker};
use crate::pass::{Pass, resting};
use crate::slots::Pool;
use crate::world::{Ord32, Standing};
use pick::{Moved, Pick};

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
    let mut moved = Moved::default();
    if leaders && pass.switches.stream_tiers && streams::run(pass, &mut moved) != Wish::Nothing {
        return;
    }
    if load {
        load::run(pass, &mut moved);
    } else if leaders {
        totals::run(pass, &mut moved);
    }
}

/// Whether a shard may be moved to even something out: it is served by a live broker, nothing is
/// under way, and it does not rest.
fn is_movable(pass: &Pass<'_>, shard: Ord32) -> bool {
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

/// Says that a wanted move waits only for a broker's slot.
fn limited(pass: &mut Pass<'_>, shard: Option<Ord32>) -> Wish {
    match shard {
        Some(shard) => {
            wait_for_broker(pass, shard);
            Wish::Held
        }
        None => Wish::Nothing,
    }
}
