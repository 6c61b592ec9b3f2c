//! A cluster whose copies are measured: brokers behind small links, streams with bytes in them,
//! and moves on demand.

use std::time::Duration;

use anyhow::Context;
use evenkeel_client::Client;
use evenkeel_e2e::bench::figures::Sample;
use evenkeel_e2e::bench::growth::{Growth, stored};
use evenkeel_e2e::bench::publishers::{Work, client, producer};
use evenkeel_e2e::bench::records::Records;
use evenkeel_e2e::{Cluster, Flags, LEASE_TTL_MS, Size};
use evenkeel_model::{Assignment, BrokerId, ShardKey, StreamKey};
use evenkeel_proto::admin::{StartMoveRequest, Stream};
use evenkeel_proto::migrations::SetLimitRequest;
use evenkeel_testkit::EtcdVersion;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::Args;

/// Time between two rounds of the migrator.
pub(crate) const ROUND: Duration = Duration::from_millis(250);

const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// Batches of one shard under way while it is filled.
const FILLERS: u32 = 4;
const RECORD_BYTES: usize = 1 << 10;
const BATCH_BYTES: usize = 64 << 10;

/// The cluster, its records, and a client of it.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) records: Records,
    pub(crate) client: Client,
    brokers: u32,
}

impl Stage {
    /// With so many brokers and migrators. Nothing moves but what is asked for, and a lost replica
    /// is replaced after `restore`.
    pub(crate) async fn start(
        args: &Args,
        brokers: u32,
        migrators: u32,
        restore: Duration,
    ) -> anyhow::Result<Self> {
        let mut flags = Flags::new();
        for broker in 1..=brokers {
            let link = format!("--network-bytes-per-second={}", args.link_bytes());
            let target = format!("--set=copy_target_p99_ms={}", args.target);
            // No rule on zones narrows where a copy may go.
            flags.insert(format!("b{broker}"), vec![link, target, "--zone=z1".to_owned()]);
        }
        for migrator in 1..=migrators {
            let slots = ["--copies-max-per-node=4", "--copies-max-concurrent=64"];
            flags.insert(format!("mig{migrator}"), slots.map(str::to_owned).into());
        }
        let size = Size { load_managers: 1, migrators, brokers };
        let cluster = Cluster::start_with(&args.program, EtcdVersion::V3_4, size, flags).await?;
        cluster.set_policy(&policy(restore)).await?;
        let records = Records::watch(&cluster).await?;
        let client = client(&cluster)?;
        Ok(Self { cluster, records, client, brokers })
    }

    /// A stream of so many shards, each with so many bytes of records in it.
    pub(crate) async fn stream(
        &self,
        name: &str,
        shards: u32,
        factor: u32,
        bytes: u64,
    ) -> anyhow::Result<StreamKey> {
        self.stream_of(name, shards, factor, bytes, RECORD_BYTES).await
    }

    /// The same, with records of another size.
    pub(crate) async fn stream_of(
        &self,
        name: &str,
        shards: u32,
        factor: u32,
        bytes: u64,
        record_bytes: usize,
    ) -> anyhow::Result<StreamKey> {
        let stream = Stream {
            stream: format!("stream/bench/{name}"),
            shards,
            replication_factor: factor,
            durable: true,
            ..Stream::default()
        };
        self.records.stream_served(&self.cluster, stream.clone(), self.brokers).await?;
        let stream: StreamKey = stream.stream.parse()?;
        let shards: Vec<ShardKey> = (0..shards).map(|number| stream.shard(number)).collect();
        self.fill_with(&shards, bytes, record_bytes).await?;
        Ok(stream)
    }

    /// Publishes so many bytes to each shard.
    pub(crate) async fn fill(&self, shards: &[ShardKey], bytes: u64) -> anyhow::Result<()> {
        self.fill_with(shards, bytes, RECORD_BYTES).await
    }

