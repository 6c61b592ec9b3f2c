//! A follower's closed segment decays on its disk. The shard becomes whole again without anybody's
//! help: on another broker, or, where there is none, where it was.

use std::time::Duration;

use evenkeel_coordination::{Store, StoreConfig};
use evenkeel_e2e::damage::{flip, segments};
use evenkeel_e2e::{Cluster, Size, Witness};
use evenkeel_model::keys::Keys;
use evenkeel_model::{
    Assignment, AssignmentRecord, BrokerId, ReportRecord, ShardKey, ShardReport, decode,
};
use evenkeel_proto::admin::Stream;
use evenkeel_simulator::traffic::{Traffic, TrafficPlan};
use evenkeel_testkit::EtcdVersion;
use serde_json::json;
use tokio::time::{Instant, sleep};

const PROGRAM: &str = env!("CARGO_BIN_EXE_evenkeel-under-test");
const STREAM: &str = "stream/e2e/decay";
const FACTOR: usize = 3;
const PATIENCE: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_decays_is_replaced_or_rebuilt_without_an_operator() {
    for brokers in [4, 3] {
        let size = Size { load_managers: 1, migrators: 1, brokers };
        let small = ["--set=log.segment_bytes=65536", "--set=log.scrub_interval_seconds=1"];
        let flags = (1..=brokers).map(|n| (format!("b{n}"), small.map(str::to_owned).to_vec()));
        let started = Cluster::start_with(PROGRAM, EtcdVersion::V3_4, size, flags.collect()).await;
        let cluster = started.unwrap();
        if let Err(error) = story(&cluster, brokers).await {
            panic!("{brokers} brokers: {error:#}\n{}", cluster.logs());
        }
    }
}

async fn story(cluster: &Cluster, brokers: u32) -> anyhow::Result<()> {
    let witness = Witness::start(&cluster.etcd.url(), 4).await?;
    let policy = json!({
        "broker_expiry_ms": 2000, "settle_ms": 1500, "reconcile_interval_ms": 300,
        "moves_max_concurrent": 4, "restore_after_ms": 60_000, "disk_full_percent": 0,
    });
    cluster.set_policy(&policy).await?;
    let stream = Stream {
        stream: STREAM.to_owned(),
        shards: 1,
        replication_factor: FACTOR as u32,
        durable: true,
        ..Stream::default()
    };
    cluster.create_stream(stream).await?;
    whole(cluster, &witness).await?;
    let plan = TrafficPlan {
        bootstrap: cluster.broker_addresses(),
        streams: vec![STREAM.parse()?],
        shards: 1,
        producers: 4,
        pause: Duration::from_millis(1),
        seed: 7,
    };
    let traffic = Traffic::start(&cluster.network, &plan)?;
    let records = Records { store: Store::open(StoreConfig::urls([cluster.etcd.url()]))? };
    let shard: ShardKey = format!("{STREAM}/0").parse()?;
    let before = records.assignment(&shard).await?;
    let follower = before.followers.first().cloned().unwrap_or_else(|| unreachable!("three hold"));
    let folder = cluster.shard_folder(follower.as_str(), &shard);
    until("three segments", async || Ok(segments(&folder)?.len() > 2)).await?;
    flip(&segments(&folder)?[0])?;

    until("it halts", async || {
        let report = records.report(&follower, &shard).await?;
        Ok(report.is_some_and(|r| r.halted.is_some())
            || records.assignment(&shard).await?.generation > before.generation)
    })
    .await?;
    until("the set is another one, or made anew", async || {
        let now = records.assignment(&shard).await?;
        let rebuilt = now.generation > before.generation + 2 && now.followers.contains(&follower);
        let replaced = now.voters().all(|b| *b != follower);
        let done = if brokers > 3 { replaced } else { rebuilt };
        Ok(done && now.followers.len() + 1 == FACTOR && !now.is_moving())
    })
    .await?;
    whole(cluster, &witness).await?;
    let after = records.assignment(&shard).await?;
    for voter in &after.followers {
        until("every follower is level and well", async || {
            let report = records.report(voter, &shard).await?;
            Ok(report.is_some_and(|r| r.caught_up && r.halted.is_none()))
        })
        .await?;
    }
    let reading = traffic.finish().await;
    anyhow::ensure!(reading.acknowledged > 0 && reading.faults.is_empty(), "{reading:#?}");
    anyhow::ensure!(witness.breaches().is_empty(), "{:#?}", witness.breaches());
    Ok(())
}

/// The store's records.
struct Records {
    store: Store,
}

impl Records {
    async fn assignment(&self, shard: &ShardKey) -> anyhow::Result<Assignment> {
        let entry = self.store.get(&Keys::default().assignment(shard)).await?;
        let entry = entry.ok_or_else(|| anyhow::anyhow!("{shard} is not placed"))?;
        Ok(decode::<AssignmentRecord>(&entry.key, &entry.value)?.assignment)
    }

    async fn report(
        &self,
        broker: &BrokerId,
        shard: &ShardKey,
    ) -> anyhow::Result<Option<ShardReport>> {
        let entry = self.store.get(&Keys::default().report(broker, shard)).await?;
        let report = entry.map(|e| decode::<ReportRecord>(&e.key, &e.value)).transpose()?;
        Ok(report.map(|record| record.report))
    }
}

async fn until(what: &str, holds: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await? {
        anyhow::ensure!(Instant::now() < deadline, "not so in {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn whole(cluster: &Cluster, witness: &Witness) -> anyhow::Result<()> {
    let live = cluster.live();
    until("the shard is whole", async || Ok(witness.unsettled(1, FACTOR, &live).is_empty())).await
}
