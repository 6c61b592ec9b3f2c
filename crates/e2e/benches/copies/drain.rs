//! A drain beside repairs that never stop: whether it gets on once it has waited a minute.

use std::time::Duration;

use anyhow::Context;
use evenkeel_e2e::bench::figures::{Aim, Figures};
use evenkeel_e2e::bench::growth::Course;
use evenkeel_model::{Assignment, ShardKey, StreamKey};
use evenkeel_proto::admin::DrainBrokerRequest;
use tokio::time::{Instant, sleep};

use crate::Args;
use crate::stage::{ROUND, Stage, ms};

const PART: &str = "drain";
const BROKERS: u32 = 4;

/// What each end gives, MB/s.
const CAP: u64 = 1;

/// From then on a waiting drain has a part of the link.
const WAIT: Duration = Duration::from_secs(60);
const RESTORE_AFTER: Duration = Duration::from_millis(500);

/// Enough shards that some have the members that are looked for.
const SHARDS: u32 = 12;
const POLL: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let mut stage = Stage::start(args, BROKERS, 1, RESTORE_AFTER).await?;
    let measured = measure(args, &mut stage, figures).await;
    stage.explain(measured)
}

async fn measure(args: &Args, stage: &mut Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let seconds = Duration::from_secs(args.seconds);
    let rate = CAP * 1_000_000;
    let repaired = stage.stream("repaired", SHARDS, 3, 0).await?;
    let drained = stage.stream("drained", SHARDS, 2, 0).await?;
    let all = stage.records.assignments()?;
    let of = |stream: &StreamKey| {
        all.iter().filter(|a| a.shard.stream == *stream).cloned().collect::<Vec<_>>()
    };
    let plan = plan(&of(&repaired), &of(&drained), &stage.cluster.brokers())?;
    // Repairs that last longer than the wait and the measurement.
    let bytes = rate * (WAIT + seconds + PATIENCE).as_secs() / plan.repaired.len() as u64;
    stage.fill(&plan.repaired, bytes).await?;
    stage.fill(std::slice::from_ref(&plan.drained), rate * seconds.as_secs()).await?;
    stage.cap(rate).await?;
    let growth = stage.growth(&plan.to, std::slice::from_ref(&plan.drained));
    let repairs = stage.growth(&plan.to, &plan.repaired);
    stage.cluster.kill9(&plan.dead)?;
    let deadline = Instant::now() + PATIENCE;
    while repairs.course(None).last_growth().is_none() {
        anyhow::ensure!(Instant::now() < deadline, "no repair begins");
        sleep(POLL).await;
    }
    let request = DrainBrokerRequest { broker: plan.leaving.clone() };
    stage
        .cluster
        .ask("drain the broker", async |mut admin| {
            admin.drain_broker(request.clone()).await.map(drop)
        })
        .await?;
    let asked = asked(stage, &plan).await?;
    sleep(WAIT + ROUND * 4 + seconds).await;
    let now = Instant::now();
    let share = |course: Course| course.rate(now - seconds, now) / rate as f64 * 100.0;
    let name = format!("of the link, over {} s, after a minute of repairs", args.seconds);
    figures.add(PART, &name, share(growth.course(None)), "%");
    figures.bars(Aim::AtLeast(5.0), Aim::AtLeast(10.0));
    figures.add(PART, "the repairs beside it", share(repairs.course(None)), "%");
    let first = growth.course(None).first_growth(asked);
    let first = first.map_or(f64::NAN, |at| ms(asked, at) / 1000.0);
    figures.add(PART, "asked for to its first byte", first, "s");
    Ok(())
}

/// Who does what.
struct Plan {
    /// Killed: it held the shards that are repaired.
    dead: String,
    /// Drained: it holds them too, and the shard that it is to give.
    leaving: String,
    /// The only one that may take any of them.
    to: String,
    repaired: Vec<ShardKey>,
    drained: ShardKey,
}

/// Three brokers that hold shards together, of which two hold one alone.
fn plan(
    repaired: &[Assignment],
    drained: &[Assignment],
    brokers: &[String],
) -> anyhow::Result<Plan> {
    let members = |a: &Assignment| -> Vec<String> { a.voters().map(ToString::to_string).collect() };
    for to in brokers {
        let without: Vec<ShardKey> =
            repaired.iter().filter(|a| !members(a).contains(to)).map(|a| a.shard.clone()).collect();
        let pair = drained.iter().find(|a| !members(a).contains(to));
        if let (false, Some(pair)) = (without.is_empty(), pair) {
            let pair_members = members(pair);
            let dead = brokers.iter().find(|b| *b != to && !pair_members.contains(b));
            return Ok(Plan {
                dead: dead.context("there is no third holder")?.clone(),
                leaving: pair_members[0].clone(),
                to: to.clone(),
                repaired: without,
                drained: pair.shard.clone(),
            });
        }
    }
    anyhow::bail!("no shards are placed so that a drain and repairs need the same broker")
}

/// When the copy of the drain was asked for.
async fn asked(stage: &Stage, plan: &Plan) -> anyhow::Result<Instant> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let assignment = stage.records.assignment(&plan.drained)?;
        let to = assignment.joining.as_ref().or(assignment.successor.as_ref());
        if to.is_some_and(|to| to.as_str() == plan.to) {
            return Ok(Instant::now());
        }
        anyhow::ensure!(Instant::now() < deadline, "no copy of the drained shard is asked for");
        sleep(POLL).await;
    }
}
