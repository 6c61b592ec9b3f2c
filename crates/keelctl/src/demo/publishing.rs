//! The producers: several for the main stream, and a trickle into the small ones.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_client::{Client, Producer};
use evenkeel_model::StreamKey;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::ledger::{Acknowledged, Batch, Ledger, hash};
use super::lines::Lines;
use crate::Failure;

/// Producers of the main stream.
const PRODUCERS: u64 = 3;

/// A batch is sent when it has this many bytes or records, or when a tick ends.
const BATCH_BYTES: usize = 128 << 10;
const BATCH_RECORDS: usize = evenkeel_client::MAX_BATCH_RECORDS;

/// Batches that wait for each lane.
const QUEUE: usize = 2;

/// Every so many lines one goes into a small stream as well.
const TRICKLE: usize = 40;

/// This much is published at once, so that copies have something to copy; the rest is spread over
/// the story.
const AT_ONCE: f64 = 0.5;
const SPREAD: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(100);

/// A stream that is published to.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) stream: StreamKey,
    pub(crate) shards: u32,
}

/// Publishing in the background.
pub(crate) struct Publishing {
    task: JoinHandle<Result<(), Failure>>,
    hurry: watch::Sender<bool>,
}

impl Publishing {
    /// Begins: `main` takes every line, the others a trickle.
    pub(crate) fn start(
        client: &Client,
        lines: Lines,
        main: Target,
        small: Vec<Target>,
        producer_ids: u64,
        ledger: &Arc<Ledger>,
    ) -> Self {
        let (hurry, hurried) = watch::channel(false);
        let mut lanes = Lanes { lanes: Vec::new(), main: 0, tasks: JoinSet::new(), turn: 0 };
        for n in 0..PRODUCERS {
            lanes.open(client, &main, producer_ids.wrapping_add(n + 1), ledger);
        }
        lanes.main = lanes.lanes.len();
        for (n, target) in (PRODUCERS + 1..).zip(&small) {
            lanes.open(client, target, producer_ids.wrapping_add(n), ledger);
        }
        Self { task: tokio::spawn(feed(lines, lanes, hurried)), hurry }
    }

    /// Publishes the rest as fast as it goes, and waits for the last acknowledgement.
    pub(crate) async fn finish(self) -> Result<(), Failure> {
        self.hurry.send_replace(true);
        match self.task.await {
            Ok(result) => result,
            Err(error) => Err(Failure::No(format!("publishing ended early: {error}"))),
        }
    }

    /// Whether it ended, by being done or by failing.
    pub(crate) fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

/// One lane for each producer and shard: a queue, and a task that publishes what is in it.
struct Lanes {
    lanes: Vec<Lane>,
    /// The first so many are of the main stream.
    main: usize,
    tasks: JoinSet<Result<(), Failure>>,
    turn: usize,
}

struct Lane {
    queue: mpsc::Sender<Vec<Bytes>>,
    pending: Vec<Bytes>,
    bytes: usize,
}

impl Lanes {
    fn open(&mut self, client: &Client, target: &Target, id: u64, ledger: &Arc<Ledger>) {
        let producer = Arc::new(client.producer(target.stream.clone(), id.max(1)));
        for shard in 0..target.shards {
            let (queue, batches) = mpsc::channel(QUEUE);
            self.tasks.spawn(publish(Arc::clone(&producer), shard, batches, Arc::clone(ledger)));
            self.lanes.push(Lane { queue, pending: Vec::new(), bytes: 0 });
        }
    }

    async fn push(&mut self, lane: usize, line: Bytes) -> Result<(), Failure> {
        let it = &mut self.lanes[lane];
        it.bytes += line.len();
        it.pending.push(line);
        if it.bytes >= BATCH_BYTES || it.pending.len() >= BATCH_RECORDS {
            self.flush(lane).await?;
        }
        Ok(())
    }

    async fn flush(&mut self, lane: usize) -> Result<(), Failure> {
        let it = &mut self.lanes[lane];
        it.bytes = 0;
        let batch = std::mem::take(&mut it.pending);
        if batch.is_empty() || it.queue.send(batch).await.is_ok() {
            return Ok(());
        }
        // The lane's own failure says more than this one.
        Err(self.failure().await)
    }

    async fn flush_all(&mut self) -> Result<(), Failure> {
        for lane in 0..self.lanes.len() {
            self.flush(lane).await?;
        }
        Ok(())
    }

    async fn block(&mut self, block: Vec<Bytes>) -> Result<(), Failure> {
        for line in block {
            self.turn = self.turn.wrapping_add(1);
            let small = self.lanes.len() - self.main;
            if self.turn.is_multiple_of(TRICKLE) && small > 0 {
                self.push(self.main + self.turn / TRICKLE % small, line.clone()).await?;
            }
            self.push(self.turn % self.main, line).await?;
        }
        Ok(())
    }

    async fn failure(&mut self) -> Failure {
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => return failure,
                Err(error) => return Failure::No(format!("a producer ended early: {error}")),
            }
        }
        Failure::No("the producers ended early".to_owned())
    }

    async fn finish(mut self) -> Result<(), Failure> {
        self.flush_all().await?;
        self.lanes.clear();
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(|e| Failure::No(format!("a producer ended early: {e}")))??;
        }
        Ok(())
    }
}

async fn feed(
    mut lines: Lines,
    mut lanes: Lanes,
    mut hurry: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let at_once = (lines.total as f64 * AT_ONCE) as u64;
    let rate = (lines.total - at_once) as f64 / SPREAD.as_secs_f64();
    let mut fed = 0_u64;
    let mut slow_since = None;
    while let Some(block) = lines.next().await? {
        fed += block.iter().map(|line| line.len() as u64 + 1).sum::<u64>();
        lanes.block(block).await?;
        if fed < at_once {
            continue;
        }
        let since = *slow_since.get_or_insert_with(Instant::now);
        let due = since + Duration::from_secs_f64((fed - at_once) as f64 / rate.max(1.0));
        while Instant::now() < due && !*hurry.borrow() {
            lanes.flush_all().await?;
            let tick = Instant::now() + TICK;
            tokio::select! {
                biased;
                _ = hurry.changed() => {}
                () = tokio::time::sleep_until(tick.min(due)) => {}
            }
        }
    }
    lanes.finish().await
}

async fn publish(
    producer: Arc<Producer>,
    shard: u32,
    mut batches: mpsc::Receiver<Vec<Bytes>>,
    ledger: Arc<Ledger>,
) -> Result<(), Failure> {
    let key = producer.stream().shard(shard);
    while let Some(lines) = batches.recv().await {
        let hashes: Vec<u64> = lines.iter().map(|line| hash(line)).collect();
        let bytes = lines.iter().map(|line| line.len() as u64 + 1).sum();
        let began = Instant::now();
        let published = producer.publish(shard, lines).await.map_err(|e| Failure::of_client(&e))?;
        let records = published.offsets.iter().zip(hashes);
        let records = records.map(|(&offset, hash)| Acknowledged { offset, hash }).collect();
        ledger.acknowledge(&key, &Batch { records, bytes }, began.elapsed(), published.attempts);
    }
    Ok(())
}
