//! A shard of one copy is cut over to a broker whose disk was damaged after it was fenced. It goes
//! back to the broker that had it, without anybody's help, and nothing is lost.

use std::time::Duration;

use evenkeel_coordination::{Guarded, Outcome, Store, StoreConfig, Write};
use evenkeel_e2e::damage::{flip, segments};
use evenkeel_e2e::{Cluster, Size};
use evenkeel_model::keys::Keys;
use evenkeel_model::{
    Assignment, AssignmentRecord, BrokerId, BrokerShard, Move, MoveReason, ReportRecord, ShardKey,
    ShardReport, ShardState, decode, encode,
};
use evenkeel_proto::admin::Stream;
use evenkeel_simulator::traffic::{Traffic, TrafficPlan};
use evenkeel_testkit::EtcdVersion;
use serde_json::json;
use tokio::time::{Instant, sleep};

const PROGRAM: &str = env!("CARGO_BIN_EXE_evenkeel-under-test");
const STREAM: &str = "stream/e2e/handed-back";
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_goes_back_when_its_new_leader_is_damaged_before_it_serves() {
    let size = Size { load_managers: 1, migrators: 1, brokers: 2 };
    let soon = || vec!["--set=leftover_erase_after_ms=1000".to_owned()];
    let flags = ["b1", "b2"].map(|broker| (broker.to_owned(), soon()));
    let started = Cluster::start_with(PROGRAM, EtcdVersion::V3_4, size, flags.into()).await;
    let mut cluster = started.unwrap();
    if let Err(error) = story(&mut cluster).await {
        panic!("{error:#}\n{}", cluster.logs());
    }
}

async fn story(cluster: &mut Cluster) -> anyhow::Result<()> {
    let policy = json!({
        "broker_expiry_ms": 2000, "settle_ms": 1500, "reconcile_interval_ms": 300,
        "disk_full_percent": 0,
    });
    cluster.set_policy(&policy).await?;
    let stream = Stream {
        stream: STREAM.to_owned(),
        shards: 1,
        replication_factor: 1,
        durable: true,
        ..Stream::default()
    };
    cluster.create_stream(stream).await?;
    let records = Records {
        store: Store::open(StoreConfig::urls([cluster.etcd.url()]))?,
        shard: format!("{STREAM}/0").parse()?,
    };
    until("it is placed", async || Ok(records.assignment().await.is_ok())).await?;
    let plan = TrafficPlan {
        bootstrap: cluster.broker_addresses(),
        streams: vec![STREAM.parse()?],
        shards: 1,
        producers: 4,
        pause: Duration::from_millis(2),
        seed: 7,
    };
    let traffic = Traffic::start(&cluster.network, &plan)?;
    sleep(Duration::from_secs(2)).await;

    cluster.kill9("lm1")?;
    let mut step = records.assignment().await?;
    let former = step.leader.clone().unwrap_or_else(|| unreachable!("it is led"));
    let next: BrokerId = if former.as_str() == "b1" { "b2" } else { "b1" }.parse()?;
    fence(&records, &mut step, &next).await?;
    let fenced = step.generation;

    // It is damaged, and cut over to by a load manager that has not heard of it.
    cluster.kill9(next.as_str())?;
    let segments = segments(&cluster.shard_folder(next.as_str(), &records.shard))?;
    flip(segments.last().ok_or_else(|| anyhow::anyhow!("it has no segment"))?)?;
    (step.generation, step.state) = (fenced + 1, ShardState::Assigning);
    (step.leader, step.successor, step.move_) = (Some(next.clone()), None, None);
    records.write(&step).await?;
    cluster.start_process(next.as_str())?;
    until("it declines", async || {
        let report = records.report(&next).await?;
        Ok(report.is_some_and(|r| r.generation == fenced + 1 && r.declined))
    })
    .await?;
    let kept = cluster.shard_folder(former.as_str(), &records.shard);
    sleep(Duration::from_secs(5)).await;
    anyhow::ensure!(kept.exists(), "the last good copy is erased");

    cluster.start_process("lm1")?;
    until("it goes back", async || {
        let now = records.assignment().await?;
        Ok(now.leader.as_ref() == Some(&former) && now.generation > fenced + 1)
    })
    .await?;
    let left = cluster.shard_folder(next.as_str(), &records.shard);
    until("what was damaged is erased", async || Ok(!left.exists())).await?;
    let reading = traffic.finish().await;
    anyhow::ensure!(reading.acknowledged > 0 && reading.faults.is_empty(), "{reading:#?}");
    Ok(())
}

