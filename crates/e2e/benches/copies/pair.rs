//! Both ends of a copy in this process: the agent's own source, destination and shard host, over
//! loopback TCP.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use evenkeel_broker_agent::config::LogConfig;
use evenkeel_broker_agent::copies::bucket::Bucket;
use evenkeel_broker_agent::copies::orders::{Desk, Order, Told};
use evenkeel_broker_agent::copies::pieces::CHUNK_MAX_BYTES;
use evenkeel_broker_agent::copies::pull::{Destination, pull};
use evenkeel_broker_agent::copies::source::CopySource;
use evenkeel_broker_agent::host::builtin::disks::{Disks, FileDisks, MemoryDisks};
use evenkeel_broker_agent::host::builtin::open_on;
use evenkeel_broker_agent::host::{
    HostContext, NewRecord, PublishError, ShardHost, ShardStatus, Surroundings,
};
use evenkeel_broker_agent::maintenance::admission::Admission;
use evenkeel_model::{
    Assignment, BrokerId, BrokerShard, CopyClass, Phase, RECORD_VERSION, Role, ShardKey,
};
use evenkeel_proto::migrations::CopyProgress;
use evenkeel_runtime::{Clock, Health, Network, Shutdown, grpc};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// A rate that never binds, bytes per second.
pub(crate) const UNLIMITED: u64 = 1 << 50;

/// Of the assignment that names the destination.
pub(crate) const GENERATION: u64 = 2;
/// The leadership token of the load manager that would have written it.
pub(crate) const TOKEN: i64 = 7;

const PATIENCE: Duration = Duration::from_secs(60);
const RECORD_BYTES: usize = 1 << 10;
const BATCH: u64 = 256;

/// Brokers that do not know where the others are: nothing but copies passes between them.
struct Alone;

impl Surroundings for Alone {
    fn is_alive(&self) -> bool {
        true
    }

    fn address_of(&self, _: &BrokerId) -> Option<String> {
        None
    }
}

/// Where logs are kept.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Memory,
    Folder(PathBuf),
}

fn host(name: &str, place: &Place) -> anyhow::Result<Arc<dyn ShardHost>> {
    // Edges of reports go nowhere: nobody plans here.
    let (reports, _) = mpsc::unbounded_channel();
    let context = HostContext {
        broker: name.parse()?,
        data_dir: PathBuf::new(),
        log: LogConfig::default(),
        clock: Clock::system(),
        network: Network::tcp(),
        maintenance: Admission::new(UNLIMITED),
        surroundings: Arc::new(Alone),
        reports,
    };
    let disks: Arc<dyn Disks> = match place {
        Place::Memory => Arc::new(MemoryDisks::new()),
        Place::Folder(folder) => Arc::new(FileDisks::open(folder.join(name))?),
    };
    Ok(open_on(context, disks).host)
}

fn assignment(shard: &ShardKey, generation: u64) -> anyhow::Result<Assignment> {
    let mut assignment = Assignment::new(shard.clone(), "source".parse()?, vec![]);
    assignment.generation = generation;
    if generation >= GENERATION {
        assignment.joining = Some("destination".parse()?);
    }
    Ok(assignment)
}

async fn tell(host: &Arc<dyn ShardHost>, role: Role, assignment: Assignment) {
    host.apply(BrokerShard { v: RECORD_VERSION, role, assignment, token: TOKEN }).await;
}

async fn until(
    host: &Arc<dyn ShardHost>,
    shard: &ShardKey,
    wanted: impl Fn(&ShardStatus) -> bool,
) -> anyhow::Result<ShardStatus> {
    let mut status = host.watch(shard).context("the shard is not held")?;
    let found = timeout(PATIENCE, status.wait_for(|status| wanted(status))).await;
    Ok(found.context("the shard's status does not come")??.clone())
}

/// A served source with some shards in it.
pub(crate) struct Source {
    pub(crate) host: Arc<dyn ShardHost>,
    pub(crate) address: String,
    serving: Shutdown,
    /// Committed ends.
    ends: BTreeMap<ShardKey, u64>,
}

impl Source {
    pub(crate) async fn start(place: &Place) -> anyhow::Result<Self> {
        let host = host("source", place)?;
        let incoming = Network::tcp().listen("127.0.0.1:0").await?;
        let address = incoming.address().to_owned();
        let server = grpc::Server::new(evenkeel_proto::DESCRIPTORS)?
            .add(CopySource::new(host.clone(), Admission::new(UNLIMITED)).server());
        let serving = Shutdown::new();
        tokio::spawn(server.serve(incoming, Health::new(), serving.clone()));
        Ok(Self { host, address, serving, ends: BTreeMap::new() })
    }

