//! Publishers: a closed loop that goes as fast as it can, and an open loop that keeps its rate
//! whatever the cluster does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_client::{Client, ClientConfig, Producer};
use evenkeel_model::StreamKey;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::figures::Sample;
use crate::Cluster;

/// Producers of an open loop: as many batches of one shard may be under way.
const LANES: usize = 32;

/// What is published, and where.
#[derive(Debug, Clone)]
pub struct Work {
    /// To which stream.
    pub stream: StreamKey,
    /// To how many of its shards, from the first on.
    pub shards: u32,
    /// Records of a batch.
    pub records: usize,
    /// Bytes of each, at least eight.
    pub record_bytes: usize,
}

/// A batch that was acknowledged.
#[derive(Debug, Clone)]
pub struct Acknowledged {
    /// Which batch of the run: the first eight bytes of its records.
    pub turn: u64,
    /// Where it went.
    pub shard: u32,
    /// Where its records are.
    pub offsets: Vec<u64>,
    /// When it was due.
    pub due: Instant,
    /// From then to the answer.
    pub took: Duration,
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Every acknowledged batch, in no order.
    pub acknowledged: Vec<Acknowledged>,
    /// Every other one.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Takes what another one has.
    pub fn take(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.failures.extend(other.failures);
    }

    /// Fails if any batch did.
    pub fn check(&self) -> anyhow::Result<()> {
        let failed = self.failures.len();
        anyhow::ensure!(failed == 0, "{failed} batches failed, such as: {}", self.failures[0]);
        Ok(())
    }

    /// Of every acknowledged batch.
    pub fn latencies(&self) -> Sample {
        self.acknowledged.iter().map(|batch| batch.took).collect()
    }
}

impl Work {
    /// The batch of a turn.
    pub fn batch(&self, turn: u64) -> Vec<Bytes> {
        let mut payload = vec![b'x'; self.record_bytes.max(8)];
        payload[..8].copy_from_slice(&turn.to_le_bytes());
        vec![Bytes::from(payload); self.records]
    }
}

/// A client of this cluster's brokers.
pub fn client(cluster: &Cluster) -> anyhow::Result<Client> {
    Ok(Client::new(ClientConfig::new(cluster.broker_addresses()))?)
}

/// A producer with an id that no other has.
pub fn producer(client: &Client, stream: &StreamKey) -> Producer {
    static LAST: AtomicU64 = AtomicU64::new(0);
    client.producer(stream.clone(), LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Publishes with each of `producers` one batch after the other, around the shards, until stopped.
pub async fn closed_loop(
    client: &Client,
    work: &Work,
    producers: u32,
    stop: &watch::Receiver<bool>,
) -> Outcome {
    let mut tasks = JoinSet::new();
    for first in 0..producers {
        let producer = producer(client, &work.stream);
        let (work, stop) = (work.clone(), stop.clone());
        tasks.spawn(async move {
            let mut outcome = Outcome::default();
            for turn in u64::from(first).. {
                if *stop.borrow() {
                    break;
                }
                outcome.take(publish(&producer, &work, turn, Instant::now()).await);
            }
            outcome
        });
    }
    gather(tasks).await
}

/// Publishes a batch every `distance`, around the shards, until stopped. A latency counts from the
/// moment at which the batch was due, so that a stall is seen by all that wait behind it.
pub async fn open_loop(
    client: &Client,
    work: &Work,
    distance: Duration,
    stop: &watch::Receiver<bool>,
) -> Outcome {
    let lanes: Vec<_> = (0..LANES).map(|_| Arc::new(producer(client, &work.stream))).collect();
    let mut tasks = JoinSet::new();
    let mut due = Instant::now();
    for turn in 0_u64.. {
        due += distance;
        sleep_until(due).await;
        if *stop.borrow() {
            break;
        }
        // All shards with one lane, then all with the next.
        let lane = lanes[(turn / u64::from(work.shards)) as usize % LANES].clone();
        let work = work.clone();
        tasks.spawn(async move { publish(&lane, &work, turn, due).await });
    }
    gather(tasks).await
}

async fn publish(producer: &Producer, work: &Work, turn: u64, due: Instant) -> Outcome {
    let shard = (turn % u64::from(work.shards)) as u32;
    match producer.publish(shard, work.batch(turn)).await {
        Ok(published) => {
            let (offsets, took) = (published.offsets, due.elapsed());
            let batch = Acknowledged { turn, shard, offsets, due, took };
            Outcome { acknowledged: vec![batch], failures: vec![] }
        }
        Err(error) => Outcome { acknowledged: vec![], failures: vec![error.to_string()] },
    }
}

/// Runs something that ends soon after it is told to; and how long it ran.
pub async fn for_a_while<T>(
    time: Duration,
    work: impl AsyncFnOnce(&watch::Receiver<bool>) -> T,
) -> (T, Duration) {
    let (stop, stopped) = watch::channel(false);
    let began = Instant::now();
    let timer = async {
        sleep(time).await;
        // Nobody listens only if the work has ended.
        let _ = stop.send(true);
    };
    let (outcome, ()) = tokio::join!(work(&stopped), timer);
    (outcome, began.elapsed())
}

async fn gather(mut tasks: JoinSet<Outcome>) -> Outcome {
    let mut all = Outcome::default();
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(outcome) => all.take(outcome),
            Err(error) => all.failures.push(error.to_string()),
        }
    }
    all
}
