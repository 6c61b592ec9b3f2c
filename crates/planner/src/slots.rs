//! Pacing: how many moves, repairs and copies per broker are under way, and whether one more fits.

use evenkeel_model::{CopyClass, MoveReason, ShardState};

use crate::decision::WaitingOn;
use crate::pauses;
use crate::world::{NONE, Ord32, World};

/// Whose limit a flight counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pool {
    /// `moves_max_concurrent`.
    Moves,
    /// `repairs_max_concurrent`: shards that cannot serve, or with one live replica.
    Repairs,
    /// A top-up so small that it takes no slot.
    Free,
}

/// A move or copy under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flight {
    pub(crate) pool: Pool,
    /// Source and destination of the bytes; a transfer of leadership has none.
    pub(crate) ends: Option<(Ord32, Ord32)>,
}

impl Flight {
    pub(crate) fn transfer() -> Self {
        Self { pool: Pool::Moves, ends: None }
    }

    pub(crate) fn copy(pool: Pool, source: Ord32, destination: Ord32) -> Self {
        Self { pool, ends: Some((source, destination)) }
    }
}

/// How urgent a restore is; the first is the most urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// No majority is live: the shard cannot serve until the copy completes.
    CannotServe,
    /// One live replica is left.
    LastCopy,
    /// Fewer replicas than asked for.
    Short,
}

impl Urgency {
    pub(crate) fn of(world: &World<'_>, shard: Ord32) -> Self {
        let live = world.live_replicas(shard);
        let voters = world.voters(shard).count();
        match CopyClass::of_loss(voters, live) {
            CopyClass::Unavailable => Self::CannotServe,
            CopyClass::LastCopy => Self::LastCopy,
            _ => Self::Short,
        }
    }
}

/// Whether a shard's log is so short that topping its set up takes no slot. The leader's latest word
/// counts, of whatever generation: a copy that has just started may not turn into a large one.
fn is_small(world: &World<'_>, shard: Ord32) -> bool {
    let Some(leader) = world.id(world.shard(shard).leader) else { return false };
    let reports = world.snapshot.reports.get(&world.key(shard)).into_iter().flatten();
    let latest = reports.filter(|r| r.broker == leader).max_by_key(|r| r.generation);
    let end = latest.and_then(|r| r.log_end);
    end.is_some_and(|end| end <= world.policy.move_fence_max_lag_records)
}

/// The pool of a restore.
pub(crate) fn restore_pool(world: &World<'_>, shard: Ord32, replaces: bool) -> Pool {
    let pool = match Urgency::of(world, shard) {
        Urgency::CannotServe | Urgency::LastCopy => Pool::Repairs,
        Urgency::Short => Pool::Moves,
    };
    let limit = match pool {
        Pool::Repairs => world.policy.repairs_max_concurrent,
        _ => world.policy.moves_max_concurrent,
    };
    // A limit of 0 is an operator's way to hold every copy, small ones too.
    if limit > 0 && !replaces && is_small(world, shard) { Pool::Free } else { pool }
}

/// Counts of flights.
pub(crate) struct Slots {
    moves: u32,
    repairs: u32,
    copies: Vec<u32>,
}

impl Slots {
    pub(crate) fn new(world: &World<'_>, moving: &[Ord32]) -> Self {
        let mut slots = Self { moves: 0, repairs: 0, copies: vec![0; world.brokers.len()] };
        for &shard in moving {
            if let Some(flight) = Self::flight_of(world, shard) {
                slots.take(flight);
            }
        }
        slots
    }

    /// What the snapshot shows under way for a shard. A fenced shard that lost its destination
    /// holds no slot any more, nor does a shard whose leader is lost or has halted: nothing goes on
    /// for it until there is one, and others must not wait for it. The same goes for a copy that an
    /// operator holds.
    pub(crate) fn flight_of(world: &World<'_>, shard: Ord32) -> Option<Flight> {
        let leader = world.shard(shard).leader;
        let leads = world.standing(leader).may_lead() && world.leader_halted(shard).is_none();
        if leads && pauses::held(world, shard).is_none() {
            Self::under(world, shard, leader)
        } else {
            None
        }
    }

    /// What is under way for a shard, and goes on under `leader`.
    pub(crate) fn under(world: &World<'_>, shard: Ord32, leader: Ord32) -> Option<Flight> {
        let facts = world.shard(shard);
        if !facts.moving {
            return None;
        }
        let assignment = world.assignment(shard)?;
        if facts.successor != NONE {
            if world.followers(shard).contains(&facts.successor) {
                return Some(Flight::transfer());
            }
            return Some(Flight::copy(Pool::Moves, leader, facts.successor));
        }
        if facts.joining != NONE && assignment.state != ShardState::Draining {
            let reason = assignment.move_.as_ref().map(|m| m.reason);
            let pool = match reason {
                Some(MoveReason::Restore) => {
                    restore_pool(world, shard, assignment.leaving.is_some())
                }
                _ => Pool::Moves,
            };
            return Some(Flight::copy(pool, leader, facts.joining));
        }
        None
    }

    pub(crate) fn take(&mut self, flight: Flight) {
        self.count(flight, 1);
    }

    pub(crate) fn release(&mut self, flight: Flight) {
        self.count(flight, -1);
    }

    fn count(&mut self, flight: Flight, by: i32) {
        match flight.pool {
            Pool::Moves => self.moves = self.moves.saturating_add_signed(by),
            Pool::Repairs => self.repairs = self.repairs.saturating_add_signed(by),
            Pool::Free => {}
        }
        if let Some((source, destination)) = flight.ends {
            for broker in [source, destination] {
                if broker != NONE {
                    let copies = &mut self.copies[broker as usize];
                    *copies = copies.saturating_add_signed(by);
                }
            }
        }
    }

    /// Copies into or out of a broker.
    pub(crate) fn copies(&self, broker: Ord32) -> u32 {
        self.copies[broker as usize]
    }

    /// Whether a broker may take part in one more copy.
    pub(crate) fn broker_has_room(&self, world: &World<'_>, broker: Ord32) -> bool {
        broker == NONE
            || world.policy.moves_max_per_node.is_none_or(|max| self.copies(broker) < max)
    }

    /// Moves under way against the cluster's limit.
    pub(crate) fn moves(&self) -> u32 {
        self.moves
    }

    /// Repairs under way against their own limit.
    pub(crate) fn repairs(&self) -> u32 {
        self.repairs
    }

    /// Why one more flight of `pool` does not fit, if it does not.
    pub(crate) fn full(&self, world: &World<'_>, pool: Pool) -> Option<(WaitingOn, String)> {
        let policy = world.policy;
        let (used, max, what) = match pool {
            Pool::Moves => (self.moves, policy.moves_max_concurrent, "move"),
            Pool::Repairs => (self.repairs, policy.repairs_max_concurrent, "repair"),
            Pool::Free => return None,
        };
        (used >= max).then(|| {
            let detail = if max == 0 {
                format!("there are no {what} slots: a limit of 0 holds every {what}")
            } else {
                format!("for a slot: {used} of {max} {what} slots are taken")
            };
            (WaitingOn::MoveSlots, detail)
        })
    }
}
