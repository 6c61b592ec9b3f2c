//! Who is chosen, reckoned a second time from the written rule: slowly, with maps, names and whole
//! numbers, sharing no code with the planner but the published hash.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "no test uses all of it; one fails where it unwraps"
)]

mod load;
mod moves;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use evenkeel_model::hash::score64;
use evenkeel_model::{Assignment, BrokerId, ShardKey, Snapshot, StreamKey};

pub(crate) use load::Loads;
#[allow(unused_imports, reason = "not every test repairs")]
pub(crate) use moves::{Mend, Outcome};

/// What the slow reckoning keeps.
pub(crate) struct WrittenRule<'s> {
    pub(crate) s: &'s Snapshot,
    pub(crate) led: BTreeMap<BrokerId, u64>,
    of_stream: BTreeMap<(StreamKey, BrokerId), u64>,
    held: BTreeMap<BrokerId, u64>,
    copies: BTreeMap<BrokerId, u64>,
    loads: Loads,
}

pub(crate) fn get<K: Ord>(map: &BTreeMap<K, u64>, key: &K) -> u64 {
    map.get(key).copied().unwrap_or(0)
}

/// A broker's part of something, as numerator over denominator.
type Part = (u64, u64);

/// What a broker leads, of a stream and in all, and what is to be reached.
struct Bars {
    led: u64,
    floor: u64,
    ceiling: u64,
    leads: u64,
    share: u64,
    /// What is missing of its part, in units that are the same for all brokers.
    lack: i64,
}

impl<'s> WrittenRule<'s> {
    pub(crate) fn new(s: &'s Snapshot) -> Self {
        let mut rule = Self {
            s,
            led: BTreeMap::new(),
            of_stream: BTreeMap::new(),
            held: BTreeMap::new(),
            copies: BTreeMap::new(),
            loads: Loads::default(),
        };
        for a in s.assignments.values() {
            rule.count(a);
        }
        rule.loads = Loads::new(s, &rule.led);
        rule
    }

    /// Counts every broker that an assignment names, and who leads when its move is done.
    fn count(&mut self, a: &Assignment) {
        for (broker, _) in a.members() {
            *self.held.entry(broker.clone()).or_default() += 1;
        }
        if let Some(leader) = a.eventual_leader() {
            *self.led.entry(leader.clone()).or_default() += 1;
            let of_stream = (a.shard.stream.clone(), leader.clone());
            *self.of_stream.entry(of_stream).or_default() += 1;
        }
    }