    /// Leads a shard with so many bytes of records in it, to be copied.
    pub(crate) async fn fill(&mut self, shard: &ShardKey, bytes: u64) -> anyhow::Result<()> {
        tell(&self.host, Role::Leader, assignment(shard, 1)?).await;
        until(&self.host, shard, |status| status.phase == Phase::Serving).await?;
        let payload = Bytes::from(vec![b'x'; RECORD_BYTES]);
        let record = NewRecord { key: None, payload, producer_id: 0, sequence: 0 };
        let batches = bytes.div_ceil(BATCH * RECORD_BYTES as u64);
        for _ in 0..batches {
            let batch = vec![record.clone(); BATCH as usize];
            loop {
                match self.host.publish(shard, batch.clone()).await {
                    Ok(_) => break,
                    Err(PublishError::Overloaded) => tokio::task::yield_now().await,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        tell(&self.host, Role::Leader, assignment(shard, GENERATION)?).await;
        let serving = until(&self.host, shard, |status| {
            status.phase == Phase::Serving && status.assignment.generation == GENERATION
        });
        let end = serving.await?.committed;
        self.ends.insert(shard.clone(), end);
        Ok(())
    }

    /// A shard's chunks, as the source sends them.
    pub(crate) async fn chunks(&self, shard: &ShardKey) -> anyhow::Result<Vec<Bytes>> {
        let (mut from, mut chunks) = (0, Vec::new());
        while from < self.ends.get(shard).copied().unwrap_or(0) {
            let read = self.host.copy_read(shard, GENERATION, from, 0, CHUNK_MAX_BYTES).await?;
            from = read.end_offset;
            chunks.push(read.frames);
        }
        Ok(chunks)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.serving.trigger();
    }
}

/// A copy that runs.
pub(crate) struct Copying {
    pub(crate) host: Arc<dyn ShardHost>,
    shard: ShardKey,
    desk: Desk,
    end: u64,
    task: JoinHandle<()>,
    /// Dropped, it would cancel the copy.
    _words: mpsc::UnboundedSender<Told>,
}

/// Starts a copy to a new destination, with credit for all of it.
pub(crate) async fn start(
    source: &Source,
    shard: &ShardKey,
    address: &str,
    place: &Place,
) -> anyhow::Result<Copying> {
    let host = host("destination", place)?;
    tell(&host, Role::Joining, assignment(shard, GENERATION)?).await;
    until(&host, shard, |status| status.assignment.generation == GENERATION).await?;
    let desk = Desk::default();
    let to = Destination {
        me: "destination".parse()?,
        host: host.clone(),
        network: Network::tcp(),
        ingress: Bucket::new(UNLIMITED),
        admission: Admission::new(UNLIMITED),
        desk: desk.clone(),
    };
    let (words, received) = mpsc::unbounded_channel();
    words.send(Told::Allowance(u64::MAX >> 1, Instant::now() + Duration::from_secs(3600)))?;
    let order = order(shard, address, GENERATION, TOKEN);
    let task = tokio::spawn(pull(to, order, received));
    let end = source.ends.get(shard).copied().context("the source has no such shard")?;
    Ok(Copying { host, shard: shard.clone(), desk, end, task, _words: words })
}

pub(crate) fn order(shard: &ShardKey, address: &str, generation: u64, token: i64) -> Order {
    Order {
        shard: shard.clone(),
        generation,
        class: CopyClass::UnderReplicated,
        source: "source".to_owned(),
        source_address: address.to_owned(),
        token,
    }
}

impl Copying {
    /// Waits until all bytes are stored; they may still have to be verified.
    pub(crate) async fn stored(&self) -> anyhow::Result<()> {
        until(&self.host, &self.shard, |status| status.log_end >= self.end).await.map(drop)
    }

    /// Waits for the end of the copy, and answers with what it said last.
    pub(crate) async fn ended(&mut self) -> anyhow::Result<CopyProgress> {
        timeout(PATIENCE, &mut self.task).await.context("the copy does not end")??;
        self.said().context("the copy said nothing")
    }

    /// What it says now.
    pub(crate) fn said(&self) -> Option<CopyProgress> {
        self.desk.all().into_iter().next()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Whether the destination holds what the source holds.
    pub(crate) async fn is_identical(&self, source: &Source) -> anyhow::Result<bool> {
        let here = self.host.digest(&self.shard, 0, self.end, u64::MAX).await?;
        let there = source.host.digest(&self.shard, 0, self.end, u64::MAX).await?;
        Ok(here == there && here.to_offset == self.end)
    }
}
