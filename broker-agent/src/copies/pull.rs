//! A copy's destination: pulls within grants, checks every chunk, appends, verifies the whole.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::{BrokerId, Role};
use evenkeel_proto::copy::pull_request::Request as Ask;
use evenkeel_proto::copy::shard_copy_client::ShardCopyClient;
use evenkeel_proto::copy::{Ack, Chunk, Credit, DigestRequest, Open, PullRequest};
use evenkeel_proto::migrations::CopyProgress;
use evenkeel_runtime::Network;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::bucket::Bucket;
use super::chunk::is_intact;
use super::credit::CreditLedger;
use super::failure::Failed;
use super::orders::{Desk, Order, Told};
use super::source::CHUNK_BYTES;
use crate::host::{CopyPosition, ShardError, ShardHost};
use crate::maintenance::admission::{Admission, Presence};
use crate::metrics;

/// Credit with the source at once: enough for a link of 1 Gbit/s over 8 ms.
const WINDOW_BYTES: u64 = 1 << 20;

/// Ingress is charged, and credit extended, in steps of at most so much, and of what the ingress
/// carries in so many parts of a second, a chunk at least: a larger step would be a burst. What is
/// stored is acknowledged in steps of so much.
const STEP_BYTES: u64 = 4 * CHUNK_BYTES as u64;
const STEPS_A_SECOND: u64 = 128;

/// Chunks are at most 64 KiB, or one record.
const MESSAGE_MAX_BYTES: usize = 8 << 20;

/// For the assignment to reach this broker, when the migrator was faster.
const ASSIGNMENT_LIMIT: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Before another attempt, and how many in a row without a record in between.
const RETRY: Duration = Duration::from_millis(500);
const ATTEMPTS: u32 = 3;

/// Records are compared in steps of so many bytes; a source that takes longer for one is given up.
const COMPARE_BYTES: u64 = 1 << 20;
const COMPARE_LIMIT: Duration = Duration::from_secs(30);

/// Before the records are fetched that came while the ones before them were verified.
const TAIL: Duration = Duration::from_millis(50);

/// What a copy needs around it. Cheap to clone.
#[derive(Clone)]
pub struct Destination {
    /// This broker.
    pub me: BrokerId,
    /// Where the records go.
    pub host: Arc<dyn ShardHost>,
    /// To the source.
    pub network: Network,
    /// Charged before credit is extended.
    pub ingress: Bucket,
    /// Holds maintenance back while a copy runs.
    pub admission: Admission,
    /// Where progress is noted.
    pub desk: Desk,
}

/// How an attempt came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Everything that the source had is here.
    Level,
    /// This replica is near enough to its leader for that to ship the rest itself.
    Fed,
}

struct Pull {
    to: Destination,
    order: Order,
    words: mpsc::UnboundedReceiver<Told>,
    presence: Presence,
    ledger: CreditLedger,
    position: CopyPosition,
    /// Everything from here on came in this copy and is verified as a whole at the end.
    verify_from: u64,
    bytes: u64,
    /// Stored since the source was last told.
    unacknowledged: u64,
    /// As the source said last; none before its first word.
    bytes_remaining: Option<u64>,
    /// The source's committed end when it last spoke.
    committed: u64,
    /// Up to here copies brought something, as far as is known.
    copied_to: u64,
}

/// Makes one copy; ends when it is level, or has failed for good.
pub async fn pull(to: Destination, order: Order, words: mpsc::UnboundedReceiver<Told>) {
    let position = CopyPosition::default();
    let presence = Presence::new(&to.admission, order.class);
    let mut pull = Pull {
        to,
        order,
        words,
        presence,
        ledger: CreditLedger::new(WINDOW_BYTES),
        position,
        verify_from: 0,
        bytes: 0,
        unacknowledged: 0,
        bytes_remaining: None,
        committed: 0,
        copied_to: 0,
    };
    pull.run().await;
}

type Charging = Pin<Box<dyn Future<Output = u64> + Send>>;

