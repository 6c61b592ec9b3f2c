//! The client: brokers, routes, and the retry loop that calls share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_model::{ShardKey, StreamKey};
use evenkeel_proto::data::DescribeRequest;
use evenkeel_proto::data::shards_client::ShardsClient;
use evenkeel_proto::refusal::Reason;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::connect::{Brokers, Connect, tcp};
use crate::retry::{Backoff, Budget, judge};
use crate::routes::{Routes, read};
use crate::{ClientConfig, ClientError, Delivery, Fate, Producer, Route, Subscription};

/// Answers are read up to this size; a broker's batches are far smaller.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A stream that a broker does not know may have been created a moment ago: that answer is asked
/// for again this long, at most.
const UNKNOWN_STREAM_PATIENCE: Duration = Duration::from_secs(3);

/// Reads and writes shards. Cheap to clone; clones share brokers, routes and limits.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    config: ClientConfig,
    brokers: Brokers,
    routes: Routes,
    /// One reading of routes at a time: those who wait for it use its answer.
    reading: tokio::sync::Mutex<()>,
    budget: Budget,
    in_flight: Semaphore,
    calls: AtomicU64,
}

impl Client {
    /// A client over TCP. It connects on first use.
    pub fn new(config: ClientConfig) -> Result<Self, ClientError> {
        Self::with_connect(config, tcp())
    }