    /// Live, registered brokers of the stream's region, full or not.
    pub(crate) fn eligible(&self, stream: &StreamKey) -> Vec<&'s BrokerId> {
        let region = &self.s.streams[stream].region;
        let fits = |b: &&BrokerId| {
            let view = &self.s.brokers[*b];
            view.is_target() && (region.is_none() || view.region == *region)
        };
        self.s.brokers.keys().filter(fits).collect()
    }

    pub(crate) fn has_room(&self, b: &BrokerId) -> bool {
        self.s.brokers[b].max_shards.is_none_or(|cap| get(&self.held, b) < u64::from(cap))
    }

    fn part(&self, b: &BrokerId, shards: u64, among: &[&BrokerId]) -> Part {
        if !self.s.policy.capacity_weighted || among.is_empty() {
            return (shards, among.len().max(1) as u64);
        }
        let weight = |b: &BrokerId| self.s.brokers[b].weight as u64;
        (shards * weight(b), among.iter().map(|b| weight(b)).sum())
    }

    /// What a broker leads, and what it may lead by its part of the stream and of all shards.
    fn bars(&self, shard: &ShardKey, b: &BrokerId) -> Bars {
        let among = self.eligible(&shard.stream);
        let n = u64::from(self.s.streams[&shard.stream].shards);
        let all: u64 = self.s.streams.values().map(|s| u64::from(s.shards)).sum();
        let part = self.part(b, n, &among);
        let led = get(&self.of_stream, &(shard.stream.clone(), b.clone()));
        Bars {
            led,
            floor: part.0 / part.1,
            ceiling: part.0.div_ceil(part.1),
            leads: get(&self.led, b),
            share: {
                let (n, d) = self.part(b, all, &among);
                n.div_ceil(d)
            },
            lack: part.0 as i64 - (led * part.1) as i64,
        }
    }

    /// The best of `legal` to lead a shard: by tiers, then by load, then by hash.
    pub(crate) fn choose(&self, shard: &ShardKey, legal: &[&BrokerId]) -> Option<BrokerId> {
        let all: Vec<(&BrokerId, Bars)> = legal.iter().map(|b| (*b, self.bars(shard, b))).collect();
        let weighted = self.s.policy.capacity_weighted;
        // With unequal parts, under the ceiling: whoever lacks most, then who is under the share.
        let under_ceiling = |b: &Bars| b.led < b.ceiling;
        let most = all.iter().map(|(_, b)| b).filter(|b| under_ceiling(b)).map(|b| b.lack).max();
        let ceiling = |b: &Bars| under_ceiling(b) && (!weighted || Some(b.lack) == most);
        let floor = |b: &Bars| b.led < b.floor;
        let share = |b: &Bars| b.leads < b.share;
        let tiers: [&dyn Fn(&Bars) -> bool; 6] = [
            &|b| floor(b) && share(b),
            &floor,
            &|b| ceiling(b) && share(b),
            &ceiling,
            &share,
            &|_| true,
        ];
        let within = |tier: &dyn Fn(&Bars) -> bool| {
            all.iter().filter(|(_, bars)| tier(bars)).map(|(b, _)| *b).collect::<Vec<&BrokerId>>()
        };
        let tier = tiers.iter().map(|tier| within(tier)).find(|tier| !tier.is_empty())?;
        Some(self.least_loaded(shard, tier))
    }

    fn least_loaded(&self, shard: &ShardKey, tier: Vec<&BrokerId>) -> BrokerId {
        let score = |b: &BrokerId| self.loads.score(b, &self.led);
        let lowest = tier.iter().map(|b| score(b)).fold(f64::INFINITY, f64::min);
        let band = lowest * (1.0 + self.s.policy.tie_band_percent / 100.0);
        let equals = tier.into_iter().filter(|b| score(b) <= band);
        let order = |b: &&BrokerId| (self.loads.since(b), self.hash(shard, b), (*b).clone());
        equals.min_by_key(order).unwrap().clone()
    }

    fn hash(&self, shard: &ShardKey, b: &BrokerId) -> Reverse<u64> {
        Reverse(score64(&shard.to_string(), b.as_str()))
    }

    /// Where the shard's leader is placed, and the counts that follow from it.
    pub(crate) fn place(&mut self, shard: &ShardKey) -> Option<BrokerId> {
        let marker = self.s.unassigned.get(shard);
        let source = marker.and_then(|m| m.from_broker.as_ref());
        let eligible = self.eligible(&shard.stream);
        let legal = eligible.into_iter().filter(|b| Some(*b) != source && self.has_room(b));
        let legal: Vec<&BrokerId> = legal.collect();
        let hint = marker.and_then(|m| m.to_broker.as_ref()).filter(|b| legal.contains(b));
        let chosen = hint.cloned().or_else(|| self.choose(shard, &legal))?;
        self.count(&Assignment::new(shard.clone(), chosen.clone(), Vec::new()));
        self.loads.given(&chosen);
        Some(chosen)
    }

    /// The followers of a shard that was just placed: a zone that the set lacks first, then fewest
    /// roles, then the hash.
    pub(crate) fn follow(&mut self, shard: &ShardKey, leader: &BrokerId) -> Vec<BrokerId> {
        let mut set = vec![leader.clone()];
        let zone = |b: &BrokerId| self.s.brokers[b].zone.as_ref();
        while set.len() < self.s.streams[&shard.stream].replication_factor as usize {
            let lacks = |b: &BrokerId| zone(b).is_some() && set.iter().all(|v| zone(v) != zone(b));
            let eligible = self.eligible(&shard.stream).into_iter();
            let legal = eligible.filter(|b| !set.contains(b) && self.has_room(b));
            let order =
                |b: &&BrokerId| (!lacks(b), get(&self.held, b), self.hash(shard, b), (*b).clone());
            let Some(next) = legal.min_by_key(order).cloned() else { break };
            *self.held.entry(next.clone()).or_default() += 1;
            set.push(next);
        }
        set.split_off(1)
    }
}
