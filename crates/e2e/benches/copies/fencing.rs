//! Attempts of the past: older generations, older leadership tokens and orders nobody waits for,
//! at random beside attempts that hold. None of the stale ones may move a byte.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_broker_agent::copies::pieces::CHUNK_MAX_BYTES;
use evenkeel_broker_agent::host::ShardHost;
use evenkeel_e2e::bench::figures::{Aim, Figures};
use evenkeel_model::ShardKey;
use evenkeel_proto::copy::pull_request::Request as Ask;
use evenkeel_proto::copy::shard_copy_client::ShardCopyClient;
use evenkeel_proto::copy::{Credit, Open, PullRequest};
use evenkeel_runtime::Network;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use crate::Args;
use crate::pair::{self, GENERATION, Place, Source, TOKEN};

const PART: &str = "fencing";
const BYTES: u64 = 1 << 20;
const ATTEMPTS: u32 = 500;
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Counts {
    stale: u32,
    accepted: u32,
    fresh: u32,
    refused: u32,
}

impl Counts {
    fn take(&mut self, is_stale: bool, is_accepted: bool) {
        if is_stale {
            self.stale += 1;
            self.accepted += u32::from(is_accepted);
        } else {
            self.fresh += 1;
            self.refused += u32::from(!is_accepted);
        }
    }
}

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(args.seed);
    let shard: ShardKey = "stream/bench/fencing/0".parse()?;
    let mut source = Source::start(&Place::Memory).await?;
    source.fill(&shard, BYTES).await?;
    let frames = source.chunks(&shard).await?.into_iter().next();
    let frames = frames.ok_or_else(|| anyhow::anyhow!("the shard is empty"))?;
    let mut copying = pair::start(&source, &shard, &source.address, &Place::Memory).await?;
    copying.ended().await?;
    let mut client = ShardCopyClient::new(Network::tcp().channel(&source.address));
    let mut counts = Counts::default();
    // The highest token that the source has seen.
    let mut seen = TOKEN;
    for _ in 0..ATTEMPTS {
        let generation = rng.random_range(GENERATION - 1..=GENERATION);
        if rng.random_bool(0.5) {
            let token = rng.random_range(seen - 2..=seen + 1);
            let accepted = pull(&mut client, &shard, generation, token).await?;
            counts.take(generation < GENERATION || token < seen, accepted);
            seen = seen.max(token);
        } else {
            let generation = rng.random_range(GENERATION - 1..=GENERATION + 1);
            let accepted = append(&copying.host, &shard, generation, &frames).await;
            counts.take(generation != GENERATION, accepted);
        }
    }
    copying.host.close().await;
    figures.add(PART, "stale attempts, by generation or token", counts.stale.into(), "");
    figures.add(PART, "of those, accepted", counts.accepted.into(), "");
    figures.aim(Aim::AtMost(0.0));
    figures.add(PART, "attempts that hold", counts.fresh.into(), "");
    figures.add(PART, "of those, refused", counts.refused.into(), "");
    figures.aim(Aim::AtMost(0.0));
    Ok(())
}

/// Whether a source sends anything.
async fn pull(
    client: &mut ShardCopyClient<Channel>,
    shard: &ShardKey,
    generation: u64,
    token: i64,
) -> anyhow::Result<bool> {
    let open = Open {
        shard: shard.to_string(),
        generation,
        token,
        destination: "destination".to_owned(),
        start_offset: 0,
        start_generation: 0,
        max_chunk_bytes: CHUNK_MAX_BYTES as u32,
        class: String::new(),
    };
    let (asks, requests) = mpsc::channel(4);
    for ask in [Ask::Open(open), Ask::Credit(Credit { cumulative_bytes: CHUNK_MAX_BYTES as u64 })] {
        asks.send(PullRequest { request: Some(ask) }).await?;
    }
    let answer = timeout(PATIENCE, client.pull(ReceiverStream::new(requests))).await?;
    let Ok(chunks) = answer else { return Ok(false) };
    let first = timeout(PATIENCE, chunks.into_inner().message()).await?;
    Ok(first.is_ok_and(|chunk| chunk.is_some_and(|chunk| !chunk.frames.is_empty())))
}

/// Whether a destination takes frames that it has already, which changes nothing.
async fn append(
    host: &Arc<dyn ShardHost>,
    shard: &ShardKey,
    generation: u64,
    frames: &bytes::Bytes,
) -> bool {
    host.copy_append(shard, generation, 0, vec![frames.clone()]).await.is_ok()
}
