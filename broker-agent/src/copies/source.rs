//! A copy's source: committed records, against the destination's credit and the egress bucket.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_model::{CopyClass, Generation, ShardKey};
use evenkeel_proto::copy::pull_request::Request as Asked;
use evenkeel_proto::copy::shard_copy_server::{ShardCopy, ShardCopyServer};
use evenkeel_proto::copy::{Chunk, DigestRequest, DigestResponse, Open, PullRequest};
use evenkeel_proto::refusal::{Reason, before_start, refuse, refuse_with};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::bucket::Bucket;
use super::chunk::{Standing, seal};
use super::pieces::{CHUNK_MAX_BYTES, CHUNK_MIN_BYTES, chunk_bytes};
use crate::host::{ShardError, ShardHost, ShardStatus};
use crate::maintenance::admission::{Admission, Presence};
use crate::metrics;

/// For a source to learn that what the destination has is committed.
const LEARN_LIMIT: Duration = Duration::from_secs(1);

/// Chunks on their way to the transport.
const CHUNKS_AHEAD: usize = 2;

/// The gRPC service of copies. Cheap to clone.
#[derive(Clone)]
pub struct CopySource {
    host: Arc<dyn ShardHost>,
    admission: Admission,
    tokens: Arc<Mutex<BTreeMap<ShardKey, i64>>>,
}

impl CopySource {
    /// Copies from `host` through the egress bucket of `admission`.
    pub fn new(host: Arc<dyn ShardHost>, admission: Admission) -> Self {
        Self { host, admission, tokens: Arc::default() }
    }

    /// The gRPC service.
    pub fn server(&self) -> ShardCopyServer<Self> {
        ShardCopyServer::new(self.clone())
    }

    /// A copy for an assignment of a deposed load manager is refused once a later one is known.
    fn check_token(&self, shard: &ShardKey, token: i64) -> Result<(), Status> {
        let mut tokens = self.tokens.lock().unwrap_or_else(|e| e.into_inner());
        let seen = tokens.entry(shard.clone()).or_insert(token);
        if token < *seen {
            metrics::copy_refused("token");
            let detail = format!("leadership token {token} of {shard} is older than {seen}");
            return Err(refuse(Reason::StaleGeneration, detail));
        }
        *seen = token;
        Ok(())
    }
}

/// Between the reader of requests and the sender of chunks.
#[derive(Debug, Clone, Copy, Default)]
struct Asking {
    credit: u64,
    /// What the copy is for now, if that has changed.
    class: Option<CopyClass>,
    ended: bool,
}

struct Sending {
    host: Arc<dyn ShardHost>,
    egress: Bucket,
    shard: ShardKey,
    generation: Generation,
    position: u64,
    /// Compared once, with the first chunk.
    start_generation: Generation,
    /// The destination takes chunks of so many bytes.
    most_bytes: usize,
    asking: watch::Receiver<Asking>,
    /// As the destination said since the copy was opened.
    class: Option<CopyClass>,
    chunks: mpsc::Sender<Result<Chunk, Status>>,
}

impl Sending {
    async fn run(mut self, mut presence: Presence) {
        let mut sent = 0;
        loop {
            let chunk = match self.next(sent, &mut presence).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return,
                Err(error) => {
                    // The destination may have gone meanwhile.
                    let _ = self.chunks.send(Err(status_of(&self.shard, &error))).await;
                    return;
                }
            };
            presence.moves();
            let bytes = chunk.frames.len() as u64;
            self.egress.take(bytes).await;
            metrics::copied_out(bytes);
            sent += bytes;
            let level = chunk.level;
            self.position = chunk.end_offset;
            if self.chunks.send(Ok(chunk)).await.is_err() || level {
                return;
            }
        }
    }

    /// The next chunk, once there is credit for it; a destination that is level needs none.
    async fn next(
        &mut self,
        sent: u64,
        presence: &mut Presence,
    ) -> Result<Option<Chunk>, ShardError> {
        loop {
            let asking = *self.asking.borrow_and_update();
            if asking.ended {
                return Ok(None);
            }
            if let Some(class) = asking.class.filter(|_| self.class != asking.class) {
                self.class = asking.class;
                presence.set_class(class);
            }
            let committed = self.committed().await?;
            if self.position >= committed && self.start_generation == 0 {
                let standing = Standing { committed, bytes_remaining: 0 };
                return Ok(Some(seal(self.position, self.position, Bytes::new(), standing)));
            }
            let room = asking.credit.saturating_sub(sent);
            if room > 0 || self.start_generation != 0 && self.position >= committed {
                return self.read(room).await.map(Some);
            }
            tokio::select! {
                biased;
                changed = self.asking.changed() => if changed.is_err() {
                    return Ok(None);
                },
                () = presence.stands_still() => {}
            }
        }
    }

    /// The committed end. A follower that has just started does not know it yet, and a destination
    /// that its leader feeds may be ahead for a moment: neither is a copy that is level.
    async fn committed(&self) -> Result<u64, ShardError> {
        let mut replica = self.host.watch(&self.shard).ok_or(ShardError::NotHeld)?;
        let knows = |status: &ShardStatus| {
            status.committed >= self.position && (status.committed > 0 || status.log_end == 0)
        };
        if let Ok(known) = timeout(LEARN_LIMIT, replica.wait_for(knows)).await {
            return known.map(|status| status.committed).map_err(|_| ShardError::NotHeld);
        }
        let committed = replica.borrow().committed;
        Err(ShardError::Behind(committed))
    }

    /// A chunk that goes beyond the credit by less than the least chunk, or by one record.
    async fn read(&mut self, room: u64) -> Result<Chunk, ShardError> {
        let start_generation = std::mem::take(&mut self.start_generation);
        let room = usize::try_from(room).unwrap_or(usize::MAX).max(CHUNK_MIN_BYTES);
        let read = self.host.copy_read(
            &self.shard,
            self.generation,
            self.position,
            start_generation,
            self.most_bytes.min(chunk_bytes(self.egress.rate())).min(room),
        );
        let chunk = read.await?;
        let standing =
            Standing { committed: chunk.committed, bytes_remaining: chunk.bytes_remaining };
        Ok(seal(self.position, chunk.end_offset, chunk.frames, standing))
    }
}

