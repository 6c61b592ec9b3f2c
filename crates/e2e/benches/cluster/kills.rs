//! A broker that leads hundreds of shards is killed without warning: how long until all of them
//! are led again, beyond the life of its lease. Weights give it nearly all leaders.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context;
use evenkeel_coordination::{Change, Entry};
use evenkeel_e2e::{Cluster, Flags, LEASE_TTL_MS, Size};
use evenkeel_model::{
    AssignmentRecord, BrokerId, Generation, Phase, ReportRecord, ShardKey, decode,
};
use evenkeel_proto::admin::Stream;
use evenkeel_testkit::EtcdVersion;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::{Args, FACTOR, STREAM};
use evenkeel_e2e::bench::figures::{Aim, Figures, Sample};
use evenkeel_e2e::bench::records::Records;

const PART: &str = "kill -9";
const SIZE: Size = Size { load_managers: 1, migrators: 1, brokers: 3 };
const PATIENCE: Duration = Duration::from_secs(30);
const VICTIM: &str = "b1";

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let mut shards = Sample::default();
    let [mut beyond, mut lease, mut noticed, mut assigned, mut served] =
        std::array::from_fn(|_| Sample::default());
    let ms = |span: Duration| span.as_secs_f64() * 1000.0;
    for _ in 0..args.kills {
        let kill = one_kill(args).await?;
        shards.add(kill.shards as f64);
        beyond.add(ms(kill.all_served) - LEASE_TTL_MS as f64);
        lease.add(ms(kill.lease_gone));
        noticed.add(ms(kill.first_assigned) - ms(kill.lease_gone));
        assigned.add(ms(kill.last_assigned) - ms(kill.first_assigned));
        served.add(ms(kill.all_served) - ms(kill.last_assigned));
    }
    figures.add(PART, "kills measured", beyond.len() as f64, "");
    figures.add(PART, "shards led by the killed broker, median", shards.quantile(0.5), "");
    figures.add(
        PART,
        "kill to all led again, beyond the lease, median",
        beyond.quantile(0.5),
        "ms",
    );
    figures.aim(Aim::AtMost(1000.0));
    figures.add(PART, "the same, longest", beyond.quantile(1.0), "ms");
    figures.aim(Aim::AtMost(1000.0));
    figures.add(PART, "kill to etcd's end of the lease (2 s), median", lease.quantile(0.5), "ms");
    figures.add(PART, "from there to the first new leader, median", noticed.quantile(0.5), "ms");
    figures.add(PART, "from there to the last new leader, median", assigned.quantile(0.5), "ms");
    figures.add(PART, "from there to all serving, median", served.quantile(0.5), "ms");
    Ok(())
}

/// What was seen of one kill; times from it on.
struct Kill {
    shards: usize,
    lease_gone: Duration,
    first_assigned: Duration,
    last_assigned: Duration,
    all_served: Duration,
}

async fn one_kill(args: &Args) -> anyhow::Result<Kill> {
    let weight = |broker: &str| if broker == VICTIM { 1000 } else { 1 };
    let flags: Flags =
        ["b1", "b2", "b3"].map(|b| (b.to_owned(), vec![format!("--weight={}", weight(b))])).into();
    let mut cluster = Cluster::start_with(&args.program, EtcdVersion::V3_4, SIZE, flags).await?;
    let killed = kill(args, &mut cluster).await;
    killed.with_context(|| cluster.logs())
}

