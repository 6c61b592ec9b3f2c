//! Three equal balance copies fill the links of two brokers; then one of them is the last to hold a
//! shard whose copy must go the same way. How evenly the three share before, and how soon the
//! repair has the link.

use std::time::Duration;

use anyhow::Context;
use evenkeel_e2e::bench::figures::{Aim, Figures, Sample};
use evenkeel_model::{BrokerId, ShardKey, StreamKey};
use tokio::time::{Instant, sleep};

use crate::Args;
use crate::stage::{ROUND, Stage, fairness, ms, rests};

const PART: &str = "classes";
const BROKERS: [&str; 3] = ["b1", "b2", "b3"];
const COPIES: u32 = 3;

/// What both ends give, MB/s: below what the agents' own law allows, so that it does not change.
const CAP: u64 = 4;

/// A rate is looked at over two rounds of grants: over part of one it is none or double.
const WINDOW: Duration = Duration::from_millis(500);

/// A lost replica is replaced at once.
const RESTORE_AFTER: Duration = Duration::from_millis(1);

const POLL: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let mut stage = Stage::start(args, BROKERS.len() as u32, 1, RESTORE_AFTER).await?;
    let measured = measure(args, &mut stage, figures).await;
    stage.explain(measured)
}

async fn measure(args: &Args, stage: &mut Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let seconds = Duration::from_secs(args.seconds);
    let rate = CAP * 1_000_000;
    let repaired = stage.stream("repaired", 1, 2, 4 * rate).await?.shard(0);
    let assignment = stage.records.assignment(&repaired)?;
    let source = assignment.leader.context("the shard has no leader")?;
    let victim = assignment.followers.into_iter().next().context("the shard has no follower")?;
    let third = BROKERS.into_iter().find(|b| *b != source.as_str() && *b != victim.as_str());
    let to = third.context("there is no third broker")?;
    // Enough to outlast the measurement of fairness, the victim's lease and the repair.
    let bytes = rate * (args.seconds + 15) / u64::from(COPIES);
    let balanced = balanced(stage, source.as_str(), bytes).await?;
    stage.cap(rate).await?;
    let growth = stage.growth(to, &balanced);
    let repair = stage.growth(to, std::slice::from_ref(&repaired));
    for shard in &balanced {
        stage.move_shard(shard, to).await?;
    }
    for shard in &balanced {
        stage.arrived(to, shard, 1 << 16).await?;
    }
    let from = Instant::now() + ROUND;
    sleep(seconds + ROUND).await;
    let shares: Vec<f64> =
        (0..balanced.len()).map(|n| growth.course(Some(n)).rate(from, from + seconds)).collect();
    let name = format!("{COPIES} equal copies over {} s: Jain's index", args.seconds);
    figures.add(PART, &name, fairness(&shares), "");
    figures.bars(Aim::AtLeast(0.9), Aim::AtLeast(0.98));
    let used = shares.iter().sum::<f64>() / rate as f64;
    figures.add(PART, "of the cap that they used together", used * 100.0, "%");

    stage.cluster.kill9(victim.as_str())?;
    let queued = queued(stage, &repaired).await?;
    whole(stage, &repaired, &victim).await?;
    sleep(WINDOW).await;
    let course = repair.course(None);
    let first = course.first_growth(queued).context("the repair copied nothing")?;
    figures.add(PART, "repair asked for, to its first byte", ms(queued, first), "ms");
    figures.bars(Aim::AtMost(1000.0), Aim::AtMost(300.0));
    let full = course.first_window(queued, WINDOW, |found| found >= 0.9 * rate as f64);
    let full = full.map_or(f64::NAN, |at| ms(queued, at));
    figures.add(PART, "to at least 90 % of the cap over 500 ms", full, "ms");
    figures.bars(Aim::AtMost(2000.0), Aim::AtMost(750.0));
    let end = course.last_growth().context("the repair copied nothing")?;
    let beside = growth.course(None).rate(first, end) / rate as f64;
    figures.add(PART, "of the cap that the others had meanwhile", beside * 100.0, "%");
    let left: Sample = balanced
        .iter()
        .enumerate()
        .map(|(n, _)| bytes as f64 - growth.course(Some(n)).at(queued))
        .collect();
    let enough = left.quantile(1.0) > 0.0;
    anyhow::ensure!(enough, "the balance copies were over before the repair was asked for");
    Ok(())
}

/// So many shards with one replica, at this broker.
async fn balanced(stage: &Stage, at: &str, bytes: u64) -> anyhow::Result<Vec<ShardKey>> {
    let stream: StreamKey = stage.stream("balanced", COPIES, 1, 0).await?;
    let shards: Vec<ShardKey> = (0..COPIES).map(|number| stream.shard(number)).collect();
    for shard in &shards {
        let leader = stage.records.assignment(shard)?.leader;
        if leader.is_none_or(|leader| leader.as_str() != at) {
            stage.move_shard(shard, at).await?;
            stage.moved(shard, at).await?;
        }
    }
    stage.fill(&shards, bytes).await?;
    Ok(shards)
}

/// When the copy was asked for.
async fn queued(stage: &Stage, shard: &ShardKey) -> anyhow::Result<Instant> {
    let deadline = Instant::now() + PATIENCE;
    while stage.records.assignment(shard)?.joining.is_none() {
        anyhow::ensure!(Instant::now() < deadline, "no copy of {shard} is asked for");
        sleep(POLL).await;
    }
    Ok(Instant::now())
}

async fn whole(stage: &Stage, shard: &ShardKey, victim: &BrokerId) -> anyhow::Result<()> {
    stage
        .until(&format!("{shard} is whole"), |assignments| {
            let shard = assignments.iter().find(|a| a.shard == *shard);
            shard
                .is_some_and(|a| rests(a) && a.voters().count() == 2 && a.role_of(victim).is_none())
        })
        .await
}
