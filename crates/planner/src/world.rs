//! The cluster as one pass sees it: the facts, and what brokers are good for now under one policy.

use std::collections::BTreeMap;

use evenkeel_model::hash::{combine, hash64};
use evenkeel_model::{
    Assignment, BrokerId, BrokerView, Millis, Phase, Policy, ShardKey, ShardReport, ShardState,
    Snapshot, StreamName,
};

use crate::disk::{self, Disk};
use crate::facts::{Facts, HeldFacts, ShardFacts, StreamFacts};
pub(crate) use crate::facts::{NONE, Ord32};
pub(crate) use crate::shape::Shape;
pub(crate) use crate::standing::Standing;
use crate::standing::standing;

pub(crate) struct BrokerFacts<'a> {
    pub(crate) id: BrokerId,
    pub(crate) view: Option<&'a BrokerView>,
    pub(crate) hash: u64,
    pub(crate) standing: Standing,
    pub(crate) zone: Ord32,
    pub(crate) weight: f64,
    /// `max_shards`, or the largest number.
    pub(crate) cap: u32,
    pub(crate) disk: Disk,
}

/// The brokers that may be given shards of some streams.
pub(crate) struct Group {
    pub(crate) region: Option<String>,
    /// In order of id.
    pub(crate) targets: Vec<Ord32>,
    pub(crate) weight: f64,
}

/// Looks for the first broker by rendezvous score, then by id. Asked for every placement of however
/// many equals, so it reads nothing but the hashes, which lie side by side.
pub(crate) struct Foremost<'h> {
    hashes: &'h [u64],
    key_hash: u64,
    best: (u64, Ord32),
}

impl<'h> Foremost<'h> {
    pub(crate) fn new(hashes: &'h [u64], key_hash: u64) -> Self {
        Self { hashes, key_hash, best: (0, NONE) }
    }

    #[inline]
    pub(crate) fn consider(&mut self, broker: Ord32) {
        let score = combine(self.key_hash, self.hashes[broker as usize]);
        if score > self.best.0 || (score == self.best.0 && broker < self.best.1) {
            self.best = (score, broker);
        }
    }

    pub(crate) fn broker(&self) -> Option<Ord32> {
        Some(self.best.1).filter(|b| *b != NONE)
    }
}

/// The snapshot on ordinals, at one time.
pub(crate) struct World<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) policy: &'a Policy,
    pub(crate) now: Millis,
    pub(crate) facts: HeldFacts<'a>,
    pub(crate) brokers: Vec<BrokerFacts<'a>>,
    pub(crate) groups: Vec<Group>,
    pub(crate) zones: usize,
}

impl<'a> World<'a> {
    /// For a single question. Who asks often keeps the facts.
    pub(crate) fn new(snapshot: &'a Snapshot, policy: &'a Policy) -> Self {
        Self::of(HeldFacts::Own(Box::new(Facts::new(snapshot))), snapshot, policy)
    }

    /// With the facts of this very snapshot.
    pub(crate) fn of(facts: HeldFacts<'a>, snapshot: &'a Snapshot, policy: &'a Policy) -> Self {
        let mut world = Self {
            snapshot,
            policy,
            now: snapshot.as_of_ms,
            brokers: Vec::with_capacity(facts.brokers()),
            groups: Vec::with_capacity(facts.regions.len()),
            zones: 0,
            facts,
        };
        world.add_brokers();
        for region in world.facts.regions.clone() {
            world.add_group(region);
        }
        world
    }

    fn add_brokers(&mut self) {
        let mut zones: BTreeMap<&str, Ord32> = BTreeMap::new();
        for (ordinal, (id, view)) in (0..).zip(&self.snapshot.brokers) {
            let next = zones.len() as Ord32;
            let zone = view.zone.as_ref().map_or(NONE, |name| *zones.entry(name).or_insert(next));
            self.brokers.push(BrokerFacts {
                id: id.clone(),
                view: Some(view),
                hash: self.facts.hash(ordinal),
                standing: standing(view, self.now, self.policy),
                zone,
                weight: view.weight,
                cap: view.max_shards.unwrap_or(u32::MAX),
                disk: disk::disk(view, self.now, self.policy),
            });
        }
        for ordinal in self.brokers.len()..self.facts.brokers() {
            self.brokers.push(BrokerFacts {
                id: self.facts.id(ordinal as Ord32).clone(),
                view: None,
                hash: self.facts.hash(ordinal as Ord32),
                standing: Standing::Lost,
                zone: NONE,
                weight: 0.0,
                cap: 0,
                disk: Disk::Roomy,
            });
        }
        self.zones = zones.len();
    }

