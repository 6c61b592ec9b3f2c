//! One pass at work: the counts that every decision changes, and the decisions so far.

use std::collections::BTreeMap;

use evenkeel_model::{
    Assignment, HistoryEntry, Millis, Move, MoveOutcome, MoveReason, Policy, ShardState, Snapshot,
};

use crate::decision::{Decision, Reason, Refusal, RefusedBecause, Step, Waiting, WaitingOn, Write};
use crate::loss::LossGuard;
use crate::pauses;
use crate::scores::Scores;
use crate::slots::{Flight, Slots};
use crate::tally::Tally;
use crate::tiers::Rules;
use crate::world::{NONE, Ord32, Shape, Standing, World};

/// Shards that some phase has to look at, in key order.
#[derive(Default)]
pub(crate) struct Lists {
    pub(crate) moving: Vec<Ord32>,
    pub(crate) unplaced: Vec<Ord32>,
    /// The leader is lost or has halted.
    pub(crate) leaderless: Vec<Ord32>,
    /// Too few voters, or a follower is lost or has halted.
    pub(crate) short: Vec<Ord32>,
    /// The leader is to be moved away.
    pub(crate) leader_leaves: Vec<Ord32>,
    /// A follower is on a draining broker.
    pub(crate) follower_leaves: Vec<Ord32>,
}

/// Switches that only tests turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Switches {
    /// Off: the cluster share alone decides, as if streams were not told apart.
    pub(crate) stream_tiers: bool,
}

pub(crate) struct Pass<'a> {
    pub(crate) world: World<'a>,
    pub(crate) tally: Tally,
    pub(crate) scores: Scores,
    pub(crate) slots: Slots,
    pub(crate) loss: LossGuard,
    pub(crate) lists: Lists,
    pub(crate) switches: Switches,
    /// By shard.
    pub(crate) decisions: BTreeMap<Ord32, Decision>,
}

/// A write in the making: the shape it leads to and what the record says of it.
pub(crate) struct Draft {
    pub(crate) step: Step,
    pub(crate) reason: Reason,
    pub(crate) from: Ord32,
    pub(crate) to: Ord32,
    pub(crate) shape: Shape,
    pub(crate) state: ShardState,
    pub(crate) move_: Option<Move>,
    pub(crate) flight: Option<Flight>,
    pub(crate) outcome: Option<MoveOutcome>,
    pub(crate) detail: String,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, policy: &'a Policy, switches: Switches) -> Self {
        Self::of(World::new(snapshot, policy), switches)
    }

    pub(crate) fn of(world: World<'a>, switches: Switches) -> Self {
        let tally = world.facts.tally.clone();
        let policy = world.policy;
        let scores = Scores::new(&world, &tally, policy.assignment_strategy);
        let lists = Lists::new(&world);
        let slots = Slots::new(&world, &lists.moving);
        let loss = LossGuard::new(&world);
        Self { world, tally, scores, slots, loss, lists, switches, decisions: BTreeMap::new() }
    }

    pub(crate) fn rules(&self) -> Rules<'_, 'a> {
        Rules {
            world: &self.world,
            tally: &self.tally,
            scores: &self.scores,
            stream_tiers: self.switches.stream_tiers,
        }
    }

    pub(crate) fn is_written(&self, shard: Ord32) -> bool {
        matches!(self.decisions.get(&shard), Some(Decision::Write(_)))
    }

    /// Whether a new move of the shard may be considered: nothing is under way or decided.
    pub(crate) fn is_at_rest(&self, shard: Ord32) -> bool {
        !self.world.is_moving(shard) && !self.is_written(shard)
    }

    pub(crate) fn has_room(&self, broker: Ord32) -> bool {
        self.tally.held[broker as usize] < self.world.brokers[broker as usize].cap
    }

    /// Says that a shard waits. What an earlier phase said stands.
    pub(crate) fn wait(&mut self, shard: Ord32, on: WaitingOn, detail: String) {
        self.wait_as(shard, Waiting::new(on, detail));
    }

    /// The same with everything that is to say of it.
    pub(crate) fn wait_as(&mut self, shard: Ord32, waiting: Waiting) {
        self.decisions.entry(shard).or_insert(Decision::Wait(waiting));
    }

    /// Whether an operator's pause would hold a copy, and says so.
    pub(crate) fn is_copy_paused(&mut self, shard: Ord32, copy: pauses::Copy) -> bool {
        let Some(pause) = pauses::holds(&self.world, shard, copy) else { return false };
        self.wait_as(shard, Waiting::for_pause(pause, pauses::words(pause)));
        true
    }

    /// Says that something cannot happen. What an earlier phase said stands.
    pub(crate) fn refuse(&mut self, shard: Ord32, because: RefusedBecause, detail: String) {
        let refusal = Decision::Refuse(Refusal { because, detail });
        self.decisions.entry(shard).or_insert(refusal);
    }

    /// Decides a write; counts and slots follow at once.
    pub(crate) fn write(&mut self, shard: Ord32, draft: Draft) {
        let world = &self.world;
        let facts = world.shard(shard);
        let stream = facts.stream;
        let before = facts.placed.then(|| world.shape(shard));
        if let Some(flight) = Slots::flight_of(world, shard) {
            self.slots.release(flight);
        }
        if let Some(flight) = draft.flight {
            self.slots.take(flight);
        }
        let led_before = before.as_ref().map_or(NONE, Shape::eventual_leader);
        let led_after = draft.shape.eventual_leader();
        self.tally.replace(stream, before.as_ref(), Some(&draft.shape));
        if led_after != led_before {
            self.scores.assigned(led_after);
        }
        let write = draft.finish(world, shard);
        self.decisions.insert(shard, Decision::Write(Box::new(write)));
    }
}

