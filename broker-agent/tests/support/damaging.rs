//! A source that passes a real one's copies on and damages them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use evenkeel_proto::copy::shard_copy_client::ShardCopyClient;
use evenkeel_proto::copy::shard_copy_server::{ShardCopy, ShardCopyServer};
use evenkeel_proto::copy::{Chunk, DigestRequest, DigestResponse, PullRequest};
use evenkeel_runtime::{Health, Network, Shutdown, grpc};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

/// What it damages.
#[derive(Clone)]
pub(crate) struct Damage {
    /// Chunks until one has a byte changed; 0: no more.
    pub(crate) chunks: Arc<AtomicU32>,
    /// Digests that are not those of the source.
    pub(crate) digests: Arc<AtomicU32>,
}

impl Damage {
    pub(crate) fn new(chunks: u32, digests: u32) -> Self {
        Self {
            chunks: Arc::new(AtomicU32::new(chunks)),
            digests: Arc::new(AtomicU32::new(digests)),
        }
    }
}

/// Whether this was the last one before 0.
fn counts_down(counter: &AtomicU32) -> bool {
    let step = |left: u32| left.checked_sub(1);
    counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, step) == Ok(1)
}

struct Between {
    source: ShardCopyClient<Channel>,
    damage: Damage,
}

#[tonic::async_trait]
impl ShardCopy for Between {
    type PullStream = ReceiverStream<Result<Chunk, Status>>;

    async fn pull(
        &self,
        request: Request<Streaming<PullRequest>>,
    ) -> Result<Response<Self::PullStream>, Status> {
        let asks = request.into_inner().map_while(Result::ok);
        let mut chunks = self.source.clone().pull(asks).await?.into_inner();
        let (sender, stream) = tokio::sync::mpsc::channel(1);
        let damage = self.damage.clone();
        tokio::spawn(async move {
            while let Some(mut chunk) = chunks.next().await {
                if let Ok(chunk) = &mut chunk
                    && counts_down(&damage.chunks)
                {
                    let mut frames = chunk.frames.to_vec();
                    let middle = frames.len() / 2;
                    frames[middle] ^= 4;
                    chunk.frames = frames.into();
                }
                if sender.send(chunk).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn digest(
        &self,
        request: Request<DigestRequest>,
    ) -> Result<Response<DigestResponse>, Status> {
        let mut answer = self.source.clone().digest(request.into_inner()).await?;
        if self.damage.digests.load(Ordering::Acquire) > 0 {
            self.damage.digests.fetch_sub(1, Ordering::AcqRel);
            answer.get_mut().crc32c ^= 1;
        }
        Ok(answer)
    }
}

/// Serves before the source at `address`; answers its own address.
pub(crate) async fn damaging(address: &str, damage: Damage) -> (String, Shutdown) {
    let incoming = Network::tcp().listen("127.0.0.1:0").await.unwrap();
    let own = incoming.address().to_owned();
    let source = ShardCopyClient::new(Network::tcp().channel(address));
    let server = grpc::Server::new(evenkeel_proto::DESCRIPTORS)
        .unwrap()
        .add(ShardCopyServer::new(Between { source, damage }));
    let shutdown = Shutdown::new();
    tokio::spawn(server.serve(incoming, Health::new(), shutdown.clone()));
    (own, shutdown)
}
