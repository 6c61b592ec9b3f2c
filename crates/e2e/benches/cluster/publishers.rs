//! Publishers: a closed loop that goes as fast as it can, and an open loop that keeps its rate
//! whatever the cluster does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_client::{Client, ClientConfig, Producer};
use evenkeel_e2e::Cluster;
use evenkeel_model::StreamKey;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Producers of an open loop: as many batches of one shard may be under way.
const LANES: usize = 32;

/// What is published, and where.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) stream: StreamKey,
    pub(crate) shards: u32,
    pub(crate) records: usize,
    pub(crate) record_bytes: usize,
}

/// What became of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Of every acknowledged batch.
    pub(crate) latencies: Vec<Duration>,
    pub(crate) failures: Vec<String>,
}

impl Outcome {
    fn take(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.failures.extend(other.failures);
    }

    /// Fails if any batch did.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let failed = self.failures.len();
        anyhow::ensure!(failed == 0, "{failed} batches failed, such as: {}", self.failures[0]);
        Ok(())
    }
}

impl Work {
    pub(crate) fn batch(&self) -> Vec<Bytes> {
        let payload = Bytes::from(vec![b'x'; self.record_bytes]);
        vec![payload; self.records]
    }
}

pub(crate) fn client(cluster: &Cluster) -> anyhow::Result<Client> {
    Ok(Client::new(ClientConfig::new(cluster.broker_addresses()))?)
}

/// A producer with an id that no other has.
pub(crate) fn producer(client: &Client, stream: &StreamKey) -> Producer {
    static LAST: AtomicU64 = AtomicU64::new(0);
    client.producer(stream.clone(), LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Publishes with each of `producers` one batch after the other, around the shards, until stopped.
pub(crate) async fn closed_loop(
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
            for turn in first.. {
                if *stop.borrow() {
                    break;
                }
                let began = Instant::now();
                match producer.publish(turn % work.shards, work.batch()).await {
                    Ok(_) => outcome.latencies.push(began.elapsed()),
                    Err(error) => outcome.failures.push(error.to_string()),
                }
            }
            outcome
        });
    }
    gather(tasks).await
}

/// Publishes a batch every `distance`, around the shards, until stopped. A latency counts from the
/// moment at which the batch was due, so that a stall is seen by all that wait behind it.
pub(crate) async fn open_loop(
    client: &Client,
    work: &Work,
    distance: Duration,
    stop: &watch::Receiver<bool>,
) -> Outcome {
    let lanes: Vec<_> = (0..LANES).map(|_| Arc::new(producer(client, &work.stream))).collect();
    let mut tasks = JoinSet::new();
    let mut due = Instant::now();
    for turn in 0_u32.. {
        due += distance;
        sleep_until(due).await;
        if *stop.borrow() {
            break;
        }
        // All shards with one lane, then all with the next.
        let shard = turn % work.shards;
        let lane = lanes[(turn / work.shards) as usize % LANES].clone();
        let batch = work.batch();
        tasks.spawn(async move {
            match lane.publish(shard, batch).await {
                Ok(_) => Outcome { latencies: vec![due.elapsed()], failures: vec![] },
                Err(error) => Outcome { latencies: vec![], failures: vec![error.to_string()] },
            }
        });
    }
    gather(tasks).await
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
