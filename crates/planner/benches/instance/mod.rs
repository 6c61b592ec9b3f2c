//! Clusters to measure on, the same from one seed everywhere: shards with log-normal load on brokers
//! of which some have only just joined.

mod chance;

use std::collections::BTreeMap;

use evenkeel_model::{
    Assignment, BrokerId, BrokerView, Kind, LoadReport, ShardLoad, ShardState, Snapshot, Stream,
    StreamKey,
};

use chance::Chance;

/// When the snapshots are of.
const AS_OF_MS: i64 = 1_700_000_600_000;

/// Bytes per second of a shard in the middle: half of them carry more.
const MEDIAN_BYTES_PER_SECOND: f64 = 100_000.0;

const SHARDS_PER_STREAM: u32 = 100;

/// A cluster to make.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instance {
    pub(crate) name: &'static str,
    pub(crate) shards: u32,
    pub(crate) factor: usize,
    pub(crate) brokers: usize,
    /// None if 0; brokers take turns.
    pub(crate) zones: usize,
    /// Brokers that hold nothing yet, the last ones.
    pub(crate) empty: usize,
}

impl Instance {
    /// Every replica is on a broker chosen at random, those of one shard in distinct zones, or at
    /// least on distinct brokers.
    pub(crate) fn make(&self, seed: u64) -> Snapshot {
        let mut chance = Chance::new(seed);
        let mut snapshot = Snapshot::empty(AS_OF_MS);
        let ids: Vec<BrokerId> = (0..self.brokers).map(broker).collect();
        let mut reports: Vec<Vec<ShardLoad>> = vec![Vec::new(); self.brokers];
        let mut assignments = Vec::with_capacity(self.shards as usize);
        for first in (0..self.shards).step_by(SHARDS_PER_STREAM as usize) {
            let stream = stream(first / SHARDS_PER_STREAM);
            let shards = SHARDS_PER_STREAM.min(self.shards - first);
            for number in 0..shards {
                let voters = self.voters(&mut chance);
                let shard = stream.shard(number);
                let load = MEDIAN_BYTES_PER_SECOND * chance.log_normal();
                reports[voters[0]].push(row(shard.clone(), load.round()));
                let followers = voters[1..].iter().map(|b| ids[*b].clone()).collect();
                let mut a = Assignment::new(shard.clone(), ids[voters[0]].clone(), followers);
                a.state = ShardState::Active;
                assignments.push((shard, a));
            }
            let facts = Stream {
                v: 1,
                stream: stream.clone(),
                shards,
                replication_factor: self.factor as u32,
                durable: true,
                created_at_ms: Some(AS_OF_MS - 3_600_000),
                region: None,
            };
            snapshot.streams.insert(stream, facts);
        }
        snapshot.assignments = assignments.into_iter().collect();
        snapshot.brokers = self.views(ids, reports);
        snapshot
    }

    fn voters(&self, chance: &mut Chance) -> Vec<usize> {
        let full = self.brokers - self.empty;
        let mut voters: Vec<usize> = Vec::with_capacity(self.factor);
        while voters.len() < self.factor {
            let broker = chance.below(full);
            let zone = |b: usize| if self.zones < self.factor { b } else { b % self.zones };
            if voters.iter().all(|b| zone(*b) != zone(broker)) {
                voters.push(broker);
            }
        }
        voters
    }

    fn views(
        &self,
        ids: Vec<BrokerId>,
        reports: Vec<Vec<ShardLoad>>,
    ) -> BTreeMap<BrokerId, BrokerView> {
        let view = |(at, mut shards): (usize, Vec<ShardLoad>)| {
            shards.shrink_to_fit();
            let load = LoadReport {
                v: 1,
                reported_at_ms: AS_OF_MS - 10_000,
                incarnation: 1,
                disk_used_percent: None,
                cpu_percent: None,
                memory_percent: None,
                disk_io_bytes_per_second: None,
                network_io_bytes_per_second: None,
                shards,
            };
            BrokerView {
                last_seen_ms: AS_OF_MS - 1_000,
                zone: (self.zones > 0).then(|| format!("z{}", at % self.zones)),
                load: Some(load),
                ..BrokerView::live(AS_OF_MS - 3_600_000)
            }
        };
        ids.into_iter().zip(reports.into_iter().enumerate().map(view)).collect()
    }
}

fn row(shard: evenkeel_model::ShardKey, bytes_per_second: f64) -> ShardLoad {
    ShardLoad {
        shard,
        messages_per_second: (bytes_per_second / 1000.0).round(),
        bytes_per_second,
        producers: 1,
        consumers: 1,
        subscriptions: 1,
        backlog: 0,
        size_bytes: 0,
        log_end: 0,
    }
}

fn broker(n: usize) -> BrokerId {
    format!("b{n:04}").parse().expect("a broker id")
}

fn stream(n: u32) -> StreamKey {
    StreamKey::new(Kind::Stream, "default", &format!("s{n:05}")).expect("a stream name")
}
