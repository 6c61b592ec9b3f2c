//! Which shard goes where, among those that serve an objective equally well.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use evenkeel_model::{CopyPauseRecord, Millis, MoveOutcome, MoveReason, PauseScope};

use crate::decision::Waiting;
use crate::disk::Disk;
use crate::moves::{Way, fits_brokers, way_to};
use crate::pass::{Pass, gave_up};
use crate::pauses::{self, Copy};
use crate::phases::rebalance::is_movable;
use crate::world::{NONE, Ord32, World};
use crate::zones::{span_after_move, span_now};

/// A shard and where its leader is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) shard: Ord32,
    pub(crate) to: Ord32,
}

const RECENT_MS: Millis = 3_600_000;

/// Which shards moved before, read from the history when somebody first asks.
#[derive(Default)]
pub(crate) struct Moved {
    rank: Option<Vec<u8>>,
}

impl Moved {
    /// 0 never, 1 once, 2 within the last hour.
    pub(crate) fn rank(&mut self, pass: &Pass<'_>, shard: Ord32) -> u8 {
        let world = &pass.world;
        let rank = self.rank.get_or_insert_with(|| {
            let mut rank = vec![0; world.facts.shards.len()];
            for entry in &world.snapshot.history {
                let Some(shard) = world.shard_named(&entry.shard) else { continue };
                if entry.outcome == MoveOutcome::CutOver {
                    let recent = world.now.saturating_sub(entry.at_ms) <= RECENT_MS;
                    rank[shard as usize] = if recent { 2 } else { 1 };
                }
            }
            rank
        });
        rank[shard as usize]
    }
}

/// What the objectives of one pass share.
pub(crate) struct Asked {
    pub(crate) moved: Moved,
    /// Why no copy is made for balance now.
    pub(crate) no_copy: Option<Waiting>,
    /// Shards of which a copy was given up lately, with where it was going.
    pub(crate) given_up: BTreeSet<(Ord32, Ord32)>,
    /// Destinations that follow some candidate and will soon be level with it.
    pub(crate) catching_up: Vec<Ord32>,
}

impl Asked {
    /// Whether a move would be a copy to where one of that shard was given up lately.
    pub(crate) fn failed(&self, shard: Ord32, to: Ord32, way: Way) -> bool {
        way == Way::Copy && self.given_up.contains(&(shard, to))
    }
}

/// What holds a move that an objective would like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The limit on copies per broker.
    Broker,
    /// No copy is made for balance: a broker may come back, or an operator holds them.
    NoCopy,
    /// A follower that will soon be level: a copy of another shard would be for nothing.
    Behind,
}

/// What makes one move better than another that serves the objective equally.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Merit {
    moved_recently: bool,
    gave_up: bool,
    way: Way,
    source_leads: Reverse<u32>,
    destination_leads: u32,
    moved: u8,
}

/// What moves may take, from least to most: what costs no bytes comes first wherever it serves the
/// objective.
pub(crate) const ROUNDS: [Way; 3] = [Way::Transfer, Way::Copy, Way::Follower];

/// Collects candidates and keeps the best.
pub(crate) struct Picker<'m> {
    asked: &'m mut Asked,
    /// The most that a move may take.
    most: Way,
    best: Option<Merit>,
    finalists: Vec<Pick>,
    /// The first shard that was held back, and by what.
    pub(crate) held: Option<(Ord32, Hold)>,
}

impl<'m> Picker<'m> {
    pub(crate) fn new(asked: &'m mut Asked, most: Way) -> Self {
        Self { asked, most, best: None, finalists: Vec::new(), held: None }
    }

