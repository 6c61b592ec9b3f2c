//! The snapshot on dense numbers: brokers, streams and shards, each a row, built once per pass.

use evenkeel_model::hash::{combine, hash64};
use evenkeel_model::{
    Assignment, BrokerId, BrokerView, Millis, Phase, Policy, ShardKey, ShardReport, ShardState,
    Snapshot, Stream, StreamKey,
};

use crate::intern::Interner;
pub(crate) use crate::shape::Shape;
pub(crate) use crate::standing::Standing;
use crate::standing::standing;

/// Ordinal of a broker, a shard, a stream, a zone or a region.
pub(crate) type Ord32 = u32;

/// No broker, no zone.
pub(crate) const NONE: Ord32 = u32::MAX;

pub(crate) struct BrokerFacts<'a> {
    pub(crate) id: BrokerId,
    pub(crate) view: Option<&'a BrokerView>,
    pub(crate) hash: u64,
    pub(crate) standing: Standing,
    pub(crate) zone: Ord32,
    pub(crate) weight: f64,
    /// `max_shards`, or the largest number.
    pub(crate) cap: u32,
}

/// The brokers that may be given shards of some streams.
pub(crate) struct Group {
    pub(crate) region: Option<String>,
    /// In order of id.
    pub(crate) targets: Vec<Ord32>,
    pub(crate) weight: f64,
}

pub(crate) struct StreamFacts<'a> {
    pub(crate) key: &'a StreamKey,
    pub(crate) stream: &'a Stream,
    /// Ordinal of its shard 0; the others follow.
    pub(crate) first: Ord32,
    pub(crate) group: usize,
    hash: u64,
}

impl StreamFacts<'_> {
    pub(crate) fn shards(&self) -> std::ops::Range<Ord32> {
        self.first..self.first + self.stream.shards
    }

    pub(crate) fn factor(&self) -> usize {
        self.stream.replication_factor as usize
    }
}

#[derive(Clone, Copy)]
pub(crate) struct ShardFacts<'a> {
    pub(crate) stream: Ord32,
    pub(crate) leader: Ord32,
    followers: (u32, u32),
    pub(crate) successor: Ord32,
    pub(crate) joining: Ord32,
    leaving: Ord32,
    /// Kept beside the assignment, which lies elsewhere in memory.
    moving: bool,
    active: bool,
    pub(crate) traced: bool,
    pub(crate) assignment: Option<&'a Assignment>,
}

/// The whole snapshot on ordinals.
pub(crate) struct World<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) policy: &'a Policy,
    pub(crate) now: Millis,
    pub(crate) brokers: Vec<BrokerFacts<'a>>,
    pub(crate) groups: Vec<Group>,
    pub(crate) streams: Vec<StreamFacts<'a>>,
    pub(crate) shards: Vec<ShardFacts<'a>>,
    pub(crate) zones: usize,
    arena: Vec<Ord32>,
    names: Interner,
    stream_names: Interner,
}

