//! Moves by an operator, one at a time, under load: how long the shard stands still.
//!
//! The window is taken from the stored records: from the moment the load manager fences to the
//! moment the new leader writes that it serves. Both stamps come from clocks of this machine, and
//! both writes to etcd lie inside. The stall is what a publisher to the shard feels.

use std::time::Duration;

use anyhow::Context;
use evenkeel_client::Client;
use evenkeel_coordination::{Change, Entry};
use evenkeel_e2e::Cluster;
use evenkeel_model::{
    AssignmentRecord, BrokerId, Millis, Phase, ReportRecord, ShardKey, ShardState, decode,
};
use evenkeel_proto::admin::StartMoveRequest;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::{Args, SHARDS, stream_key};
use evenkeel_e2e::bench::figures::{Aim, Figures, Sample};
use evenkeel_e2e::bench::publishers::{Work, open_loop, producer};
use evenkeel_e2e::bench::records::Records;

const PART: &str = "moves";
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// The load beside the moves: 200 small records and 20 batches of 64 KiB a second.
const RECORDS_DISTANCE: Duration = Duration::from_millis(5);
const BATCHES_DISTANCE: Duration = Duration::from_millis(50);

pub(crate) async fn run(
    args: &Args,
    cluster: &Cluster,
    client: &Client,
    records: &Records,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let batches = Work { stream: stream_key()?, shards: SHARDS, records: 64, record_bytes: 1024 };
    let single = Work { records: 1, record_bytes: 100, ..batches.clone() };
    let (stop, stopped) = watch::channel(false);
    let moving = async {
        let moved = moves(args, cluster, client, records).await;
        let _ = stop.send(true);
        moved
    };
    let (moved, small, large) = tokio::join!(
        moving,
        open_loop(client, &single, RECORDS_DISTANCE, &stopped),
        open_loop(client, &batches, BATCHES_DISTANCE, &stopped),
    );
    let moved = moved?;
    small.check()?;
    large.check()?;
    moved.report(figures);
    Ok(())
}

/// What was measured of all moves.
#[derive(Default)]
struct Moved {
    window: Sample,
    draining: Sample,
    cutting: Sample,
    opening: Sample,
    stall: Sample,
    calm: Sample,
}

impl Moved {
    fn report(&self, figures: &mut Figures) {
        figures.add(PART, "moves measured", self.window.len() as f64, "");
        figures.spread(PART, "fence to serving", &self.window, Some(Aim::AtMost(50.0)));
        figures.spread(PART, "of that, fence to drained", &self.draining, None);
        figures.spread(PART, "of that, drained to cut-over", &self.cutting, None);
        figures.spread(PART, "of that, cut-over to serving", &self.opening, None);
        figures.spread(PART, "longest publish to the shard meanwhile", &self.stall, None);
        figures.add(PART, "median publish to the shard meanwhile", self.calm.quantile(0.5), "ms");
    }
}

async fn moves(
    args: &Args,
    cluster: &Cluster,
    client: &Client,
    records: &Records,
) -> anyhow::Result<Moved> {
    let stream = stream_key()?;
    let brokers: Vec<BrokerId> =
        cluster.brokers().iter().map(|b| b.parse()).collect::<Result<_, _>>()?;
    let mut moved = Moved::default();
    for number in 0..args.moves {
        let shard = stream.shard(number % SHARDS);
        let (stop, stopped) = watch::channel(false);
        let probe = probe(client, &shard, &stopped);
        let one = async {
            let times = one_move(cluster, records, &shard, &brokers, number as usize).await;
            let _ = stop.send(true);
            times
        };
        let (times, probed) = tokio::join!(one, probe);
        let times = times.with_context(|| format!("move {number}, of {shard}"))?;
        let sample = probed?;
        moved.window.add((times.serving - times.fenced) as f64);
        moved.draining.add((times.drained - times.fenced) as f64);
        moved.cutting.add((times.cut_over - times.drained) as f64);
        moved.opening.add((times.serving - times.cut_over) as f64);
        moved.stall.add(sample.quantile(1.0));
        moved.calm.add(sample.quantile(0.5));
    }
    Ok(moved)
}

