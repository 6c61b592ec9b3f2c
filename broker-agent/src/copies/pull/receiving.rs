//! The flow of a copy: credit out, chunks in, onto the disk, and back from it to be checked.
//!
//! Chunks are stored some at a time, because each storing waits for the disk and makes others wait
//! for it; what is stored is read back while nothing comes.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_proto::copy::pull_request::Request as Ask;
use evenkeel_proto::copy::{Ack, Chunk, Credit, PullRequest};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tonic::Streaming;

use super::unproven::Span;
use super::{Pull, ask};
use crate::copies::chunk::is_intact;
use crate::copies::failure::Failed;
use crate::copies::orders::{Order, Told};
use crate::copies::pieces::{chunk_bytes, window};
use crate::host::{CopyPosition, RangeDigest, ShardError};
use crate::metrics;

/// What is stored is acknowledged in steps of so many bytes.
const ACK_BYTES: u64 = 256 << 10;

/// Chunks are stored together until they have so many bytes, or for so long.
const GROUP_BYTES: u64 = 256 << 10;
const GROUP_TIME: Duration = Duration::from_millis(100);

/// With so many bytes in memory no more is asked for.
const UNSTORED_MAX_BYTES: u64 = 2 << 20;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What one call to the source is doing.
#[derive(Default)]
struct Flow {
    charging: Option<Work<u64>>,
    waiting: Option<Group>,
    storing: Option<(u64, Work<Result<CopyPosition, ShardError>>)>,
    reading: Option<(Span, Work<Result<RangeDigest, ShardError>>)>,
    /// Bytes that arrived and are not stored yet.
    unstored: u64,
    /// The source's committed end when it last spoke.
    committed: Option<u64>,
    /// The source has sent everything.
    level: bool,
}

/// Chunks that arrived one after the other and are not being stored yet.
struct Group {
    first_offset: u64,
    frames: Vec<Bytes>,
    bytes: u64,
    /// They are stored then at the latest.
    due: Instant,
}

impl Flow {
    /// Everything that came is stored, and nothing more is to come.
    fn is_over(&self, end: u64) -> bool {
        let idle = self.waiting.is_none() && self.storing.is_none();
        // The leader may have shipped the rest meanwhile.
        idle && (self.level || self.committed.is_some_and(|committed| end >= committed))
    }

    fn wait(&mut self, chunk: Chunk) {
        let group = self.waiting.get_or_insert_with(|| Group {
            first_offset: chunk.first_offset,
            frames: Vec::new(),
            bytes: 0,
            due: Instant::now() + GROUP_TIME,
        });
        group.bytes += chunk.frames.len() as u64;
        group.frames.push(chunk.frames);
    }

    /// What is to be stored now, if nothing else is being stored.
    fn next_group(&mut self) -> Option<Group> {
        let ends = self.level || self.unstored >= UNSTORED_MAX_BYTES;
        let is_due =
            |group: &mut Group| ends || group.bytes >= GROUP_BYTES || group.due <= Instant::now();
        if self.storing.is_some() { None } else { self.waiting.take_if(is_due) }
    }

    /// When that has to be looked at again.
    fn group_due(&self) -> Option<Instant> {
        self.waiting.as_ref().filter(|_| self.storing.is_none()).map(|group| group.due)
    }
}

