//! What the bucket costs, and what the protocol costs over raw TCP with the same checksums.

use std::time::Duration;

use bytes::Bytes;
use evenkeel_broker_agent::copies::bucket::Bucket;
use evenkeel_e2e::bench::figures::{Aim, Figures, Sample};
use evenkeel_model::ShardKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::Args;
use crate::pair::{self, Place, Source, UNLIMITED};

const PART: &str = "overhead";

/// The destination charges its bucket in such steps.
const STEP_CHUNKS: usize = 4;

/// The sides that are compared, one run of each in turn.
#[derive(Debug, Default)]
struct Sides {
    plain: Sample,
    throttled: Sample,
    memory: Sample,
    disk: Sample,
    verified: Sample,
    cost: Sample,
    protocol: Sample,
    with_disk: Sample,
}

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let shard: ShardKey = "stream/bench/overhead/0".parse()?;
    let bytes = args.mib << 20;
    let folder = tempfile::tempdir()?;
    let on_disk = Place::Folder(folder.path().to_owned());
    let mut source = Source::start(&Place::Memory).await?;
    source.fill(&shard, bytes).await?;
    let mut stored = Source::start(&on_disk).await?;
    stored.fill(&shard, bytes).await?;
    let chunks = source.chunks(&shard).await?;
    // Memory is mapped and connections are learned before it counts.
    raw(&chunks, false).await?;
    let mut sides = Sides::default();
    for run in 0..args.runs {
        // Neither side always goes first.
        let (first, second) =
            (raw(&chunks, run % 2 == 0).await?, raw(&chunks, run % 2 == 1).await?);
        let (throttled, plain) = if run % 2 == 0 { (first, second) } else { (second, first) };
        sides.throttled.add(throttled);
        sides.plain.add(plain);
        sides.cost.add((plain / throttled - 1.0) * 100.0);
        let (memory, verified) = agent(&source, &shard, &Place::Memory, bytes).await?;
        sides.memory.add(memory);
        sides.verified.add(verified);
        sides.protocol.add(memory / plain);
        let place = Place::Folder(folder.path().join(run.to_string()));
        let (disk, _) = agent(&stored, &shard, &place, bytes).await?;
        sides.disk.add(disk);
        sides.with_disk.add(disk / plain);
        std::fs::remove_dir_all(folder.path().join(run.to_string()))?;
    }
    sides.report(figures);
    Ok(())
}

impl Sides {
    fn report(&self, figures: &mut Figures) {
        figures.median(PART, "raw TCP and CRC32C, no bucket", &self.plain, "MB/s");
        figures.median(PART, "the same through two unlimited buckets", &self.throttled, "MB/s");
        figures.median(PART, "time that the buckets add, pair by pair", &self.cost, "%");
        figures.bars(Aim::AtMost(3.0), Aim::AtMost(1.0));
        figures.median(PART, "agent's copy, logs in memory", &self.memory, "MB/s");
        figures.median(PART, "over raw TCP and CRC32C", &self.protocol, "");
        figures.bars(Aim::AtLeast(0.3), Aim::AtLeast(0.4));
        figures.median(PART, "the same with the whole verified again", &self.verified, "MB/s");
        figures.median(PART, "agent's copy, logs on disk, synced", &self.disk, "MB/s");
        figures.median(PART, "over raw TCP and CRC32C without a disk", &self.with_disk, "");
    }
}

fn speed(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64() / 1e6
}

/// MB/s of the agent's own copy: until all is stored, and until it is verified and level.
async fn agent(
    source: &Source,
    shard: &ShardKey,
    place: &Place,
    bytes: u64,
) -> anyhow::Result<(f64, f64)> {
    let began = Instant::now();
    let mut copying = pair::start(source, shard, &source.address, place).await?;
    copying.stored().await?;
    let stored = began.elapsed();
    let said = copying.ended().await?;
    let verified = began.elapsed();
    anyhow::ensure!(said.state == "level", "the copy is {}: {}", said.state, said.detail);
    copying.host.close().await;
    Ok((speed(bytes, stored), speed(bytes, verified)))
}

/// MB/s of the chunks over one loopback connection, each with length and checksum.
async fn raw(chunks: &[Bytes], throttled: bool) -> anyhow::Result<f64> {
    let bucket = || throttled.then(|| Bucket::new(UNLIMITED));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let sender = TcpStream::connect(listener.local_addr()?).await?;
    let (receiver, _) = listener.accept().await?;
    sender.set_nodelay(true)?;
    let (to_send, egress, ingress) = (chunks.to_vec(), bucket(), bucket());
    let began = Instant::now();
    let sending = tokio::spawn(send(sender, to_send, egress));
    let received = tokio::spawn(receive(receiver, chunks.len(), ingress));
    sending.await??;
    let bytes = received.await??;
    Ok(speed(bytes, began.elapsed()))
}

async fn send(
    mut stream: TcpStream,
    chunks: Vec<Bytes>,
    egress: Option<Bucket>,
) -> anyhow::Result<()> {
    for chunk in chunks {
        if let Some(egress) = &egress {
            egress.take(chunk.len() as u64).await;
        }
        let mut header = [0; 8];
        header[..4].copy_from_slice(&(chunk.len() as u32).to_le_bytes());
        header[4..].copy_from_slice(&crc32c::crc32c(&chunk).to_le_bytes());
        stream.write_all(&header).await?;
        stream.write_all(&chunk).await?;
    }
    Ok(())
}

async fn receive(stream: TcpStream, chunks: usize, ingress: Option<Bucket>) -> anyhow::Result<u64> {
    let mut stream = BufReader::with_capacity(256 << 10, stream);
    let (mut all, mut step, mut buffer) = (0, 0, Vec::new());
    for number in 0..chunks {
        let (length, checksum) = (stream.read_u32_le().await?, stream.read_u32_le().await?);
        buffer.resize(length as usize, 0);
        stream.read_exact(&mut buffer).await?;
        anyhow::ensure!(crc32c::crc32c(&buffer) == checksum, "a chunk arrived broken");
        all += u64::from(length);
        step += u64::from(length);
        if let Some(ingress) = &ingress
            && number % STEP_CHUNKS == STEP_CHUNKS - 1
        {
            ingress.take(std::mem::take(&mut step)).await;
        }
    }
    Ok(all)
}
