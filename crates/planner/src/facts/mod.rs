//! The snapshot on dense numbers: brokers, streams and shards, each a row. Built once, and kept from
//! pass to pass by [`crate::Planner`], which changes only the rows of what changed.
//!
//! Ordinals of listed brokers are in order of id, those of shards in order of key. Brokers that only
//! assignments name come after the listed ones.

mod build;
mod change;
mod loads;

use evenkeel_model::hash::{combine, hash64};
use evenkeel_model::{BrokerId, ShardKey, Stream, StreamKey};

use crate::intern::Interner;
use crate::shape::Shape;
use crate::tally::Tally;

pub(crate) use loads::LoadFacts;

/// Ordinal of a broker, a shard, a stream, a zone or a region.
pub(crate) type Ord32 = u32;

/// No broker, no zone.
pub(crate) const NONE: Ord32 = u32::MAX;

pub(crate) struct StreamFacts {
    pub(crate) key: StreamKey,
    pub(crate) stream: Stream,
    /// Ordinal of its shard 0; the others follow.
    pub(crate) first: Ord32,
    /// Its group of brokers: 0 are all, the others the regions in order of first mention.
    pub(crate) group: usize,
    hash: u64,
}

impl StreamFacts {
    pub(crate) fn shards(&self) -> std::ops::Range<Ord32> {
        self.first..self.first + self.stream.shards
    }

    pub(crate) fn factor(&self) -> usize {
        self.stream.replication_factor as usize
    }
}

/// Who holds a shard. What is rarely asked for stays in the assignment itself.
#[derive(Clone, Copy)]
pub(crate) struct ShardFacts {
    pub(crate) stream: Ord32,
    pub(crate) leader: Ord32,
    followers: (u32, u32),
    pub(crate) successor: Ord32,
    pub(crate) joining: Ord32,
    leaving: Ord32,
    pub(crate) generation: u64,
    pub(crate) placed: bool,
    pub(crate) moving: bool,
    pub(crate) active: bool,
    pub(crate) traced: bool,
    /// Some replica reported that it halted, at whatever generation.
    pub(crate) halted: bool,
}

/// Everything that lasts between passes.
pub(crate) struct Facts {
    ids: Vec<BrokerId>,
    hashes: Vec<u64>,
    names: Interner,
    pub(crate) streams: Vec<StreamFacts>,
    stream_names: Interner,
    /// The region of each group; none for the first.
    pub(crate) regions: Vec<Option<String>>,
    pub(crate) shards: Vec<ShardFacts>,
    arena: Vec<Ord32>,
    /// Entries of the arena that no shard uses any more.
    waste: usize,
    /// Counts of the stored assignments. A pass works on a copy.
    pub(crate) tally: Tally,
    /// By broker.
    pub(crate) loads: Vec<Option<LoadFacts>>,
}

/// The facts that a pass works with.
pub(crate) enum HeldFacts<'a> {
    /// Made for one question.
    Own(Box<Facts>),
    /// Kept by somebody who asks often.
    Kept(&'a Facts),
}

impl std::ops::Deref for HeldFacts<'_> {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        match self {
            Self::Own(facts) => facts,
            Self::Kept(facts) => facts,
        }
    }
}

impl Facts {
    pub(crate) fn brokers(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn id(&self, broker: Ord32) -> &BrokerId {
        &self.ids[broker as usize]
    }

    pub(crate) fn hash(&self, broker: Ord32) -> u64 {
        self.hashes[broker as usize]
    }

    /// By broker, the half of the rendezvous scores that is the same for all keys.
    pub(crate) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    pub(crate) fn broker_named(&self, id: &BrokerId) -> Option<Ord32> {
        self.names.find(hash64(id.as_str()), |b| self.ids[b as usize] == *id)
    }

    pub(crate) fn stream_named(&self, key: &StreamKey) -> Option<Ord32> {
        self.stream_names.find(stream_hash(key), |s| self.streams[s as usize].key == *key)
    }

    pub(crate) fn shard_named(&self, key: &ShardKey) -> Option<Ord32> {
        let facts = &self.streams[self.stream_named(&key.stream)? as usize];
        (key.number < facts.stream.shards).then(|| facts.first + key.number)
    }

    pub(crate) fn stream_of(&self, shard: Ord32) -> &StreamFacts {
        &self.streams[self.shards[shard as usize].stream as usize]
    }

    pub(crate) fn key(&self, shard: Ord32) -> ShardKey {
        let stream = self.stream_of(shard);
        stream.key.shard(shard - stream.first)
    }

    /// Tells equals apart without a preference for anybody, where the published score of the key
    /// would take too long to reckon.
    pub(crate) fn lot(&self, shard: Ord32, broker: Ord32) -> u64 {
        let stream = self.stream_of(shard);
        let number = u64::from(shard - stream.first);
        combine(stream.hash.wrapping_add(number), self.hash(broker))
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
}

fn stream_hash(key: &StreamKey) -> u64 {
    hash64(&key.name) ^ hash64(&key.namespace).rotate_left(17) ^ key.kind as u64
}
