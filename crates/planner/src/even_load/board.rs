//! Where every replica lies and what every broker carries, while moves are tried out.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::{Ord32, Standing, World};
use crate::zones::span;

/// One copy of a shard, leading or following.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) shard: Ord32,
    pub(super) leads: bool,
}

pub(super) struct Board<'w> {
    world: &'w World<'w>,
    /// Mean load of the active brokers.
    pub(super) mean: f64,
    /// Load per broker.
    pub(super) load: Vec<f64>,
    held: Vec<u32>,
    size: Vec<f64>,
    /// Per shard its voters, the leader first.
    sets: Vec<Vec<Ord32>>,
    /// Per broker its replicas that may still move, the heaviest first, followers before leaders.
    replicas: Vec<Vec<Replica>>,
    /// Active brokers by load.
    order: BTreeSet<(u64, Ord32)>,
}

/// Loads are not negative, so their bits are in their order.
fn bits(load: f64) -> u64 {
    load.max(0.0).to_bits()
}

impl<'w> Board<'w> {
    pub(super) fn new(world: &'w World<'w>) -> Self {
        let brokers = world.brokers.len();
        let mut board = Self {
            world,
            mean: 0.0,
            load: vec![0.0; brokers],
            held: vec![0; brokers],
            size: sizes(world),
            sets: Vec::with_capacity(world.facts.shards.len()),
            replicas: vec![Vec::new(); brokers],
            order: BTreeSet::new(),
        };
        for shard in 0..world.shard_count() {
            let size = board.size[shard as usize];
            let still = !world.is_moving(shard);
            for broker in world.voters(shard) {
                board.load[broker as usize] += size;
                if still && size > 0.0 {
                    let leads = broker == world.shard(shard).leader;
                    board.replicas[broker as usize].push(Replica { shard, leads });
                }
            }
            world.shape(shard).members().for_each(|b| board.held[b as usize] += 1);
            board.sets.push(world.voters(shard).collect());
        }
        let active = || (0..brokers as Ord32).filter(|b| world.standing(*b) == Standing::Target);
        let size = &board.size;
        for list in &mut board.replicas {
            list.sort_by(|a, b| {
                size[b.shard as usize]
                    .total_cmp(&size[a.shard as usize])
                    .then(a.leads.cmp(&b.leads))
                    .then(a.shard.cmp(&b.shard))
            });
        }
        let total: f64 = active().map(|b| board.load[b as usize]).sum();
        let count = active().count();
        board.mean = if count == 0 { 0.0 } else { total / count as f64 };
        board.order = active().map(|b| (bits(board.load[b as usize]), b)).collect();
        board
    }

    pub(super) fn load_of(&self, shard: Ord32) -> f64 {
        self.size[shard as usize]
    }

    pub(super) fn most_moves(&self) -> usize {
        self.replicas.iter().map(Vec::len).sum::<usize>() + 1
    }