fn status_of(shard: &ShardKey, error: &ShardError) -> Status {
    let detail = format!("copy of {shard}: {error}");
    let (label, status) = match error {
        ShardError::NotHeld => ("not_held", refuse(Reason::NotFound, detail)),
        ShardError::Stale { .. } => ("stale", refuse(Reason::StaleGeneration, detail)),
        ShardError::Diverged(offset) => {
            let metadata = [("diverged_at", offset.to_string())];
            let metadata = metadata.each_ref().map(|(k, v)| (*k, v.as_str()));
            ("diverged", refuse_with(Reason::Conflict, detail, &metadata))
        }
        ShardError::BeforeStart { first, .. } => ("before_start", before_start(*first, detail)),
        ShardError::Behind(_) => ("behind", refuse(Reason::ShardUnavailable, detail)),
        ShardError::BadFrames(_) | ShardError::Storage(_) | ShardError::TakesNoCopy => {
            ("storage", refuse(Reason::ShardUnavailable, detail))
        }
    };
    metrics::copy_refused(label);
    status
}

fn shard_of(text: &str) -> Result<ShardKey, Status> {
    text.parse().map_err(|e| refuse(Reason::InvalidArgument, format!("field 'shard': {e}")))
}

async fn opening(requests: &mut Streaming<PullRequest>) -> Result<Open, Status> {
    match requests.message().await?.and_then(|message| message.request) {
        Some(Asked::Open(open)) => Ok(open),
        _ => {
            let detail = "field 'request': the first message is not valid: expected 'open'";
            Err(refuse(Reason::InvalidArgument, detail))
        }
    }
}

/// Takes credits until the destination ends the call. They are cumulative, so that a repeated one
/// is harmless.
async fn read_credits(mut requests: Streaming<PullRequest>, asking: watch::Sender<Asking>) {
    while let Ok(Some(message)) = requests.message().await {
        if let Some(Asked::Credit(credit)) = &message.request {
            asking.send_if_modified(|asking| {
                let rose = credit.cumulative_bytes > asking.credit;
                asking.credit = asking.credit.max(credit.cumulative_bytes);
                rose
            });
        } else if let Some(Asked::Class(word)) = &message.request
            && let Ok(class) = word.parse()
        {
            asking.send_modify(|asking| asking.class = Some(class));
        }
    }
    asking.send_modify(|asking| asking.ended = true);
}

#[tonic::async_trait]
impl ShardCopy for CopySource {
    type PullStream = ReceiverStream<Result<Chunk, Status>>;

    async fn pull(
        &self,
        request: Request<Streaming<PullRequest>>,
    ) -> Result<Response<Self::PullStream>, Status> {
        let mut requests = request.into_inner();
        let open = opening(&mut requests).await?;
        let shard = shard_of(&open.shard)?;
        self.check_token(&shard, open.token)?;
        tracing::debug!(%shard, destination = open.destination, from = open.start_offset, "copy opened");
        let (asking_tx, asking) = watch::channel(Asking::default());
        let (chunks, stream) = mpsc::channel(CHUNKS_AHEAD);
        let wanted = match open.max_chunk_bytes {
            0 => CHUNK_MAX_BYTES,
            bytes => usize::try_from(bytes).unwrap_or(CHUNK_MAX_BYTES),
        };
        let sending = Sending {
            host: self.host.clone(),
            egress: self.admission.copies().egress.clone(),
            shard,
            generation: open.generation,
            position: open.start_offset,
            start_generation: open.start_generation,
            most_bytes: wanted.clamp(CHUNK_MIN_BYTES, CHUNK_MAX_BYTES),
            asking,
            class: None,
            chunks: chunks.clone(),
        };
        // A class that is not known may be any; maintenance can wait.
        let class = open.class.parse().unwrap_or(CopyClass::Unavailable);
        let presence = Presence::new(&self.admission, class);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = chunks.closed() => {}
                () = sending.run(presence) => {}
            }
        });
        tokio::spawn(read_credits(requests, asking_tx));
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn digest(
        &self,
        request: Request<DigestRequest>,
    ) -> Result<Response<DigestResponse>, Status> {
        let asked = request.into_inner();
        let shard = shard_of(&asked.shard)?;
        let known = self.host.watch(&shard).map(|watch| watch.borrow().assignment.generation);
        if let Some(known) = known.filter(|known| asked.generation < *known) {
            let stale = ShardError::Stale { given: asked.generation, known };
            return Err(status_of(&shard, &stale));
        }
        // Whatever the copy was for, maintenance can wait until it counts.
        let _copying = self.admission.copying(CopyClass::Drain);
        let began = Instant::now();
        let digest = self.host.digest(&shard, asked.from_offset, asked.to_offset, u64::MAX).await;
        let digest = digest.map_err(|error| status_of(&shard, &error))?;
        self.admission.rest_after(began.elapsed()).await;
        Ok(Response::new(DigestResponse {
            crc32c: digest.crc32c,
            bytes: digest.bytes,
            to_offset: digest.to_offset,
        }))
    }
}
