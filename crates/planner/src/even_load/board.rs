//! Where every replica lies and what every broker carries, while moves are tried out.

use std::collections::BTreeSet;
use std::ops::Range;

use super::loads::sizes;
use crate::disk::Disk;
use crate::world::{Ord32, Standing, World};
use crate::zones::{span, span_kept};

/// One copy of a shard, leading or following.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replica {
    pub(super) size: f64,
    pub(super) shard: Ord32,
    pub(super) leads: bool,
}

/// A replica that may be moved, by its place on the board.
pub(super) type Piece = usize;

pub(super) struct Board<'w> {
    pub(super) world: &'w World<'w>,
    /// Mean load of the active brokers.
    pub(super) mean: f64,
    /// The most and the least that a broker should carry. What is off by no more than rounding is
    /// not off.
    pub(super) high: f64,
    pub(super) low: f64,
    loads: Vec<f64>,
    held: Vec<u32>,
    /// The voters of each shard, the leader first, one shard after the other.
    voters: Vec<Ord32>,
    sets: Vec<u32>,
    /// The replicas of each broker at first, the heaviest first, followers before leaders.
    replicas: Vec<Replica>,
    ranges: Vec<Range<usize>>,
    /// Pieces that were moved. They are not moved again.
    gone: Vec<bool>,
    /// Per broker the size of its heaviest piece.
    tops: Vec<f64>,
    /// Active brokers by load.
    order: BTreeSet<(u64, Ord32)>,
    moves: Vec<Made>,
    /// Per broker the moves to it, the lightest first.
    taken: Vec<Vec<usize>>,
}

/// A move, by its number.
pub(super) type MoveNumber = usize;

#[derive(Debug, Clone, Copy)]
pub(super) struct Made {
    pub(super) piece: Piece,
    pub(super) from: Ord32,
    pub(super) to: Ord32,
    /// It was taken back.
    undone: bool,
}

/// Loads are not negative, so their bits are in their order.
pub(super) fn bits(load: f64) -> u64 {
    load.max(0.0).to_bits()
}

impl<'w> Board<'w> {
    pub(super) fn new(world: &'w World<'w>, tolerance: f64) -> Self {
        let sizes = sizes(world);
        let brokers = world.brokers.len();
        let mut loads = vec![0.0; brokers];
        let mut held = vec![0; brokers];
        let mut counts = vec![0; brokers];
        let mut voters = Vec::with_capacity(sizes.len());
        let mut sets = Vec::with_capacity(sizes.len() + 1);
        sets.push(0);
        for shard in 0..world.shard_count() {
            let moving = world.is_moving(shard);
            for broker in world.voters(shard) {
                voters.push(broker);
                loads[broker as usize] += sizes[shard as usize];
                counts[broker as usize] += usize::from(!moving && sizes[shard as usize] > 0.0);
                held[broker as usize] += u32::from(!moving);
            }
            if moving {
                world.shape(shard).members().for_each(|b| held[b as usize] += 1);
            }
            sets.push(voters.len() as u32);
        }
        let active = (0..brokers as Ord32).filter(|b| world.standing(*b) == Standing::Target);
        let order: BTreeSet<(u64, Ord32)> = active.map(|b| (bits(loads[b as usize]), b)).collect();
        let total: f64 = order.iter().map(|(_, b)| loads[*b as usize]).sum();
        let mean = if order.is_empty() { 0.0 } else { total / order.len() as f64 };
        let slack = mean * 1e-9;
        let mut board = Self {
            world,
            mean,
            high: mean * (1.0 + tolerance) + slack,
            low: mean * (1.0 - tolerance) - slack,
            loads,
            held,
            voters,
            sets,
            replicas: Vec::new(),
            ranges: Vec::with_capacity(brokers),
            gone: Vec::new(),
            tops: Vec::new(),
            order,
            moves: Vec::new(),
            taken: vec![Vec::new(); brokers],
        };
        board.lay_out(&sizes, &counts);
        board
    }

