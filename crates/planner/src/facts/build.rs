//! From a snapshot to its facts.

use evenkeel_model::hash::hash64;
use evenkeel_model::{Assignment, BrokerId, ShardState, Snapshot, Stream, StreamKey};

use super::{Facts, LoadFacts, NONE, Ord32, ShardFacts, StreamFacts, stream_hash};
use crate::intern::{Addresses, Interner};
use crate::tally::Tally;

impl Facts {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let brokers = snapshot.brokers.len();
        let shards = snapshot.streams.values().map(|s| s.shards as usize).sum();
        let mut facts = Self {
            ids: Vec::with_capacity(brokers),
            hashes: Vec::with_capacity(brokers),
            names: Interner::with_capacity(brokers),
            streams: Vec::with_capacity(snapshot.streams.len()),
            stream_names: Interner::with_capacity(snapshot.streams.len()),
            regions: vec![None],
            shards: Vec::with_capacity(shards),
            arena: Vec::new(),
            waste: 0,
            tally: Tally::default(),
            loads: Vec::with_capacity(brokers),
        };
        for id in snapshot.brokers.keys() {
            facts.add_broker(id.clone(), hash64(id.as_str()));
        }
        facts.add_shards(snapshot);
        for (shard, reports) in &snapshot.reports {
            if reports.iter().any(|r| r.halted_because().is_some())
                && let Some(shard) = facts.shard_named(shard)
            {
                facts.shards[shard as usize].halted = true;
            }
        }
        facts.tally = Tally::new(&facts);
        let mut addresses = Addresses::new();
        let mut find = |key: &StreamKey| {
            addresses.number(&key.name, || facts.stream_named(key).unwrap_or(NONE))
        };
        let loads = snapshot
            .brokers
            .values()
            .map(|view| view.load.as_ref().map(|report| LoadFacts::new(&facts, report, &mut find)));
        facts.loads = loads.collect();
        facts.loads.resize_with(facts.ids.len(), || None);
        facts
    }

    fn add_broker(&mut self, id: BrokerId, hash: u64) -> Ord32 {
        let ordinal = self.ids.len() as Ord32;
        self.names.insert(hash, ordinal);
        self.ids.push(id);
        self.hashes.push(hash);
        ordinal
    }

    fn add_shards(&mut self, snapshot: &Snapshot) {
        let mut addresses = Addresses::new();
        let mut assignments = snapshot.assignments.iter().peekable();
        for (key, stream) in &snapshot.streams {
            let (at, first) = (self.streams.len() as Ord32, self.shards.len() as Ord32);
            self.add_stream(key, stream);
            self.shards.resize((first + stream.shards) as usize, ShardFacts::unplaced(at));
            // Both maps are in key order; assignments of unknown streams are passed over.
            while assignments.next_if(|(shard, _)| shard.stream < *key).is_some() {}
            while let Some((shard, a)) = assignments.next_if(|(shard, _)| shard.stream == *key) {
                if shard.number < stream.shards {
                    let find = |facts: &mut Self, id: &BrokerId| {
                        addresses.number(id.as_str(), || facts.ordinal(id))
                    };
                    self.put(first + shard.number, a, find);
                }
            }
        }
    }

    fn add_stream(&mut self, key: &StreamKey, stream: &Stream) {
        let hash = stream_hash(key);
        self.stream_names.insert(hash, self.streams.len() as Ord32);
        let group = match self.regions.iter().position(|r| *r == stream.region) {
            Some(at) => at,
            None => {
                self.regions.push(stream.region.clone());
                self.regions.len() - 1
            }
        };
        let first = self.shards.len() as Ord32;
        let facts = StreamFacts { key: key.clone(), stream: stream.clone(), first, group, hash };
        self.streams.push(facts);
    }

    /// Writes an assignment into the row of its shard, its brokers numbered by `find`. Counts are
    /// the caller's.
    pub(super) fn put(
        &mut self,
        shard: Ord32,
        a: &Assignment,
        mut find: impl FnMut(&mut Self, &BrokerId) -> Ord32,
    ) {
        let followers = self.put_followers(shard, &a.followers, &mut find);
        let mut optional = |b: &Option<BrokerId>| b.as_ref().map_or(NONE, |b| find(self, b));
        let (leader, successor) = (optional(&a.leader), optional(&a.successor));
        let (joining, leaving) = (optional(&a.joining), optional(&a.leaving));
        let row = &mut self.shards[shard as usize];
        *row = ShardFacts {
            stream: row.stream,
            leader,
            followers,
            successor,
            joining,
            leaving,
            generation: a.generation,
            placed: true,
            moving: a.is_moving(),
            active: a.state == ShardState::Active,
            traced: a.move_.is_some(),
            halted: row.halted,
        };
    }

    /// In the row's own entries if they are enough, else at the end of the arena.
    fn put_followers(
        &mut self,
        shard: Ord32,
        followers: &[BrokerId],
        mut find: impl FnMut(&mut Self, &BrokerId) -> Ord32,
    ) -> (u32, u32) {
        let (start, room) = self.shards[shard as usize].followers;
        let len = followers.len() as u32;
        if len > 0 && len <= room {
            for (at, follower) in (start..).zip(followers) {
                self.arena[at as usize] = find(self, follower);
            }
            self.waste += (room - len) as usize;
            return (start, len);
        }
        self.waste += room as usize;
        let start = self.arena.len() as u32;
        for follower in followers {
            let ordinal = find(self, follower);
            self.arena.push(ordinal);
        }
        (start, len)
    }

    /// The ordinal of a broker; one that the snapshot does not list is lost.
    pub(super) fn ordinal(&mut self, id: &BrokerId) -> Ord32 {
        let hash = hash64(id.as_str());
        let known = self.names.find(hash, |b| self.ids[b as usize] == *id);
        known.unwrap_or_else(|| self.add_broker(id.clone(), hash))
    }
}

impl ShardFacts {
    pub(super) fn unplaced(stream: Ord32) -> Self {
        Self {
            stream,
            leader: NONE,
            followers: (0, 0),
            successor: NONE,
            joining: NONE,
            leaving: NONE,
            generation: 0,
            placed: false,
            moving: false,
            active: false,
            traced: false,
            halted: false,
        }
    }
}