impl Pull {
    async fn run(&mut self) {
        let mut failures = 0;
        let mut started = false;
        loop {
            let before = self.bytes;
            let failed = match self.attempt(&mut started).await {
                Ok(Ended::Fed) => return self.level(),
                Ok(Ended::Level) if self.bytes == before => return self.level(),
                // What came while this was verified may again be more than the leader ships by
                // itself: go on until it does, or until nothing comes.
                Ok(Ended::Level) => {
                    failures = 0;
                    self.verify_from = self.position.end_offset;
                    sleep(TAIL).await;
                    continue;
                }
                Err(failed) => failed,
            };
            failures = if self.bytes > before { 1 } else { failures + 1 };
            let (shard, source) = (&self.order.shard, &self.order.source);
            tracing::warn!(%shard, source, attempt = failures, %failed, "copy interrupted");
            if failed.is_final() {
                return self.note("failed", failed.to_string());
            }
            match self.mend(&failed, failures).await {
                // Its leader feeds it: what differs stays, and does not count until it is found the
                // same as another source's.
                Err(ShardError::TakesNoCopy) => return self.note("failed", failed.to_string()),
                Err(error) => return self.note("failed", error.to_string()),
                Ok(()) => {}
            }
            // Another source may be better.
            if failures >= ATTEMPTS || matches!(failed, Failed::Corrupt(_)) {
                return self.note("failed", failed.to_string());
            }
            self.note("running", failed.to_string());
            sleep(RETRY).await;
        }
    }

    fn level(&self) {
        tracing::info!(shard = %self.order.shard, bytes = self.bytes, "copy level");
        self.note("level", String::new());
    }

    /// Whether this broker is to be copied to, once it knows the order's generation.
    fn learns(&self) -> Option<bool> {
        let watch = self.to.host.watch(&self.order.shard)?;
        let status = watch.borrow();
        let learns = matches!(status.role, Role::Successor | Role::Joining);
        let known = status.assignment.generation;
        (known >= self.order.generation).then_some(learns && known == self.order.generation)
    }

    /// Throws away what cannot be built upon.
    async fn mend(&mut self, failed: &Failed, failures: u32) -> Result<(), ShardError> {
        if let Failed::BeforeStart(first) = failed {
            self.verify_from = self.verify_from.max(*first);
            return self.begins_at(*first).await;
        }
        let to_offset = match failed {
            Failed::Corrupt(_) => self.verify_from,
            Failed::Diverged(_) => {
                // What is known to be committed is the same everywhere; if even that is refused,
                // the copy starts over.
                let replica = self.to.host.watch(&self.order.shard);
                let committed = replica.map_or(0, |watch| watch.borrow().committed);
                if failures > 1 { 0 } else { committed.min(self.position.end_offset) }
            }
            _ => return Ok(()),
        };
        let Order { shard, generation, .. } = &self.order;
        self.position = self.to.host.copy_truncate(shard, *generation, to_offset).await?;
        self.verify_from = self.verify_from.min(self.position.end_offset);
        Ok(())
    }

    /// Waits until this log reaches an offset: the leader lets it begin where its own does.
    async fn begins_at(&self, first: u64) -> Result<(), ShardError> {
        let reached = timeout(ASSIGNMENT_LIMIT, async {
            while self.to.host.copy_position(&self.order.shard).await?.end_offset < first {
                sleep(LOOK_AGAIN).await;
            }
            Ok(())
        });
        reached.await.unwrap_or(Ok(()))
    }

    async fn attempt(&mut self, started: &mut bool) -> Result<Ended, Failed> {
        self.learner().await?;
        self.position = self.to.host.copy_position(&self.order.shard).await?;
        if !std::mem::replace(started, true) {
            // What an earlier try brought is compared as well.
            let CopyPosition { end_offset, copied_from, .. } = self.position;
            self.verify_from = copied_from.unwrap_or(end_offset);
            self.copied_to = copied_from.map_or(0, |_| end_offset);
        }
        // What was given up meanwhile need not be compared.
        self.verify_from = self.verify_from.max(self.position.start_offset);
        let channel = self.to.network.bulk_channel(&self.order.source_address);
        let mut client = ShardCopyClient::new(channel).max_decoding_message_size(MESSAGE_MAX_BYTES);
        let (asks, requests) = mpsc::channel(16);
        ask(&asks, Ask::Open(self.open())).await?;
        let mut chunks = client.pull(ReceiverStream::new(requests)).await?.into_inner();
        self.ledger.restart();
        self.note("running", String::new());
        let ended = match self.receive(&asks, &mut chunks).await {
            Ok(()) => Ended::Level,
            Err(Failed::Here(ShardError::TakesNoCopy)) if self.learns() == Some(true) => Ended::Fed,
            Err(failed) => return Err(failed),
        };
        // What is left is to compare it, and the migrator does not take that for a stall.
        self.bytes_remaining = Some(0);
        self.note("running", String::new());
        self.verify(client).await?;
        Ok(ended)
    }