/// Takes the steps of a move, by hand, up to where `next` holds everything and its leader drained.
async fn fence(records: &Records, step: &mut Assignment, next: &BrokerId) -> anyhow::Result<()> {
    step.successor = Some(next.clone());
    step.move_ = Some(Move {
        reason: MoveReason::Operator,
        started_at_ms: 1,
        fenced_at_ms: None,
        progress_at_ms: None,
        give_ups: 0,
        next_try_ms: None,
    });
    for state in [ShardState::Active, ShardState::Draining] {
        (step.generation, step.state) = (step.generation + 1, state);
        records.write(step).await?;
        until("the destination is level", async || {
            Ok(records.report(next).await?.is_some_and(|r| {
                r.generation == step.generation && r.caught_up && r.halted.is_none()
            }))
        })
        .await?;
    }
    let leader = step.leader.clone().unwrap_or_else(|| unreachable!("it is led"));
    until("the leader drained", async || {
        let report = records.report(&leader).await?;
        Ok(report.is_some_and(|r| r.generation == step.generation && r.drained))
    })
    .await
}

/// The store's records of the shard.
struct Records {
    store: Store,
    shard: ShardKey,
}

impl Records {
    async fn record(&self) -> anyhow::Result<AssignmentRecord> {
        let entry = self.store.get(&Keys::default().assignment(&self.shard)).await?;
        let entry = entry.ok_or_else(|| anyhow::anyhow!("{} is not placed", self.shard))?;
        Ok(decode::<AssignmentRecord>(&entry.key, &entry.value)?)
    }

    async fn assignment(&self) -> anyhow::Result<Assignment> {
        Ok(self.record().await?.assignment)
    }

    async fn report(&self, broker: &BrokerId) -> anyhow::Result<Option<ShardReport>> {
        let entry = self.store.get(&Keys::default().report(broker, &self.shard)).await?;
        let report = entry.map(|e| decode::<ReportRecord>(&e.key, &e.value)).transpose()?;
        Ok(report.map(|record| record.report))
    }

    /// Writes an assignment as a load manager does, for itself and for every member.
    async fn write(&self, assignment: &Assignment) -> anyhow::Result<()> {
        let (keys, shard) = (Keys::default(), &self.shard);
        let before = self.record().await?;
        let mut writes = Vec::new();
        for (broker, _) in before.assignment.members() {
            if assignment.role_of(broker).is_none() {
                writes.push(Write::Delete { key: keys.broker_shard(broker, shard) });
            }
        }
        let put = |key, value| Write::Put { key, value, lease: None };
        for (broker, role) in assignment.members() {
            let told =
                BrokerShard { v: 1, role, assignment: assignment.clone(), token: before.token };
            writes.push(put(keys.broker_shard(broker, shard), encode(&told)));
        }
        let operation = format!("by-hand-{}", assignment.generation);
        let record = AssignmentRecord { assignment: assignment.clone(), operation, ..before };
        writes.push(put(keys.assignment(shard), encode(&record)));
        let guarded = Guarded { token: None, guards: Vec::new(), writes };
        let outcome = self.store.commit(guarded).await;
        anyhow::ensure!(matches!(outcome, Outcome::Written { .. }), "{outcome:?}");
        Ok(())
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