/// Waits for work that is under way, and for ever without any.
async fn done<T>(work: Option<&mut Work<T>>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

impl Pull {
    /// Receives until the source says that the copy is level.
    pub(super) async fn receive(
        &mut self,
        asks: &mpsc::Sender<PullRequest>,
        chunks: &mut Streaming<Chunk>,
    ) -> Result<(), Failed> {
        let mut flow = Flow::default();
        while !flow.is_over(self.position.end_offset) {
            let expired = self.ledger.expire(Instant::now());
            metrics::grant_expired(expired);
            self.to.desk.expired(expired);
            self.begin(&mut flow);
            let next = self.ledger.next_expiry().into_iter().chain(flow.group_due()).min();
            tokio::select! {
                biased;
                position = done(flow.storing.as_mut().map(|(_, storing)| storing)) => {
                    let bytes = flow.storing.take().map_or(0, |(bytes, _)| bytes);
                    flow.unstored -= bytes;
                    let is_last = flow.level && flow.waiting.is_none();
                    self.stored(position?, bytes, is_last, asks).await?;
                }
                chunk = chunks.message(), if !flow.level => {
                    let chunk = chunk?.ok_or_else(|| Failed::Source("it ended the copy".into()))?;
                    self.take_in(chunk, &mut flow)?;
                }
                word = self.words.recv() => self.hear(word, asks).await?,
                bytes = done(flow.charging.as_mut()) => {
                    flow.charging = None;
                    let cumulative_bytes = self.ledger.extend(bytes);
                    ask(asks, Ask::Credit(Credit { cumulative_bytes })).await?;
                }
                found = done(flow.reading.as_mut().map(|(_, reading)| reading)) => {
                    if let Some((span, _)) = flow.reading.take() {
                        self.read_back(span, found?)?;
                    }
                }
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = self.presence.stands_still() => {}
            }
        }
        Ok(())
    }

    /// Begins whatever can go on.
    fn begin(&self, flow: &mut Flow) {
        let to = &self.to;
        let rate = to.ingress.rate();
        let bytes = self.ledger.extendable(window(rate)).min(chunk_bytes(rate) as u64);
        if flow.charging.is_none() && bytes > 0 && flow.unstored < UNSTORED_MAX_BYTES {
            let ingress = to.ingress.clone();
            flow.charging = Some(Box::pin(async move {
                ingress.take(bytes).await;
                bytes
            }));
        }
        if let Some(Group { first_offset, frames, bytes, .. }) = flow.next_group() {
            let (host, Order { shard, generation, .. }) = (to.host.clone(), self.order.clone());
            let storing = Box::pin(async move {
                host.copy_append(&shard, generation, first_offset, frames).await
            });
            flow.storing = Some((bytes, storing));
        }
        if flow.reading.is_none() {
            flow.reading = self.unproven.next(false).map(|span| {
                let (host, shard) = (to.host.clone(), self.order.shard.clone());
                let Span { from, to } = span;
                let reading: Work<_> =
                    Box::pin(async move { host.digest(&shard, from, to, u64::MAX).await });
                (span, reading)
            });
        }
    }

    async fn hear(
        &mut self,
        word: Option<Told>,
        asks: &mpsc::Sender<PullRequest>,
    ) -> Result<(), Failed> {
        match word {
            Some(Told::Allowance(bytes, expires)) => {
                let now = Instant::now();
                self.ledger.grant(now, bytes, expires.saturating_duration_since(now));
                Ok(())
            }
            Some(Told::Class(class)) => {
                self.order.class = class;
                self.presence.set_class(class);
                ask(asks, Ask::Class(class.as_str().to_owned())).await
            }
            None => Err(Failed::Source("the copy was cancelled".into())),
        }
    }

    fn take_in(&mut self, chunk: Chunk, flow: &mut Flow) -> Result<(), Failed> {
        if !is_intact(&chunk) {
            metrics::checksum_failure();
            // Nothing of it was stored: what is here stays good.
            return Err(Failed::Damaged(chunk.first_offset));
        }
        self.bytes_remaining = Some(chunk.bytes_remaining);
        flow.committed = Some(chunk.committed);
        flow.level = chunk.level;
        let bytes = chunk.frames.len() as u64;
        metrics::copied_in(bytes);
        self.ledger.received(bytes);
        flow.unstored += bytes;
        if !chunk.frames.is_empty() {
            // Whatever becomes of the storing, from here on it may be on the disk.
            self.unproven.arrive(chunk.first_offset, chunk.end_offset, &chunk.frames);
            flow.wait(chunk);
        }
        Ok(())
    }

    async fn stored(
        &mut self,
        position: CopyPosition,
        bytes: u64,
        is_last: bool,
        asks: &mpsc::Sender<PullRequest>,
    ) -> Result<(), Failed> {
        self.position = position;
        self.unproven.stored(position.end_offset);
        self.presence.moves();
        self.bytes += bytes;
        self.unacknowledged += bytes;
        if self.unacknowledged >= ACK_BYTES || is_last {
            self.unacknowledged = 0;
            let durable_offset = position.end_offset;
            ask(asks, Ask::Ack(Ack { durable_offset })).await?;
        }
        let flows = self.ledger.is_flowing() || self.ledger.unused() > 0;
        let state = if flows { "running" } else { "waiting_credit" };
        self.to.desk.note(&self.order.shard, self.progress(state, String::new()), false);
        Ok(())
    }
}