    /// Waits until this broker knows that it is to be copied to.
    async fn learner(&self) -> Result<(), Failed> {
        let generation = self.order.generation;
        let found = timeout(ASSIGNMENT_LIMIT, async {
            loop {
                match self.learns() {
                    Some(learns) => return learns,
                    None => sleep(LOOK_AGAIN).await,
                }
            }
        });
        match found.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Failed::NotLearner(generation)),
        }
    }

    fn open(&self) -> Open {
        Open {
            shard: self.order.shard.to_string(),
            generation: self.order.generation,
            token: self.order.token,
            destination: self.to.me.to_string(),
            start_offset: self.position.end_offset,
            start_generation: self.position.last_generation,
            max_chunk_bytes: CHUNK_BYTES as u32,
            class: self.order.class.as_str().to_owned(),
        }
    }

    /// Receives until the source says that the copy is level.
    async fn receive(
        &mut self,
        asks: &mpsc::Sender<PullRequest>,
        chunks: &mut Streaming<Chunk>,
    ) -> Result<(), Failed> {
        let mut charging: Option<Charging> = None;
        loop {
            let expired = self.ledger.expire(Instant::now());
            metrics::grant_expired(expired);
            self.to.desk.expired(expired);
            if charging.is_none() && self.ledger.extendable() > 0 {
                let ingress = self.to.ingress.clone();
                let step = (ingress.rate() / STEPS_A_SECOND).clamp(CHUNK_BYTES as u64, STEP_BYTES);
                let bytes = self.ledger.extendable().min(step);
                charging = Some(Box::pin(async move {
                    ingress.take(bytes).await;
                    bytes
                }));
            }
            let expiry = self.ledger.next_expiry();
            tokio::select! {
                biased;
                chunk = chunks.message() => {
                    let chunk = chunk?.ok_or_else(|| Failed::Source("it ended the copy".into()))?;
                    let level = chunk.level;
                    self.take_in(chunk, asks).await?;
                    // The leader may have shipped the rest meanwhile.
                    if level || self.position.end_offset >= self.committed {
                        return Ok(());
                    }
                }
                word = self.words.recv() => match word {
                    Some(Told::Allowance(bytes, expires)) => {
                        let now = Instant::now();
                        self.ledger.grant(now, bytes, expires.saturating_duration_since(now));
                    }
                    Some(Told::Class(class)) => {
                        self.order.class = class;
                        self.presence.set_class(class);
                        ask(asks, Ask::Class(class.as_str().to_owned())).await?;
                    }
                    None => return Err(Failed::Source("the copy was cancelled".into())),
                },
                bytes = charged(&mut charging) => {
                    charging = None;
                    let cumulative_bytes = self.ledger.extend(bytes);
                    ask(asks, Ask::Credit(Credit { cumulative_bytes })).await?;
                }
                () = sleep_until(expiry.unwrap_or_else(Instant::now)), if expiry.is_some() => {}
                () = self.presence.stands_still() => {}
            }
        }
    }

    async fn take_in(
        &mut self,
        chunk: Chunk,
        asks: &mpsc::Sender<PullRequest>,
    ) -> Result<(), Failed> {
        if !is_intact(&chunk) {
            metrics::checksum_failure();
            // Nothing of it was stored: what is here stays good.
            return Err(Failed::Damaged(chunk.first_offset));
        }
        let bytes = chunk.frames.len() as u64;
        self.bytes_remaining = Some(chunk.bytes_remaining);
        self.committed = chunk.committed;
        if bytes > 0 {
            let Order { shard, generation, .. } = &self.order;
            let append =
                self.to.host.copy_append(shard, *generation, chunk.first_offset, chunk.frames);
            self.position = append.await?;
            self.copied_to = self.copied_to.max(chunk.end_offset);
            self.ledger.received(bytes);
            self.presence.moves();
            self.bytes += bytes;
            metrics::copied_in(bytes);
            self.unacknowledged += bytes;
            if self.unacknowledged >= STEP_BYTES || chunk.level {
                self.unacknowledged = 0;
                let durable_offset = self.position.end_offset;
                ask(asks, Ask::Ack(Ack { durable_offset })).await?;
            }
        }
        let state = if self.ledger.is_flowing() || self.ledger.unused() > 0 {
            "running"
        } else {
            "waiting_credit"
        };
        self.to.desk.note(&self.order.shard, self.progress(state, String::new()), false);
        Ok(())
    }

    /// Compares what arrived, as it is stored, with the source. Only then does the copy count.
    async fn verify(&mut self, client: ShardCopyClient<Channel>) -> Result<(), Failed> {
        // What came from the leader beyond that was checked record by record.
        let (from, to) = (self.verify_from, self.position.end_offset.min(self.committed));
        if to < self.copied_to.min(self.position.end_offset) {
            return Err(Failed::Source(format!("it knows {to} records, fewer than it sent")));
        }
        if from < to {
            self.compare(client, from, to).await?;
        }
        let Order { shard, generation, .. } = &self.order;
        self.to.host.copy_verified(shard, *generation).await?;
        Ok(())
    }

    async fn compare(
        &mut self,
        mut client: ShardCopyClient<Channel>,
        from: u64,
        to: u64,
    ) -> Result<(), Failed> {
        let mut at = from;
        while at < to {
            self.presence.moves();
            at = self.compare_step(&mut client, at, to).await?;
            let detail = format!("compared with its source up to record {at} of {to}");
            self.to.desk.note(&self.order.shard, self.progress("running", detail), false);
        }
        Ok(())
    }

    /// Compares some of the records; answers where to go on.
    async fn compare_step(
        &self,
        client: &mut ShardCopyClient<Channel>,
        from: u64,
        to: u64,
    ) -> Result<u64, Failed> {
        let Order { shard, generation, .. } = &self.order;
        let began = Instant::now();
        let here = self.to.host.digest(shard, from, to, COMPARE_BYTES).await?;
        self.to.admission.rest_after(began.elapsed()).await;
        let asked = DigestRequest {
            shard: shard.to_string(),
            generation: *generation,
            from_offset: from,
            to_offset: here.to_offset,
        };
        let there = timeout(COMPARE_LIMIT, client.digest(asked)).await;
        let there = there
            .map_err(|_| Failed::Source("it does not say what its records are".to_owned()))??
            .into_inner();
        if there.to_offset != here.to_offset {
            return Err(Failed::Source(format!(
                "it has records up to {}, not {}",
                there.to_offset, here.to_offset
            )));
        }
        if (there.crc32c, there.bytes) != (here.crc32c, here.bytes) {
            metrics::checksum_failure();
            let to = here.to_offset;
            return Err(Failed::Corrupt(format!("records {from} to {to} differ from the source")));
        }
        if here.to_offset == from {
            return Err(Failed::Source(format!("no record at {from} to compare")));
        }
        Ok(here.to_offset)
    }

    fn progress(&self, state: &str, detail: String) -> CopyProgress {
        CopyProgress {
            shard: self.order.shard.to_string(),
            generation: self.order.generation,
            state: state.to_owned(),
            durable_offset: self.position.end_offset,
            bytes_verified: self.bytes,
            bytes_remaining: self.bytes_remaining.unwrap_or(0),
            size_unknown: self.bytes_remaining.is_none(),
            credit_left: self.ledger.unused(),
            detail,
        }
    }

    fn note(&self, state: &str, detail: String) {
        self.to.desk.note(&self.order.shard, self.progress(state, detail), true);
    }
}

async fn charged(charging: &mut Option<Charging>) -> u64 {
    match charging {
        Some(charging) => charging.await,
        None => std::future::pending().await,
    }
}

async fn ask(asks: &mpsc::Sender<PullRequest>, request: Ask) -> Result<(), Failed> {
    let sent = asks.send(PullRequest { request: Some(request) }).await;
    sent.map_err(|_| Failed::Source("it ended the call".to_owned()))
}