    /// Puts the replicas that may move to their brokers, in order of size.
    fn lay_out(&mut self, sizes: &[f64], counts: &[usize]) {
        let mut end = 0;
        for count in counts {
            self.ranges.push(end..end);
            end += count;
        }
        self.replicas = vec![Replica { size: 0.0, shard: 0, leads: false }; end];
        self.gone = vec![false; end];
        for shard in 0..self.world.shard_count() {
            let size = sizes[shard as usize];
            if size <= 0.0 || self.world.is_moving(shard) {
                continue;
            }
            for at in self.set(shard) {
                let broker = self.voters[at];
                let leads = broker == self.world.shard(shard).leader;
                let range = &mut self.ranges[broker as usize];
                self.replicas[range.end] = Replica { size, shard, leads };
                range.end += 1;
            }
        }
        for range in &self.ranges {
            self.replicas[range.clone()].sort_unstable_by(|a, b| {
                let same = || a.leads.cmp(&b.leads).then(a.shard.cmp(&b.shard));
                b.size.total_cmp(&a.size).then_with(same)
            });
        }
        self.tops = vec![0.0; self.ranges.len()];
        (0..self.ranges.len() as Ord32).for_each(|broker| self.note_top(broker));
    }

    fn set(&self, shard: Ord32) -> Range<usize> {
        self.sets[shard as usize] as usize..self.sets[shard as usize + 1] as usize
    }

    pub(super) fn load(&self, broker: Ord32) -> f64 {
        self.loads[broker as usize]
    }

    pub(super) fn is_over(&self, broker: Ord32) -> bool {
        self.load(broker) > self.high
    }

    pub(super) fn is_under(&self, broker: Ord32) -> bool {
        self.load(broker) < self.low
    }

    pub(super) fn is_empty(&self, broker: Ord32) -> bool {
        self.load(broker) <= 0.0
    }

    /// What a broker lacks of the least it should carry.
    pub(super) fn lack(&self, broker: Ord32) -> f64 {
        (self.low - self.load(broker)).max(0.0)
    }