async fn kill(args: &Args, cluster: &mut Cluster) -> anyhow::Result<Kill> {
    cluster
        .set_policy(&json!({
            "capacity_weighted": true, "broker_expiry_ms": LEASE_TTL_MS,
            "rebalancing": { "leaders": false },
        }))
        .await?;
    let records = Records::watch(cluster).await?;
    let stream = Stream {
        stream: STREAM.to_owned(),
        // The two others get at most one each by their weight.
        shards: args.led + 2,
        replication_factor: FACTOR,
        durable: true,
        ..Stream::default()
    };
    records.stream_served(cluster, stream, SIZE.brokers).await?;
    let victim: BrokerId = VICTIM.parse()?;
    let assignments = records.assignments()?.into_iter();
    let led: BTreeSet<ShardKey> =
        assignments.filter(|a| a.leader.as_ref() == Some(&victim)).map(|a| a.shard).collect();
    let enough = led.len() >= args.led as usize;
    anyhow::ensure!(enough, "{VICTIM} leads {} shards instead of {}", led.len(), args.led);
    let mut events = records.view.events();
    let mut watch = Takeover::new(&records, victim, led);
    let began = Instant::now();
    cluster.kill9(VICTIM)?;
    let over = async {
        while let Some(change) = events.recv().await {
            if let Some(kill) = watch.take(&change, began)? {
                return Ok(kill);
            }
        }
        anyhow::bail!("the view ended")
    };
    let all = timeout(PATIENCE, over).await;
    all.with_context(|| format!("{} shards are not led after {PATIENCE:?}", watch.left.len()))?
}

/// Follows the shards of the killed broker to their next leaders.
struct Takeover<'a> {
    records: &'a Records,
    victim: BrokerId,
    shards: usize,
    left: BTreeSet<ShardKey>,
    leaders: BTreeMap<ShardKey, (BrokerId, Generation)>,
    lease_gone: Option<Duration>,
    first_assigned: Option<Duration>,
    last_assigned: Duration,
}

impl<'a> Takeover<'a> {
    fn new(records: &'a Records, victim: BrokerId, led: BTreeSet<ShardKey>) -> Self {
        Self {
            records,
            victim,
            shards: led.len(),
            left: led,
            leaders: BTreeMap::new(),
            lease_gone: None,
            first_assigned: None,
            last_assigned: Duration::ZERO,
        }
    }

    fn take(&mut self, change: &Change, began: Instant) -> anyhow::Result<Option<Kill>> {
        match change {
            Change::Delete { key, .. } => {
                if *key == self.records.keys.registration(&self.victim) {
                    self.lease_gone = Some(began.elapsed());
                }
            }
            Change::Put(entry) if entry.key.starts_with(&self.records.keys.assignments()) => {
                self.assigned(entry, began)?;
            }
            Change::Put(entry) if entry.key.starts_with(&self.records.keys.reports()) => {
                self.reported(entry)?;
            }
            Change::Put(_) | Change::Reset => {}
        }
        if !self.left.is_empty() {
            return Ok(None);
        }
        Ok(Some(Kill {
            shards: self.shards,
            lease_gone: self.lease_gone.context("the lease is still there")?,
            first_assigned: self.first_assigned.unwrap_or_default(),
            last_assigned: self.last_assigned,
            all_served: began.elapsed(),
        }))
    }

    fn assigned(&mut self, entry: &Entry, began: Instant) -> anyhow::Result<()> {
        let record: AssignmentRecord = decode(&entry.key, &entry.value)?;
        let assignment = record.assignment;
        let Some(leader) = assignment.leader.filter(|b| *b != self.victim) else { return Ok(()) };
        if self.left.contains(&assignment.shard) && !self.leaders.contains_key(&assignment.shard) {
            self.leaders.insert(assignment.shard, (leader, assignment.generation));
            self.first_assigned.get_or_insert(began.elapsed());
            self.last_assigned = began.elapsed();
        }
        Ok(())
    }

    fn reported(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let record: ReportRecord = decode(&entry.key, &entry.value)?;
        let report = record.report;
        let Some((leader, generation)) = self.leaders.get(&report.shard) else { return Ok(()) };
        if report.broker == *leader
            && report.generation >= *generation
            && report.phase == Some(Phase::Serving)
        {
            self.left.remove(&report.shard);
        }
        Ok(())
    }
}