    /// A client over channels that the caller makes.
    pub fn with_connect(config: ClientConfig, connect: Connect) -> Result<Self, ClientError> {
        let brokers = Brokers::new(&config.bootstrap, connect)?;
        let in_flight = Semaphore::new(config.max_in_flight.clamp(1, Semaphore::MAX_PERMITS));
        let inner = Inner {
            config,
            brokers,
            routes: Routes::new(),
            reading: tokio::sync::Mutex::new(()),
            budget: Budget::new(),
            in_flight,
            calls: AtomicU64::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Publishes to `stream` under `producer_id`, which no other running producer may use: it
    /// makes repetitions recognisable. 0 gives that up, and then a lost answer fails the call.
    pub fn producer(&self, stream: StreamKey, producer_id: u64) -> Producer {
        Producer::new(self.clone(), stream, producer_id)
    }

    /// Reads `shard` from `from_offset` on, waiting for more at the end.
    pub fn subscribe(&self, shard: ShardKey, from_offset: u64) -> Subscription {
        Subscription::new(self.clone(), shard, from_offset, false)
    }

    /// Reads `shard` from `from_offset` up to what is committed now, then says
    /// [`Delivery::End`].
    pub fn read(&self, shard: ShardKey, from_offset: u64) -> Subscription {
        Subscription::new(self.clone(), shard, from_offset, true)
    }

    /// Who leads each shard of a stream, asked now.
    pub async fn describe(&self, stream: &StreamKey) -> Result<Vec<Route>, ClientError> {
        let asked = Instant::now();
        let mut backoff = self.backoff();
        loop {
            let Err(status) = self.refresh(stream, asked).await else {
                return Ok(self.inner.routes.all(stream));
            };
            let action = format!("describe {stream}");
            let wait = self.next_wait(&action, &mut backoff, &status, None)?;
            tokio::time::sleep(wait).await;
        }
    }

    pub(crate) fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    pub(crate) fn in_flight(&self) -> &Semaphore {
        &self.inner.in_flight
    }

    pub(crate) fn succeeded(&self) {
        self.inner.budget.succeeded();
    }

    pub(crate) fn routes(&self) -> &Routes {
        &self.inner.routes
    }

    pub(crate) fn backoff(&self) -> Backoff {
        let config = self.config();
        let call = self.inner.calls.fetch_add(1, Ordering::Relaxed);
        Backoff::new(config.backoff_base, config.backoff_max, config.seed ^ call.rotate_left(32))
    }

    pub(crate) fn stub(&self, address: &str) -> Result<ShardsClient<Channel>, ClientError> {
        let channel = self.inner.brokers.channel(address)?;
        Ok(ShardsClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES))
    }

    /// Where to send the next attempt: the leader if it is known; every other retry goes to
    /// another broker, which may know better and sends it on.
    pub(crate) async fn target(&self, shard: &ShardKey, backoff: &Backoff) -> String {
        if self.inner.routes.read_at(&shard.stream).is_none() {
            // A failure here shows again, with its detail, at the attempt itself.
            let _ = self.refresh(&shard.stream, Instant::now()).await;
        }
        let leader = self.inner.routes.get(shard).and_then(|r| r.address);
        match leader {
            Some(address) if backoff.attempts().is_multiple_of(2) => address,
            other => self.inner.brokers.any(other.as_deref()),
        }
    }

    /// Reads the stream's routes from a broker, unless somebody did since `wanted`. Brokers are
    /// asked in turn until one answers.
    pub(crate) async fn refresh(&self, stream: &StreamKey, wanted: Instant) -> Result<(), Status> {
        let _one = self.inner.reading.lock().await;
        if self.inner.routes.read_at(stream).is_some_and(|read| read >= wanted) {
            return Ok(());
        }
        let mut last = Status::unavailable("no broker is known");
        for _ in 0..self.inner.brokers.len() {
            let address = self.inner.brokers.any(None);
            match self.ask_routes(stream, &address).await {
                Ok(routes) => {
                    self.inner.routes.merge(stream, routes);
                    return Ok(());
                }
                Err(status) => {
                    tracing::debug!(%stream, address, %status, "routes not read");
                    last = status;
                }
            }
        }
        Err(last)
    }

    async fn ask_routes(&self, stream: &StreamKey, address: &str) -> Result<Vec<Route>, Status> {
        let mut stub = self.stub(address).map_err(|e| Status::internal(e.to_string()))?;
        let request = DescribeRequest { stream: stream.to_string() };
        let limit = self.config().attempt_timeout.min(Duration::from_secs(2));
        let answer = tokio::time::timeout(limit, stub.describe(request))
            .await
            .map_err(|_| timed_out(address, limit))??;
        Ok(answer.into_inner().shards.into_iter().filter_map(|r| read(stream, r)).collect())
    }

    /// The wait before the next attempt, or the error that ends the call. `fate` is what a publish's
    /// attempts amount to so far.
    pub(crate) fn next_wait(
        &self,
        action: &str,
        backoff: &mut Backoff,
        status: &Status,
        fate: Option<Fate>,
    ) -> Result<Duration, ClientError> {
        let verdict = judge(status);
        let waited = backoff.waited();
        let young = verdict.reason == Some(Reason::NotFound) && waited < UNKNOWN_STREAM_PATIENCE;
        let detail = describe(status);
        if !verdict.again && !young {
            let (action, reason) = (action.to_owned(), verdict.reason);
            return Err(ClientError::Refused { action, reason, detail, fate });
        }
        let left = self.config().patience.saturating_sub(waited);
        let action = action.to_owned();
        if left.is_zero() {
            return Err(ClientError::GaveUp { action, waited, detail, fate });
        }
        backoff.next(&verdict, &self.inner.budget, left).ok_or_else(|| {
            let detail =
                format!("{detail}; retries are spent: they may be a tenth of what succeeds");
            ClientError::GaveUp { action, waited, detail, fate }
        })
    }
}

/// An attempt that was not answered in time.
pub(crate) fn timed_out(address: &str, limit: Duration) -> Status {
    Status::deadline_exceeded(format!(
        "{address} did not answer within {:.1} s",
        limit.as_secs_f64()
    ))
}

/// A status for people: its words, and what lies beneath a failed connection.
fn describe(status: &Status) -> String {
    let mut words = status.message().to_owned();
    if words.is_empty() {
        words = status.code().description().to_owned();
    }
    if status.code() == Code::Unavailable {
        let mut source = std::error::Error::source(status);
        while let Some(error) = source {
            let cause = error.to_string();
            if !words.contains(&cause) {
                words = format!("{words}: {cause}");
            }
            source = error.source();
        }
    }
    words
}

// A subscription is moved between tasks by its users.
const _: fn() = || {
    fn sendable<T: Send>() {}
    sendable::<Subscription>();
    sendable::<Delivery>();
};