    /// Considers moving the leader of `shard` to `to`, which the objective would like.
    pub(crate) fn consider(&mut self, pass: &Pass<'_>, shard: Ord32, to: Ord32) {
        if self.most == Way::Transfer && !pass.world.followers(shard).contains(&to) {
            return;
        }
        let Some(way) = way_if_allowed(pass, shard, to) else { return };
        if way == Way::Follower && lags_for_good(&pass.world, shard, to) {
            return;
        }
        if self.asked.failed(shard, to, way) {
            return;
        }
        if let Some(hold) = self.hold(pass, shard, to, way) {
            self.held = self.held.or(Some((shard, hold)));
            return;
        }
        if way > self.most {
            return;
        }
        let moved = self.asked.moved.rank(pass, shard);
        let leads = |b: Ord32| pass.tally.leaders[b as usize];
        let merit = Merit {
            moved_recently: moved == 2,
            gave_up: gave_up(&pass.world, shard),
            way,
            source_leads: Reverse(leads(pass.world.shard(shard).leader)),
            destination_leads: leads(to),
            moved,
        };
        match self.best {
            Some(best) if best < merit => return,
            Some(best) if best == merit => {}
            _ => {
                self.best = Some(merit);
                self.finalists.clear();
            }
        }
        self.finalists.push(Pick { shard, to });
    }

    fn hold(&mut self, pass: &Pass<'_>, shard: Ord32, to: Ord32, way: Way) -> Option<Hold> {
        match way {
            Way::Transfer => None,
            Way::Follower => {
                // The first round sees every follower, so that the second knows them all.
                let soon = is_catching_up(&pass.world, shard, to);
                if soon && !self.asked.catching_up.contains(&to) {
                    self.asked.catching_up.push(to);
                }
                soon.then_some(Hold::Behind)
            }
            Way::Copy if self.asked.no_copy.is_some() => Some(Hold::NoCopy),
            Way::Copy if self.asked.catching_up.contains(&to) => Some(Hold::Behind),
            Way::Copy => (!fits_brokers(pass, shard, to, way)).then_some(Hold::Broker),
        }
    }

    /// The best candidate; equals are told apart by lot, then by name.
    pub(crate) fn pick(&self, pass: &Pass<'_>) -> Option<Pick> {
        let order = |p: &&Pick| (Reverse(pass.world.lot(p.shard, p.to)), p.shard, p.to);
        self.finalists.iter().min_by_key(order).copied()
    }
}

/// Whether a follower has been far behind for longer than any move may take. Nothing waits for it.
fn lags_for_good(world: &World<'_>, shard: Ord32, follower: Ord32) -> bool {
    let policy = world.policy;
    let lag = world.report(shard, follower).and_then(|r| r.lag_records);
    let since = world.brokers[follower as usize].view.map_or(Millis::MIN, |v| v.since_ms);
    lag.is_some_and(|lag| lag > policy.move_fence_max_lag_records)
        && policy.move_timeout_ms > 0
        && world.now.saturating_sub(since) > policy.move_timeout_ms
}

/// Whether a follower is on its way to be level: it says how far behind it is, or has only just come
/// back and has still to say.
fn is_catching_up(world: &World<'_>, shard: Ord32, follower: Ord32) -> bool {
    if world.report(shard, follower).is_some() {
        return true;
    }
    let since = world.brokers[follower as usize].view.map_or(Millis::MIN, |v| v.since_ms);
    world.now.saturating_sub(since) <= world.policy.broker_expiry_ms
}

/// How a movable shard's leader can go to `to` without losing a zone. A set with a lost member is
/// repair's business: a copy would push the lost one out before its time.
pub(crate) fn way_if_allowed(pass: &Pass<'_>, shard: Ord32, to: Ord32) -> Option<Way> {
    if !is_movable(pass, shard) {
        return None;
    }
    let way = way_to(pass, shard, to)?;
    let world = &pass.world;
    if world.disk(to) != Disk::Roomy {
        return None;
    }
    if way == Way::Copy && world.live_replicas(shard) < world.voters(shard).count() {
        return None;
    }
    let copy = Copy { reason: MoveReason::Load, joins: false, replaces: NONE };
    // A pause of the whole class is told where copies are asked for.
    let of_shard = |p: &CopyPauseRecord| matches!(p.scope, PauseScope::Shard(_));
    if way == Way::Copy && pauses::holds(world, shard, copy).is_some_and(of_shard) {
        return None;
    }
    if way == Way::Copy && world.zones > 0 {
        let shape = world.shape(shard);
        let factor = world.stream_of(shard).factor();
        // One copy spans one zone wherever it is, be its broker's zone known or not.
        if span_after_move(world, shard, &shape, to, factor).max(1) < span_now(world, &shape) {
            return None;
        }
    }
    Some(way)
}