impl<'a> World<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, policy: &'a Policy) -> Self {
        let mut world = Self {
            snapshot,
            policy,
            now: snapshot.as_of_ms,
            brokers: Vec::with_capacity(snapshot.brokers.len()),
            groups: Vec::new(),
            streams: Vec::with_capacity(snapshot.streams.len()),
            shards: Vec::new(),
            zones: 0,
            arena: Vec::new(),
            names: Interner::with_capacity(snapshot.brokers.len()),
            stream_names: Interner::with_capacity(snapshot.streams.len()),
        };
        world.add_brokers();
        world.group(&None);
        world.add_shards();
        world
    }

    fn add_brokers(&mut self) {
        let mut zones: Vec<&str> = Vec::new();
        for (id, view) in &self.snapshot.brokers {
            let zone = match &view.zone {
                None => NONE,
                Some(name) => match zones.iter().position(|z| z == name) {
                    Some(at) => at as Ord32,
                    None => {
                        zones.push(name);
                        (zones.len() - 1) as Ord32
                    }
                },
            };
            let hash = hash64(id.as_str());
            self.names.insert(hash, self.brokers.len() as Ord32);
            self.brokers.push(BrokerFacts {
                id: id.clone(),
                view: Some(view),
                hash,
                standing: standing(view, self.now, self.policy),
                zone,
                weight: view.weight,
                cap: view.max_shards.unwrap_or(u32::MAX),
            });
        }
        self.zones = zones.len();
    }

    fn group(&mut self, region: &Option<String>) -> usize {
        if let Some(at) = self.groups.iter().position(|g| g.region == *region) {
            return at;
        }
        let allowed = |b: &BrokerFacts<'_>| {
            b.standing == Standing::Target
                && (region.is_none() || b.view.is_some_and(|v| v.region == *region))
        };
        let targets: Vec<Ord32> = (0..self.brokers.len() as Ord32)
            .filter(|b| allowed(&self.brokers[*b as usize]))
            .collect();
        let weight = targets.iter().map(|b| self.brokers[*b as usize].weight).sum();
        self.groups.push(Group { region: region.clone(), targets, weight });
        self.groups.len() - 1
    }

    fn add_shards(&mut self) {
        let mut assignments = self.snapshot.assignments.iter().peekable();
        for (key, stream) in &self.snapshot.streams {
            let at = self.streams.len() as Ord32;
            let group = self.group(&stream.region);
            let first = self.shards.len() as Ord32;
            let hash = stream_hash(key);
            self.stream_names.insert(hash, at);
            self.streams.push(StreamFacts { key, stream, first, group, hash });
            let unplaced = ShardFacts {
                stream: at,
                leader: NONE,
                followers: (0, 0),
                successor: NONE,
                joining: NONE,
                leaving: NONE,
                moving: false,
                active: false,
                traced: false,
                assignment: None,
            };
            self.shards.resize(first as usize + stream.shards as usize, unplaced);
            // Both maps are in key order; assignments of unknown streams are passed over.
            while assignments.next_if(|(shard, _)| shard.stream < *key).is_some() {}
            while let Some((shard, a)) = assignments.next_if(|(shard, _)| shard.stream == *key) {
                if shard.number < stream.shards {
                    let facts = self.shard_facts(at, a);
                    self.shards[(first + shard.number) as usize] = facts;
                }
            }
        }
    }

    fn shard_facts(&mut self, stream: Ord32, a: &'a Assignment) -> ShardFacts<'a> {
        let start = self.arena.len() as u32;
        for follower in &a.followers {
            let ordinal = self.intern(follower);
            self.arena.push(ordinal);
        }
        let mut optional = |b: &Option<BrokerId>| b.as_ref().map_or(NONE, |b| self.intern(b));
        ShardFacts {
            stream,
            leader: optional(&a.leader),
            followers: (start, a.followers.len() as u32),
            successor: optional(&a.successor),
            joining: optional(&a.joining),
            leaving: optional(&a.leaving),
            moving: a.is_moving(),
            active: a.state == ShardState::Active,
            traced: a.move_.is_some(),
            assignment: Some(a),
        }
    }

    /// The ordinal of a broker; one that the snapshot does not list is lost.
    fn intern(&mut self, id: &BrokerId) -> Ord32 {
        let hash = hash64(id.as_str());
        if let Some(known) = self.names.find(hash, |b| self.brokers[b as usize].id == *id) {
            return known;
        }
        let ordinal = self.brokers.len() as Ord32;
        self.names.insert(hash, ordinal);
        self.brokers.push(BrokerFacts {
            id: id.clone(),
            view: None,
            hash,
            standing: Standing::Lost,
            zone: NONE,
            weight: 0.0,
            cap: 0,
        });
        ordinal
    }

    pub(crate) fn broker_named(&self, id: &BrokerId) -> Option<Ord32> {
        self.names.find(hash64(id.as_str()), |b| self.brokers[b as usize].id == *id)
    }

    pub(crate) fn shard_named(&self, key: &ShardKey) -> Option<Ord32> {
        let hash = stream_hash(&key.stream);
        let at = self.stream_names.find(hash, |s| *self.streams[s as usize].key == key.stream)?;
        let facts = &self.streams[at as usize];
        (key.number < facts.stream.shards).then(|| facts.first + key.number)
    }

    pub(crate) fn key(&self, shard: Ord32) -> ShardKey {
        let stream = &self.streams[self.shards[shard as usize].stream as usize];
        stream.key.shard(shard - stream.first)
    }

    /// Hash of the shard's key, the half of its rendezvous scores that is the same for all brokers.
    pub(crate) fn key_hash(&self, shard: Ord32) -> u64 {
        hash64(&self.key(shard).to_string())
    }

    /// Tells equals apart without a preference for anybody, where the published score of the key
    /// would take too long to reckon.
    pub(crate) fn lot(&self, shard: Ord32, broker: Ord32) -> u64 {
        let stream = self.stream_of(shard);
        let number = u64::from(shard - stream.first);
        combine(stream.hash.wrapping_add(number), self.brokers[broker as usize].hash)
    }

    pub(crate) fn rendezvous(&self, key_hash: u64, broker: Ord32) -> u64 {
        combine(key_hash, self.brokers[broker as usize].hash)
    }

    pub(crate) fn shard(&self, shard: Ord32) -> &ShardFacts<'a> {
        &self.shards[shard as usize]
    }

    pub(crate) fn stream_of(&self, shard: Ord32) -> &StreamFacts<'a> {
        &self.streams[self.shards[shard as usize].stream as usize]
    }

    pub(crate) fn group_of(&self, shard: Ord32) -> &Group {
        &self.groups[self.stream_of(shard).group]
    }

    pub(crate) fn followers(&self, shard: Ord32) -> &[Ord32] {
        let (start, len) = self.shards[shard as usize].followers;
        &self.arena[start as usize..(start + len) as usize]
    }

    pub(crate) fn voters(&self, shard: Ord32) -> impl Iterator<Item = Ord32> + Clone + '_ {
        let leader = Some(self.shards[shard as usize].leader).filter(|b| *b != NONE);
        leader.into_iter().chain(self.followers(shard).iter().copied())
    }

    pub(crate) fn shape(&self, shard: Ord32) -> Shape {
        let facts = &self.shards[shard as usize];
        Shape {
            leader: facts.leader,
            followers: self.followers(shard).to_vec(),
            successor: facts.successor,
            joining: facts.joining,
            leaving: facts.leaving,
        }
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
        let assignment = self.shard(shard).assignment?;
        if broker == NONE {
            return None;
        }
        let id = &self.brokers[broker as usize].id;
        self.snapshot.report(&assignment.shard, id, assignment.generation)
    }

    /// Why a leader whose broker runs cannot serve the shard: its log is damaged, say.
    pub(crate) fn leader_halted(&self, shard: Ord32) -> Option<&'a str> {
        self.report(shard, self.shard(shard).leader)?.halted.as_deref()
    }

    /// The stored state; a shard whose leader reports that it serves is active.
    pub(crate) fn state(&self, shard: Ord32) -> ShardState {
        let facts = self.shard(shard);
        if facts.active {
            return ShardState::Active;
        }
        let Some(assignment) = facts.assignment else { return ShardState::Assigning };
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
        self.voters(shard).filter(|b| self.standing(*b).holds()).count()
    }

    /// Whether a copy or a hand-over of the shard is under way.
    pub(crate) fn is_moving(&self, shard: Ord32) -> bool {
        self.shard(shard).moving
    }
}

fn stream_hash(key: &StreamKey) -> u64 {
    hash64(&key.name) ^ hash64(&key.namespace).rotate_left(17) ^ key.kind as u64
}