/// One record after the other to one shard.
async fn probe(
    client: &Client,
    shard: &ShardKey,
    stop: &watch::Receiver<bool>,
) -> anyhow::Result<Sample> {
    let producer = producer(client, &shard.stream);
    let mut latencies = Vec::new();
    while !*stop.borrow() {
        let began = Instant::now();
        producer.publish(shard.number, vec!["probe".into()]).await?;
        latencies.push(began.elapsed());
    }
    Ok(latencies.into_iter().collect())
}

/// The stations of one move.
struct Times {
    fenced: Millis,
    drained: Millis,
    cut_over: Millis,
    serving: Millis,
}

async fn one_move(
    cluster: &Cluster,
    records: &Records,
    shard: &ShardKey,
    brokers: &[BrokerId],
    number: usize,
) -> anyhow::Result<Times> {
    let deadline = Instant::now() + PATIENCE;
    let mut refused = 0;
    loop {
        let leader = records.assignment(shard)?.leader.context("the shard has no leader")?;
        let others: Vec<&BrokerId> = brokers.iter().filter(|b| **b != leader).collect();
        // Each destination in turn, and another one if this one is refused.
        let to = others[(number + refused) % others.len()];
        let mut events = records.view.events();
        let request = StartMoveRequest {
            shard: shard.to_string(),
            to_broker: to.to_string(),
            validate_only: false,
        };
        match cluster.admin().await?.start_move(request).await {
            Ok(_) => {
                let mut course = Course::new(records, shard, &leader, to);
                let over = async {
                    while let Some(change) = events.recv().await {
                        if let Change::Put(entry) = change
                            && let Some(times) = course.take(&entry)?
                        {
                            return Ok(times);
                        }
                    }
                    anyhow::bail!("the view ended")
                };
                return timeout(PATIENCE, over).await.context("the move does not end")?;
            }
            Err(status) => {
                anyhow::ensure!(Instant::now() < deadline, "no broker can take it: {status}");
                refused += 1;
                sleep(POLL).await;
            }
        }
    }
}

/// Puts a move's stations together from records as they are written.
struct Course {
    assignment: String,
    report_of_old: String,
    report_of_new: String,
    to: BrokerId,
    fenced: Option<Millis>,
    drained: Option<Millis>,
    cut_over: Option<(Millis, u64)>,
}

impl Course {
    fn new(records: &Records, shard: &ShardKey, from: &BrokerId, to: &BrokerId) -> Self {
        Self {
            assignment: records.keys.assignment(shard),
            report_of_old: records.keys.report(from, shard),
            report_of_new: records.keys.report(to, shard),
            to: to.clone(),
            fenced: None,
            drained: None,
            cut_over: None,
        }
    }

    fn take(&mut self, entry: &Entry) -> anyhow::Result<Option<Times>> {
        if entry.key == self.assignment {
            let record: AssignmentRecord = decode(&entry.key, &entry.value)?;
            let assignment = record.assignment;
            let fenced = assignment.move_.as_ref().and_then(|m| m.fenced_at_ms);
            if assignment.state == ShardState::Draining && fenced.is_some() {
                self.fenced = fenced;
            }
            if assignment.leader.as_ref() == Some(&self.to) && self.cut_over.is_none() {
                self.cut_over = Some((record.written_at_ms, assignment.generation));
            }
        } else if entry.key == self.report_of_old || entry.key == self.report_of_new {
            let record: ReportRecord = decode(&entry.key, &entry.value)?;
            let report = record.report;
            if entry.key == self.report_of_old {
                if report.drained && self.drained.is_none() {
                    self.drained = Some(record.at_ms);
                }
            } else if let Some((cut_over, generation)) = self.cut_over
                && report.phase == Some(Phase::Serving)
                && report.generation >= generation
            {
                let fenced = self.fenced.context("it was cut over without a fence")?;
                let drained = self.drained.unwrap_or(cut_over);
                return Ok(Some(Times { fenced, drained, cut_over, serving: record.at_ms }));
            }
        }
        Ok(None)
    }
}
