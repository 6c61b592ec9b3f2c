//! A broker dies at most of what the cluster can do, under clients that retry: how much of what is
//! asked for is still done, and whether balance moves are piled on the repair.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_e2e::bench::figures::{Aim, Figures};
use evenkeel_e2e::bench::publishers::{Outcome, Work, closed_loop, for_a_while, open_loop};
use evenkeel_model::{BrokerId, MoveReason, ShardKey};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::Args;
use crate::readback::lost;
use crate::stage::{Stage, p99, rests};

const PART: &str = "storm";
const BROKERS: u32 = 6;
const SHARDS: u32 = 16;
const FACTOR: u32 = 3;
const VICTIM: &str = "b6";

const FLAT_OUT: Duration = Duration::from_secs(4);
const PRODUCERS: u32 = 256;
/// Of the maximum, what is asked for.
const LOAD: f64 = 0.8;

const BEFORE: Duration = Duration::from_secs(5);
/// Copies begin while the new leaders still take over.
const RESTORE_AFTER: Duration = Duration::from_millis(500);

/// An answer that comes later is of no use to who asked.
const IN_TIME: Duration = Duration::from_secs(5);

const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let mut stage = Stage::start(args, BROKERS, 1, RESTORE_AFTER).await?;
    let measured = measure(args, &mut stage, figures).await;
    stage.explain(measured)
}

async fn measure(args: &Args, stage: &mut Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let bytes = (args.repair_mib << 20) / 2;
    let stream = stage.stream("storm", SHARDS, FACTOR, bytes).await?;
    let work = Work { stream: stream.clone(), shards: SHARDS, records: 1, record_bytes: 1 << 10 };
    let client = stage.client.clone();
    let flat_out =
        async |stop: &watch::Receiver<bool>| closed_loop(&client, &work, PRODUCERS, stop).await;
    let (most, took) = for_a_while(FLAT_OUT, flat_out).await;
    most.check()?;
    let most = most.acknowledged.len() as f64 / took.as_secs_f64();
    // Balance is wanted now, and is to wait all the same.
    stage.cluster.set_policy(&json!({ "rebalancing": { "leaders": true } })).await?;
    let distance = Duration::from_secs_f64(1.0 / (most * LOAD));
    let quiet = Duration::from_secs(args.quiet / 2);
    let (stop, stopped) = watch::channel(false);
    let story = async {
        let story = story(stage, quiet).await;
        let _ = stop.send(true);
        story
    };
    let (story, asked) = tokio::join!(story, open_loop(&client, &work, distance, &stopped));
    let story = story?;
    story.report(figures, &asked, most * LOAD);
    let lost = lost(stage, &stream, &asked).await?;
    figures.add(PART, "acknowledged records not read back as they were", lost as f64, "");
    figures.aim(Aim::AtMost(0.0));
    Ok(())
}

/// What happened when.
struct Story {
    killed: Instant,
    /// The last copy was level and its shard whole.
    whole: Instant,
    ended: Instant,
    /// Balance moves that began in between.
    balanced: BTreeSet<ShardKey>,
}

async fn story(stage: &mut Stage, quiet: Duration) -> anyhow::Result<Story> {
    sleep(BEFORE).await;
    let victim: BrokerId = VICTIM.parse()?;
    let killed = Instant::now();
    stage.cluster.kill9(VICTIM)?;
    let mut balanced = BTreeSet::new();
    loop {
        let all = stage.records.assignments()?;
        let moves = all.iter().filter(|a| {
            let reason = a.move_.as_ref().map(|m| m.reason);
            use MoveReason::{Load, StreamBalance, TotalBalance};
            matches!(reason, Some(Load | StreamBalance | TotalBalance))
        });
        let hurt = all
            .iter()
            .any(|a| a.role_of(&victim).is_some() || a.voters().count() < FACTOR as usize);
        if !hurt && all.iter().all(rests) {
            break;
        }
        if hurt {
            balanced.extend(moves.map(|a| a.shard.clone()));
        }
        anyhow::ensure!(killed.elapsed() < PATIENCE, "the repair does not end");
        sleep(LOOK).await;
    }
    let whole = Instant::now();
    sleep(quiet).await;
    Ok(Story { killed, whole, ended: Instant::now(), balanced })
}

impl Story {
    fn report(&self, figures: &mut Figures, asked: &Outcome, rate: f64) {
        let in_time = |from: Instant, to: Instant| {
            let all = asked.acknowledged.iter();
            let good = all.filter(|b| b.due >= from && b.due < to && b.took <= IN_TIME);
            good.count() as f64 / (rate * (to - from).as_secs_f64()) * 100.0
        };
        let after = asked.acknowledged.iter().filter(|b| b.due >= self.whole);
        figures.add(PART, "asked for, 80 % of the maximum", rate, "1/s");
        let name = "kill to the end: acknowledged within 5 s, of what was asked for";
        figures.add(PART, name, in_time(self.killed, self.ended), "%");
        figures.bars(Aim::AtLeast(80.0), Aim::AtLeast(90.0));
        let whole = (self.whole - self.killed).as_secs_f64();
        figures.add(PART, "kill to all shards whole", whole, "s");
        let name = "after that: acknowledged within 5 s, of what was asked for";
        figures.add(PART, name, in_time(self.whole, self.ended), "%");
        let after = p99(&after.map(|batch| batch.took).collect());
        figures.add(PART, "after that: p99 of a record", after, "ms");
        figures.add(PART, "balance moves until then", self.balanced.len() as f64, "");
        figures.aim(Aim::AtMost(0.0));
        figures.add(PART, "records given up by the client", asked.failures.len() as f64, "");
    }
}
