//! A copy's destination: pulls within grants, checks every chunk, stores it, and proves the whole.

mod proving;
mod receiving;
mod unproven;

use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::{BrokerId, Role};
use evenkeel_proto::copy::pull_request::Request as Ask;
use evenkeel_proto::copy::shard_copy_client::ShardCopyClient;
use evenkeel_proto::copy::{Open, PullRequest};
use evenkeel_proto::migrations::CopyProgress;
use evenkeel_runtime::Network;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;

use self::unproven::Unproven;
use super::bucket::Bucket;
use super::credit::CreditLedger;
use super::failure::Failed;
use super::orders::{Desk, Order, Told};
use super::pieces::CHUNK_MAX_BYTES;
use crate::host::{CopyPosition, ShardError, ShardHost};
use crate::maintenance::admission::{Admission, Presence};

/// Chunks are at most 256 KiB, or one record.
const MESSAGE_MAX_BYTES: usize = 8 << 20;

/// For the assignment to reach this broker, when the migrator was faster.
const ASSIGNMENT_LIMIT: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Before another attempt, and how many in a row without a record in between.
const RETRY: Duration = Duration::from_millis(500);
const ATTEMPTS: u32 = 3;

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
    unproven: Unproven,
    /// The source has given up everything before; that need not be compared.
    source_start: u64,
    /// Stored by this copy.
    bytes: u64,
    /// Stored since the source was last told.
    unacknowledged: u64,
    /// As the source said last; none before its first word.
    bytes_remaining: Option<u64>,
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
        ledger: CreditLedger::default(),
        position,
        unproven: Unproven::default(),
        source_start: 0,
        bytes: 0,
        unacknowledged: 0,
        bytes_remaining: None,
    };
    pull.run().await;
}

impl Pull {
    async fn run(&mut self) {
        let (mut failures, mut decayed) = (0, 0);
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
                    sleep(TAIL).await;
                    continue;
                }
                Err(failed) => failed,
            };
            failures = if self.bytes > before { 1 } else { failures + 1 };
            decayed += u32::from(matches!(failed, Failed::Decayed(..)));
            let (shard, source) = (&self.order.shard, &self.order.source);
            tracing::warn!(%shard, source, attempt = failures, %failed, "copy interrupted");
            if failed.is_final() {
                return self.note("failed", failed.to_string());
            }
            if let Err(error) = self.mend(&failed, failures).await {
                // One that its leader feeds keeps what differs; it does not count until it is found
                // the same as another source's.
                let is_fed = error == ShardError::TakesNoCopy;
                let detail = if is_fed { failed.to_string() } else { error.to_string() };
                return self.note("failed", detail);
            }
            // Another source may be better.
            let differs = matches!(failed, Failed::Differs(..));
            if failures >= ATTEMPTS || decayed >= ATTEMPTS || differs {
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
            self.source_start = self.source_start.max(*first);
            return self.begins_at(*first).await;
        }
        let to_offset = match failed {
            Failed::Differs(..) | Failed::Decayed(..) => {
                let unproven = self.unproven.first();
                unproven.unwrap_or(self.position.end_offset)
            }
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
        let CopyPosition { start_offset, end_offset, copied_from, .. } = self.position;
        if !std::mem::replace(started, true) {
            self.unproven = Unproven::left_over(copied_from.unwrap_or(end_offset), end_offset);
        }
        self.unproven.keep(start_offset.max(self.source_start), end_offset);
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
        self.prove(client).await?;
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
            max_chunk_bytes: CHUNK_MAX_BYTES as u32,
            class: self.order.class.as_str().to_owned(),
        }
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

async fn ask(asks: &mpsc::Sender<PullRequest>, request: Ask) -> Result<(), Failed> {
    let sent = asks.send(PullRequest { request: Some(request) }).await;
    sent.map_err(|_| Failed::Source("it ended the call".to_owned()))
}
