//! Producers that publish throughout, what was acknowledged to them, and the check at the end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_client::{Client, ClientConfig, ClientError, Delivery, Producer, Published};
use evenkeel_model::{ShardKey, StreamKey, hash};
use evenkeel_runtime::Network;
use tokio::task::JoinSet;

/// What was acknowledged: shard and offset to the record.
#[derive(Debug, Default)]
struct Ledger {
    acknowledged: BTreeMap<ShardKey, BTreeMap<u64, String>>,
    leaders: BTreeMap<(ShardKey, u64), String>,
    faults: Vec<String>,
    failed: u64,
}

/// Who publishes what, how fast.
#[derive(Debug, Clone)]
pub struct TrafficPlan {
    /// `host:port` of some brokers.
    pub bootstrap: Vec<String>,
    /// Where to publish; each producer keeps to one stream.
    pub streams: Vec<StreamKey>,
    /// Shards of each stream.
    pub shards: u32,
    /// Producers.
    pub producers: u32,
    /// Between two batches of one producer.
    pub pause: Duration,
    /// Chooses the shards.
    pub seed: u64,
}

/// Producers at work.
pub struct Traffic {
    ledger: Arc<Mutex<Ledger>>,
    stop: Arc<AtomicBool>,
    producers: JoinSet<()>,
    client: Client,
}

/// What the check at the end found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Records acknowledged.
    pub acknowledged: u64,
    /// Batches given up, never acknowledged.
    pub failed: u64,
    /// Acknowledged records that are lost, doubled or out of order; two leaders of a generation.
    pub faults: Vec<String>,
}

fn client(network: &Network, plan: &TrafficPlan) -> Result<Client, ClientError> {
    let mut config = ClientConfig::new(plan.bootstrap.clone());
    config.seed = plan.seed;
    config.patience = Duration::from_secs(60);
    let network = network.clone();
    Client::with_connect(config, Arc::new(move |address| Ok(network.channel(address))))
}

impl Traffic {
    /// Starts the producers.
    ///
    /// # Errors
    /// The plan names no broker that could be one.
    pub fn start(network: &Network, plan: &TrafficPlan) -> Result<Self, ClientError> {
        let client = client(network, plan)?;
        let ledger = Arc::<Mutex<Ledger>>::default();
        let stop = Arc::<AtomicBool>::default();
        let mut tasks = JoinSet::new();
        for number in 1..=u64::from(plan.producers) {
            let at = usize::try_from(number).unwrap_or(0) % plan.streams.len().max(1);
            let Some(stream) = plan.streams.get(at) else { break };
            let producer = client.producer(stream.clone(), number);
            let work = Work { plan: plan.clone(), ledger: ledger.clone(), stop: stop.clone() };
            tasks.spawn(work.run(number, producer));
        }
        Ok(Self { ledger, stop, producers: tasks, client })
    }

    /// Stops, reads every shard back, and compares.
    pub async fn finish(mut self) -> Reading {
        self.stop.store(true, Ordering::Relaxed);
        while self.producers.join_next().await.is_some() {}
        let shards: Vec<ShardKey> = lock(&self.ledger).acknowledged.keys().cloned().collect();
        for shard in shards {
            let read = self.read(&shard).await;
            lock(&self.ledger).compare(&shard, read);
        }
        let ledger = lock(&self.ledger);
        let acknowledged = ledger.acknowledged.values().map(|offsets| offsets.len() as u64).sum();
        Reading { acknowledged, failed: ledger.failed, faults: ledger.faults.clone() }
    }

    async fn read(&self, shard: &ShardKey) -> Result<Vec<(u64, String)>, ClientError> {
        let mut subscription = self.client.read(shard.clone(), 0);
        let mut records = Vec::new();
        loop {
            match subscription.next().await? {
                Delivery::Records(batch) => records.extend(batch.into_iter().map(|record| {
                    (record.offset, String::from_utf8_lossy(&record.payload).into_owned())
                })),
                Delivery::End { .. } => return Ok(records),
            }
        }
    }
}

/// One producer's share.
struct Work {
    plan: TrafficPlan,
    ledger: Arc<Mutex<Ledger>>,
    stop: Arc<AtomicBool>,
}

impl Work {
    async fn run(self, number: u64, producer: Producer) {
        let mut sequence = 0_u64;
        while !self.stop.load(Ordering::Relaxed) {
            let choice = hash::combine(self.plan.seed, hash::combine(number, sequence));
            let shard = u32::try_from(choice % u64::from(self.plan.shards.max(1))).unwrap_or(0);
            let records: Vec<String> = (0..3).map(|n| format!("{number}-{sequence}-{n}")).collect();
            let payloads = records.iter().map(|r| r.clone().into()).collect();
            let result = producer.publish(shard, payloads).await;
            lock(&self.ledger).take(&producer.stream().shard(shard), records, result);
            sequence += 1;
            tokio::time::sleep(self.plan.pause).await;
        }
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    fn take(
        &mut self,
        shard: &ShardKey,
        records: Vec<String>,
        result: Result<Published, ClientError>,
    ) {
        let published = match result {
            Ok(published) => published,
            Err(_) => {
                self.failed += 1;
                return;
            }
        };
        let at = (shard.clone(), published.generation);
        let first = self.leaders.entry(at).or_insert_with(|| published.leader.clone());
        if *first != published.leader {
            let generation = published.generation;
            self.faults.push(format!(
                "{shard}: {first} and {} acknowledge at generation {generation}",
                published.leader
            ));
        }
        let offsets = self.acknowledged.entry(shard.clone()).or_default();
        for (offset, record) in published.offsets.into_iter().zip(records) {
            if let Some(other) = offsets.insert(offset, record.clone()) {
                self.faults.push(format!(
                    "{shard}: offset {offset} acknowledged for {other} and {record}"
                ));
            }
        }
    }

    /// Every acknowledged record once, at its offset; nothing twice; each producer's in order.
    fn compare(&mut self, shard: &ShardKey, read: Result<Vec<(u64, String)>, ClientError>) {
        let read = match read {
            Ok(read) => read,
            Err(error) => return self.faults.push(format!("{shard} cannot be read: {error}")),
        };
        let mut found = BTreeMap::new();
        let mut last = BTreeMap::new();
        for (offset, record) in &read {
            if let Some(other) = found.insert(record.clone(), *offset) {
                self.faults.push(format!("{shard}: {record} at {other} and at {offset}"));
            }
            let mut numbers = record.split('-').filter_map(|n| n.parse::<u64>().ok());
            let producer = numbers.next();
            let place: Vec<u64> = numbers.collect();
            if let Some(before) = last.insert(producer, place.clone())
                && before >= place
            {
                self.faults.push(format!("{shard}: {record} follows {before:?}"));
            }
        }
        for (offset, record) in self.acknowledged.get(shard).into_iter().flatten() {
            if found.get(record) != Some(offset) {
                let at = found.get(record);
                self.faults
                    .push(format!("{shard}: {record} acknowledged at {offset}, read at {at:?}"));
            }
        }
    }
}