    pub(super) fn lowest_first(&self) -> impl Iterator<Item = Ord32> + '_ {
        self.order.iter().map(|(_, b)| *b)
    }

    pub(super) fn highest_first(&self) -> impl Iterator<Item = Ord32> + use<> {
        let all: Vec<Ord32> = self.order.iter().rev().map(|(_, b)| *b).collect();
        all.into_iter()
    }

    /// The most and the least loaded broker, if any is active.
    pub(super) fn ends(&self) -> Option<(Ord32, Ord32)> {
        Some((self.order.last()?.1, self.order.first()?.1))
    }

    pub(super) fn highest_load(&self) -> f64 {
        self.order.last().map_or(0.0, |(_, b)| self.load[*b as usize])
    }

    pub(super) fn lowest_load(&self) -> f64 {
        self.order.first().map_or(0.0, |(_, b)| self.load[*b as usize])
    }

    /// Active brokers without load.
    pub(super) fn empty(&self) -> Vec<Ord32> {
        self.lowest_first().take_while(|b| self.load[*b as usize] <= 0.0).collect()
    }

    /// A broker's replicas that may still move, the heaviest first.
    pub(super) fn movable(&self, broker: Ord32) -> impl Iterator<Item = Replica> + '_ {
        self.replicas[broker as usize].iter().copied()
    }

    /// A broker's replicas, the smallest that is enough for `need` first, then larger ones, then
    /// smaller ones from the largest.
    pub(super) fn closest_to(
        &self,
        broker: Ord32,
        need: f64,
    ) -> impl Iterator<Item = Replica> + '_ {
        let list = &self.replicas[broker as usize];
        let enough = list.partition_point(|r| self.load_of(r.shard) >= need);
        list[..enough].iter().rev().chain(&list[enough..]).copied()
    }

    /// Whether a replica may go: not where another one is, and no cap, region or zone is broken.
    pub(super) fn may_move(&self, replica: Replica, from: Ord32, to: Ord32) -> bool {
        let set = &self.sets[replica.shard as usize];
        let room = self.held[to as usize] < self.world.brokers[to as usize].cap;
        room && self.may_sit(replica, set, from, to)
    }

    fn may_sit(&self, replica: Replica, set: &[Ord32], from: Ord32, to: Ord32) -> bool {
        let group = self.world.group_of(replica.shard);
        if set.contains(&to) || group.targets.binary_search(&to).is_err() {
            return false;
        }
        if self.world.zones == 0 {
            return true;
        }
        let after = set.iter().map(|b| if *b == from { to } else { *b });
        span(self.world, after) >= span(self.world, set.iter().copied())
    }

    /// A replica of `from` and a smaller one of `to` whose difference is closest to `wanted` and
    /// narrows the gap between the two.
    pub(super) fn best_exchange(
        &self,
        from: Ord32,
        to: Ord32,
        wanted: f64,
    ) -> Option<(Replica, Replica)> {
        let mut best: Option<(f64, Replica, Replica)> = None;
        for back in self.movable(to) {
            let base = self.load_of(back.shard);
            for there in self.closest_to(from, base + wanted) {
                let shift = self.load_of(there.shard) - base;
                let off = (shift - wanted).abs();
                if best.is_some_and(|(was, _, _)| off >= was) {
                    if shift > wanted {
                        continue;
                    }
                    break;
                }
                // Anything off by as much as what is wanted would not narrow the gap.
                if off >= wanted * (1.0 - 1e-9) || there.shard == back.shard {
                    continue;
                }
                let sets = (&self.sets[there.shard as usize], &self.sets[back.shard as usize]);
                if self.may_sit(there, sets.0, from, to) && self.may_sit(back, sets.1, to, from) {
                    best = Some((off, there, back));
                }
            }
        }
        best.map(|(_, there, back)| (there, back))
    }

    /// Moves a replica. It does not move again.
    pub(super) fn go(&mut self, replica: Replica, from: Ord32, to: Ord32) {
        let size = self.load_of(replica.shard);
        for (broker, by) in [(from, -size), (to, size)] {
            let load = &mut self.load[broker as usize];
            if self.order.remove(&(bits(*load), broker)) {
                self.order.insert((bits(*load + by), broker));
            }
            *load = (*load + by).max(0.0);
        }
        self.held[from as usize] -= 1;
        self.held[to as usize] += 1;
        for member in &mut self.sets[replica.shard as usize] {
            if *member == from {
                *member = to;
            }
        }
        self.replicas[from as usize].retain(|r| *r != replica);
    }
}

/// Load of each shard, from its leader's latest report.
fn sizes(world: &World<'_>) -> Vec<f64> {
    let mut sizes = vec![0.0; world.facts.shards.len()];
    let mut reported: BTreeMap<Ord32, bool> = BTreeMap::new();
    for (at, broker) in world.brokers.iter().enumerate() {
        let Some(report) = broker.view.and_then(|v| v.load.as_ref()) else { continue };
        for row in &report.shards {
            let Some(shard) = world.shard_named(&row.shard) else { continue };
            let leads = world.shard(shard).leader == at as Ord32;
            // The leader's own word counts before anybody else's.
            if leads || !reported.get(&shard).copied().unwrap_or(false) {
                let load = row.bytes_per_second;
                sizes[shard as usize] = if load.is_finite() { load.max(0.0) } else { 0.0 };
                reported.insert(shard, leads);
            }
        }
    }
    sizes
}