    fn add_group(&mut self, region: Option<String>) {
        let allowed = |b: &BrokerFacts<'_>| {
            b.standing == Standing::Target
                && (region.is_none() || b.view.is_some_and(|v| v.region == region))
        };
        let targets: Vec<Ord32> = (0..self.brokers.len() as Ord32)
            .filter(|b| allowed(&self.brokers[*b as usize]))
            .collect();
        let weight = targets.iter().map(|b| self.brokers[*b as usize].weight).sum();
        self.groups.push(Group { region, targets, weight });
    }

    pub(crate) fn broker_named(&self, id: &BrokerId) -> Option<Ord32> {
        self.facts.broker_named(id)
    }

    pub(crate) fn shard_named(&self, key: &ShardKey) -> Option<Ord32> {
        self.facts.shard_named(key)
    }

    pub(crate) fn key(&self, shard: Ord32) -> ShardKey {
        self.facts.key(shard)
    }

    /// Hash of the shard's key, the half of its rendezvous scores that is the same for all brokers.
    pub(crate) fn key_hash(&self, shard: Ord32) -> u64 {
        let stream = self.stream_of(shard);
        let StreamName { kind, namespace, name } = &*stream.key;
        hash64(&format!("{}/{namespace}/{name}/{}", kind.as_str(), shard - stream.first))
    }

    /// Tells equals apart without a preference for anybody.
    pub(crate) fn lot(&self, shard: Ord32, broker: Ord32) -> u64 {
        self.facts.lot(shard, broker)
    }

    pub(crate) fn rendezvous(&self, key_hash: u64, broker: Ord32) -> u64 {
        combine(key_hash, self.brokers[broker as usize].hash)
    }

    /// The first of some brokers by rendezvous score, then by id.
    pub(crate) fn foremost(
        &self,
        key_hash: u64,
        brokers: impl Iterator<Item = Ord32>,
    ) -> Option<Ord32> {
        let mut foremost = Foremost::new(self.facts.hashes(), key_hash);
        brokers.for_each(|b| foremost.consider(b));
        foremost.broker()
    }

    /// Shards of all streams, placed or not.
    pub(crate) fn shard_count(&self) -> Ord32 {
        self.facts.shards.len() as Ord32
    }

    pub(crate) fn shard(&self, shard: Ord32) -> &ShardFacts {
        &self.facts.shards[shard as usize]
    }

    pub(crate) fn stream(&self, stream: Ord32) -> &StreamFacts {
        &self.facts.streams[stream as usize]
    }

    pub(crate) fn stream_of(&self, shard: Ord32) -> &StreamFacts {
        self.facts.stream_of(shard)
    }

    pub(crate) fn group_of(&self, shard: Ord32) -> &Group {
        &self.groups[self.stream_of(shard).group]
    }

    pub(crate) fn is_placed(&self, shard: Ord32) -> bool {
        self.shard(shard).placed
    }

    /// The stored assignment, with what the facts leave out.
    pub(crate) fn assignment(&self, shard: Ord32) -> Option<&'a Assignment> {
        if !self.is_placed(shard) {
            return None;
        }
        self.snapshot.assignments.get(&self.key(shard))
    }

    pub(crate) fn followers(&self, shard: Ord32) -> &[Ord32] {
        self.facts.followers(shard)
    }

    pub(crate) fn voters(&self, shard: Ord32) -> impl Iterator<Item = Ord32> + Clone + '_ {
        self.facts.voters(shard)
    }

    pub(crate) fn shape(&self, shard: Ord32) -> Shape {
        self.facts.shape(shard)
    }

    pub(crate) fn standing(&self, broker: Ord32) -> Standing {
        if broker == NONE { Standing::Lost } else { self.brokers[broker as usize].standing }
    }

    /// Whether a draining broker gives its followers away, too. One that was only told to stop is
    /// coming back to them: copying them would be the storm that a restart must not cause.
    pub(crate) fn empties(&self, broker: Ord32) -> bool {
        self.standing(broker) == Standing::Draining && !self.restarts(broker)
    }

    /// Whether a broker was told to stop and is expected back.
    pub(crate) fn restarts(&self, broker: Ord32) -> bool {
        broker != NONE && self.brokers[broker as usize].view.is_some_and(|v| v.stopping)
    }

    pub(crate) fn disk(&self, broker: Ord32) -> Disk {
        if broker == NONE { Disk::Roomy } else { self.brokers[broker as usize].disk }
    }

    /// How full a broker's disk is, in words.
    pub(crate) fn disk_words(&self, broker: Ord32) -> String {
        let view = if broker == NONE { None } else { self.brokers[broker as usize].view };
        let used = view.and_then(|v| disk::used(v, self.now, self.policy)).unwrap_or_default();
        format!("the disk of {} is {used:.1} % full", self.name(broker))
    }

    pub(crate) fn zone(&self, broker: Ord32) -> Ord32 {
        if broker == NONE { NONE } else { self.brokers[broker as usize].zone }
    }

    pub(crate) fn id(&self, broker: Ord32) -> Option<BrokerId> {
        (broker != NONE).then(|| self.brokers[broker as usize].id.clone())
    }

    pub(crate) fn name(&self, broker: Ord32) -> &str {
        if broker == NONE { "nobody" } else { self.brokers[broker as usize].id.as_str() }
    }

    /// What `broker` says about `shard` at the generation of its assignment.
    pub(crate) fn report(&self, shard: Ord32, broker: Ord32) -> Option<&'a ShardReport> {
        let facts = self.shard(shard);
        if broker == NONE || !facts.placed {
            return None;
        }
        let id = &self.brokers[broker as usize].id;
        self.snapshot.report(&self.key(shard), id, facts.generation)
    }

    /// Why a replica cannot go on although its broker may run: its log is damaged, say.
    pub(crate) fn halted(&self, shard: Ord32, broker: Ord32) -> Option<&'a str> {
        if broker == NONE || !self.shard(shard).halted {
            return None;
        }
        self.snapshot.halted(&self.key(shard), &self.brokers[broker as usize].id)
    }

    /// Why a leader whose broker runs cannot serve the shard.
    pub(crate) fn leader_halted(&self, shard: Ord32) -> Option<&'a str> {
        self.halted(shard, self.shard(shard).leader)
    }

    /// Whether a broker's copy of a shard is a live replica: the broker is there, and the copy has
    /// not halted.
    pub(crate) fn is_live(&self, shard: Ord32, broker: Ord32) -> bool {
        self.standing(broker).holds() && self.halted(shard, broker).is_none()
    }

    /// The stored state; a shard whose leader reports that it serves is active.
    pub(crate) fn state(&self, shard: Ord32) -> ShardState {
        let facts = self.shard(shard);
        if facts.active {
            return ShardState::Active;
        }
        let Some(assignment) = self.assignment(shard) else { return ShardState::Assigning };
        let serving =
            || self.report(shard, facts.leader).is_some_and(|r| r.phase == Some(Phase::Serving));
        match assignment.state {
            ShardState::Assigning if serving() => ShardState::Active,
            state => state,
        }
    }

    /// Whether the leader says that it does not serve yet. A replica that reports how far behind it
    /// is was counted by a leader that serves.
    pub(crate) fn is_opening(&self, shard: Ord32) -> bool {
        let report = self.report(shard, self.shard(shard).leader);
        report.is_some_and(|r| r.phase == Some(Phase::Opening))
    }

    pub(crate) fn live_replicas(&self, shard: Ord32) -> usize {
        self.voters(shard).filter(|b| self.is_live(shard, *b)).count()
    }

    /// Whether a copy or a hand-over of the shard is under way.
    pub(crate) fn is_moving(&self, shard: Ord32) -> bool {
        self.shard(shard).moving
    }
}