impl Draft {
    fn finish(self, world: &World<'_>, shard: Ord32) -> Write {
        let key = world.key(shard);
        let id = |b: Ord32| world.id(b);
        let history = match (self.outcome, self.reason) {
            (Some(outcome), Reason::Move(reason)) => Some(HistoryEntry {
                at_ms: world.now,
                shard: key.clone(),
                from: id(self.from),
                to: id(self.to),
                reason,
                outcome,
            }),
            _ => None,
        };
        Write {
            step: self.step,
            reason: self.reason,
            from: id(self.from),
            to: id(self.to),
            clears_marker: world.snapshot.unassigned.contains_key(&key),
            history,
            detail: self.detail,
            next: Assignment {
                shard: key,
                leader: id(self.shape.leader),
                followers: self.shape.followers.iter().filter_map(|b| id(*b)).collect(),
                generation: world.shard(shard).generation + 1,
                state: self.state,
                successor: id(self.shape.successor),
                joining: id(self.shape.joining),
                leaving: id(self.shape.leaving),
                move_: self.move_,
            },
        }
    }
}

impl Lists {
    fn new(world: &World<'_>) -> Self {
        let mut lists = Self::default();
        for stream in &world.facts.streams {
            let factor = stream.factor();
            for shard in stream.shards() {
                let facts = world.shard(shard);
                if !facts.placed {
                    lists.unplaced.push(shard);
                    continue;
                }
                if world.is_moving(shard) {
                    lists.moving.push(shard);
                }
                let leader = world.standing(facts.leader);
                let halted = world.leader_halted(shard).is_some();
                if !leader.may_lead() || halted {
                    lists.leaderless.push(shard);
                    continue;
                }
                if matches!(leader, Standing::Draining | Standing::Leaving) {
                    lists.leader_leaves.push(shard);
                }
                let followers = world.followers(shard);
                let lost = |b: &Ord32| !world.is_live(shard, *b);
                if followers.len() + 1 < factor || followers.iter().any(lost) {
                    lists.short.push(shard);
                }
                if followers.iter().any(|b| world.empties(*b)) {
                    lists.follower_leaves.push(shard);
                }
            }
        }
        lists
    }
}

/// The trace of earlier give-ups, if there is one.
pub(crate) fn trace<'a>(world: &World<'a>, shard: Ord32) -> Option<&'a Move> {
    if !world.shard(shard).traced {
        return None;
    }
    world.assignment(shard)?.move_.as_ref()
}

/// Whether the shard's last move was given up and nothing was tried since.
pub(crate) fn gave_up(world: &World<'_>, shard: Ord32) -> bool {
    !world.is_moving(shard) && trace(world, shard).is_some()
}

/// The move record of a move that starts now.
pub(crate) fn started(world: &World<'_>, shard: Ord32, reason: MoveReason) -> Move {
    let earlier = trace(world, shard);
    Move {
        reason,
        started_at_ms: world.now,
        fenced_at_ms: None,
        progress_at_ms: None,
        give_ups: earlier.map_or(0, |m| m.give_ups),
        next_try_ms: None,
    }
}

/// Until when the shard rests after a fence that was given up.
pub(crate) fn resting(world: &World<'_>, shard: Ord32) -> Option<Millis> {
    trace(world, shard).and_then(|m| m.next_try_ms).filter(|at| *at > world.now)
}