    /// The active brokers, the least loaded first.
    pub(super) fn active(&self) -> impl DoubleEndedIterator<Item = Ord32> + '_ {
        self.order.iter().map(|(_, b)| *b)
    }

    pub(super) fn highest(&self) -> Option<Ord32> {
        self.active().next_back()
    }

    pub(super) fn lowest(&self) -> Option<Ord32> {
        self.active().next()
    }

    pub(super) fn replica(&self, piece: Piece) -> Replica {
        self.replicas[piece]
    }

    pub(super) fn size(&self, piece: Piece) -> f64 {
        self.replicas[piece].size
    }

    /// The size of a broker's heaviest piece, 0 without one.
    pub(super) fn top(&self, broker: Ord32) -> f64 {
        self.tops[broker as usize]
    }

    fn note_top(&mut self, broker: Ord32) {
        let heaviest = self.at_most(broker, f64::INFINITY).next();
        self.tops[broker as usize] = heaviest.map_or(0.0, |piece| self.size(piece));
    }

    /// A broker's pieces of at most `most`, the heaviest first.
    pub(super) fn at_most(&self, broker: Ord32, most: f64) -> impl Iterator<Item = Piece> + '_ {
        let Range { start, end } = self.ranges[broker as usize];
        let larger = self.replicas[start..end].partition_point(|r| r.size > most);
        (start + larger..end).filter(|piece| !self.gone[*piece])
    }

    /// A broker's pieces of at least `least`, the lightest first.
    pub(super) fn at_least(&self, broker: Ord32, least: f64) -> impl Iterator<Item = Piece> + '_ {
        let Range { start, end } = self.ranges[broker as usize];
        let enough = self.replicas[start..end].partition_point(|r| r.size >= least);
        (start..start + enough).rev().filter(|piece| !self.gone[*piece])
    }

    /// The lowest active broker that may take a piece and ends no higher than it should, nor as high
    /// as the giver was.
    pub(super) fn taker(&self, piece: Piece, from: Ord32) -> Option<Ord32> {
        let size = self.size(piece);
        let most = (self.high - size).min(self.load(from) - size);
        self.active()
            .take_while(|to| self.load(*to) <= most)
            .find(|to| *to != from && self.may_move(piece, from, *to))
    }

    /// Whether a piece may go: not where another copy is, nor to a full disk, and no cap, region or
    /// zone is broken.
    pub(super) fn may_move(&self, piece: Piece, from: Ord32, to: Ord32) -> bool {
        self.held[to as usize] < self.world.brokers[to as usize].cap
            && self.may_sit(piece, from, to)
    }

    /// As [`may_move`](Self::may_move), where another one goes the other way.
    pub(super) fn may_sit(&self, piece: Piece, from: Ord32, to: Ord32) -> bool {
        if self.held[to as usize] > self.world.brokers[to as usize].cap
            || self.world.disk(to) == Disk::Full
        {
            return false;
        }
        let shard = self.replicas[piece].shard;
        let set = &self.voters[self.set(shard)];
        let group = self.world.group_of(shard);
        let allowed = group.region.is_none() || group.targets.binary_search(&to).is_ok();
        allowed && !set.contains(&to) && self.keeps_zones(set, from, to)
    }

    fn keeps_zones(&self, set: &[Ord32], from: Ord32, to: Ord32) -> bool {
        let world = self.world;
        if world.zones == 0 || world.zone(from) == world.zone(to) {
            return true;
        }
        let now = set.iter().copied();
        let after = now.clone().map(|b| if b == from { to } else { b });
        // A zone that only a lost or leaving broker is in does not stand in for one that stays.
        span(world, after.clone()) >= span(world, now.clone())
            && span_kept(world, after) >= span_kept(world, now)
    }

    /// Moves a piece.
    pub(super) fn go(&mut self, piece: Piece, from: Ord32, to: Ord32) {
        self.moves.push(Made { piece, from, to, undone: true });
        self.give(self.moves.len() - 1);
    }

    /// Makes a move that is not made, or was taken back.
    pub(super) fn give(&mut self, number: MoveNumber) {
        let Made { piece, from, to, .. } = self.moves[number];
        self.shift(piece, from, to);
        self.gone[piece] = true;
        self.note_top(from);
        self.moves[number].undone = false;
        self.note_taken(number);
    }

    pub(super) fn take_back(&mut self, number: MoveNumber) {
        let Made { piece, from, to, .. } = self.moves[number];
        self.shift(piece, to, from);
        self.gone[piece] = false;
        self.note_top(from);
        self.moves[number].undone = true;
        self.taken[to as usize].retain(|kept| *kept != number);
    }

    /// Lets a move end elsewhere.
    pub(super) fn redirect(&mut self, number: MoveNumber, to: Ord32) {
        let Made { piece, to: was, .. } = self.moves[number];
        self.shift(piece, was, to);
        self.taken[was as usize].retain(|kept| *kept != number);
        self.moves[number].to = to;
        self.note_taken(number);
    }

    fn note_taken(&mut self, number: MoveNumber) {
        let Made { piece, to, .. } = self.moves[number];
        let size = self.size(piece);
        let taken = &self.taken[to as usize];
        let at = taken.partition_point(|kept| self.size(self.moves[*kept].piece) < size);
        self.taken[to as usize].insert(at, number);
    }

    fn shift(&mut self, piece: Piece, from: Ord32, to: Ord32) {
        let Replica { size, shard, .. } = self.replicas[piece];
        for (broker, by) in [(from, -size), (to, size)] {
            let load = self.loads[broker as usize];
            let next = (load + by).max(0.0);
            if self.order.remove(&(bits(load), broker)) {
                self.order.insert((bits(next), broker));
            }
            self.loads[broker as usize] = next;
        }
        self.held[from as usize] -= 1;
        self.held[to as usize] += 1;
        let set = self.set(shard);
        for member in &mut self.voters[set] {
            if *member == from {
                *member = to;
            }
        }
    }

    pub(super) fn made(&self, number: MoveNumber) -> Made {
        self.moves[number]
    }

    /// The moves to a broker, the lightest first.
    pub(super) fn taken(&self, broker: Ord32) -> &[MoveNumber] {
        &self.taken[broker as usize]
    }

    /// The numbers of the moves, in the order they were made.
    pub(super) fn moves(&self) -> impl Iterator<Item = MoveNumber> + '_ {
        (0..self.moves.len()).filter(|number| !self.moves[*number].undone)
    }
}