    async fn fill_with(
        &self,
        shards: &[ShardKey],
        bytes: u64,
        record_bytes: usize,
    ) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        let records = BATCH_BYTES / record_bytes;
        let batches = bytes.div_ceil(BATCH_BYTES as u64);
        for shard in shards {
            for filler in 0..FILLERS {
                let producer = producer(&self.client, &shard.stream);
                let work = Work { stream: shard.stream.clone(), shards: 1, records, record_bytes };
                let number = shard.number;
                tasks.spawn(async move {
                    for turn in (u64::from(filler)..batches).step_by(FILLERS as usize) {
                        producer.publish(number, work.batch(turn)).await?;
                    }
                    anyhow::Ok(())
                });
            }
        }
        while let Some(filled) = tasks.join_next().await {
            filled?.context("filling the shards")?;
        }
        Ok(())
    }

    /// The shards of a stream that a broker leads, in order.
    pub(crate) fn led(&self, stream: &StreamKey, broker: &str) -> anyhow::Result<Vec<ShardKey>> {
        let broker: BrokerId = broker.parse()?;
        let all = self.records.assignments()?.into_iter();
        let led = all.filter(|a| a.shard.stream == *stream && a.leader.as_ref() == Some(&broker));
        Ok(led.map(|assignment| assignment.shard).collect())
    }

    /// Asks for a move; again while it is refused, because a report may still be on its way.
    pub(crate) async fn move_shard(&self, shard: &ShardKey, to: &str) -> anyhow::Result<()> {
        let request = StartMoveRequest {
            shard: shard.to_string(),
            to_broker: to.to_owned(),
            validate_only: false,
        };
        self.cluster
            .ask("start the move", async |mut admin| {
                admin.start_move(request.clone()).await.map(drop)
            })
            .await
    }

    /// Waits until a shard rests and is led by this broker.
    pub(crate) async fn moved(&self, shard: &ShardKey, to: &str) -> anyhow::Result<()> {
        let to: BrokerId = to.parse()?;
        self.until(&format!("{shard} is led by {to}"), |assignments| {
            let shard = assignments.iter().find(|a| a.shard == *shard);
            shard.is_some_and(|a| a.leader.as_ref() == Some(&to) && rests(a))
        })
        .await
    }

    /// Waits until all shards of a stream are whole and served, and nothing moves.
    pub(crate) async fn at_rest(&self, stream: &StreamKey, factor: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let all = self.records.assignments()?;
            let shards = all.iter().filter(|a| a.shard.stream == *stream).count();
            let served = self.records.served(stream, factor)?;
            if served == shards && all.iter().all(rests) {
                return Ok(());
            }
            let late = Instant::now() >= deadline;
            anyhow::ensure!(!late, "{served} of {shards} shards of {stream} are served");
            sleep(POLL).await;
        }
    }

    /// Waits for a condition on the assignments.
    pub(crate) async fn until(
        &self,
        what: &str,
        holds: impl Fn(&[Assignment]) -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self.records.assignments()?) {
            anyhow::ensure!(Instant::now() < deadline, "not after {PATIENCE:?}: {what}");
            sleep(POLL).await;
        }
        Ok(())
    }

    /// Caps every broker's copies, bytes per second; 0 lifts the caps.
    pub(crate) async fn cap(&self, bytes_per_second: u64) -> anyhow::Result<()> {
        let mut migrations = self.cluster.migrations().await?;
        for broker in self.cluster.brokers() {
            migrations.set_limit(SetLimitRequest { broker, bytes_per_second }).await?;
        }
        Ok(())
    }

    /// Watches shards as they grow at one broker.
    pub(crate) fn growth(&self, broker: &str, shards: &[ShardKey]) -> Growth {
        let logs: Vec<(&str, &ShardKey)> = shards.iter().map(|shard| (broker, shard)).collect();
        Growth::watch(&self.cluster, &logs)
    }

    /// Waits until so many bytes of a shard are at a broker.
    pub(crate) async fn arrived(
        &self,
        broker: &str,
        shard: &ShardKey,
        bytes: u64,
    ) -> anyhow::Result<()> {
        let folder = self.cluster.shard_folder(broker, shard);
        let deadline = Instant::now() + PATIENCE;
        while stored(&folder) < bytes {
            let late = Instant::now() >= deadline;
            anyhow::ensure!(!late, "{bytes} bytes of {shard} do not come to {broker}");
            sleep(POLL).await;
        }
        Ok(())
    }

    /// Adds the ends of the processes' logs to an error.
    pub(crate) fn explain<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        result.with_context(|| self.cluster.logs())
    }
}

/// Whether nothing is copied for it or handed over.
pub(crate) fn rests(assignment: &Assignment) -> bool {
    assignment.successor.is_none() && assignment.joining.is_none() && assignment.leaving.is_none()
}

fn policy(restore: Duration) -> Value {
    json!({
        "rebalancing": { "leaders": false }, "broker_expiry_ms": LEASE_TTL_MS,
        "settle_ms": 500, "reconcile_interval_ms": 200, "mass_loss_percent": 90,
        "restore_after_ms": restore.as_millis() as u64,
        "moves_max_concurrent": 64, "repairs_max_concurrent": 64,
    })
}

/// Jain's index: 1 when all have the same, 1/n when one has everything.
pub(crate) fn fairness(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Milliseconds between two moments.
pub(crate) fn ms(from: Instant, to: Instant) -> f64 {
    (to - from).as_secs_f64() * 1000.0
}

/// The 99th percentile.
pub(crate) fn p99(sample: &Sample) -> f64 {
    sample.quantile(0.99)
}
