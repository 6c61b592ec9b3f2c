//! The active migrator is killed while copies run: how long nothing arrives, until the next one
//! grants bytes again.

use std::time::Duration;

use anyhow::Context;
use evenkeel_e2e::LEASE_TTL_MS;
use evenkeel_e2e::bench::figures::{Aim, Figures, Sample};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep};

use crate::Args;
use crate::stage::{ROUND, Stage, ms};

const PART: &str = "takeover";

/// What both ends give, MB/s.
const CAP: u64 = 4;

/// Longest gap that is waited for.
const GAP: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let mut stage = Stage::start(args, 2, 2, Duration::from_secs(60)).await?;
    let measured = measure(args, &mut stage, figures).await;
    stage.explain(measured)
}

async fn measure(args: &Args, stage: &mut Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(args.seed);
    let kills = args.kills.clamp(1, 3);
    // Some four seconds of bytes around each kill, and what is left over for long gaps.
    let bytes = CAP * 1_000_000 * u64::from(kills + 1) * 5;
    let shard = stage.stream("takeover", 1, 1, bytes).await?.shard(0);
    let at_first = stage.led(&shard.stream, "b1")?.is_empty();
    let to = if at_first { "b1" } else { "b2" };
    stage.cap(CAP * 1_000_000).await?;
    let growth = stage.growth(to, std::slice::from_ref(&shard));
    stage.move_shard(&shard, to).await?;
    stage.arrived(to, &shard, 1 << 20).await?;
    let (mut gaps, mut elected) = (Sample::default(), Sample::default());
    for _ in 0..kills {
        sleep(Duration::from_millis(rng.random_range(1000..1500))).await;
        let active = stage.cluster.leading_migrator().await?.context("no migrator is elected")?;
        let killed = Instant::now();
        stage.cluster.kill9(&active)?;
        while stage.cluster.leading_migrator().await?.is_none_or(|now| now == active) {
            anyhow::ensure!(killed.elapsed() < GAP, "no other migrator is elected");
            sleep(POLL).await;
        }
        elected.add(ms(killed, Instant::now()));
        // The grants of the dead one are used up or expired by now.
        let stopped = killed + 4 * ROUND;
        let deadline = killed + GAP;
        let resumed = loop {
            if let Some(at) = growth.course(None).first_growth(stopped) {
                break at;
            }
            anyhow::ensure!(Instant::now() < deadline, "nothing arrives after the take-over");
            sleep(POLL).await;
        };
        let gap = growth.course(None).longest_pause(killed, resumed);
        gaps.add(gap.as_secs_f64() * 1000.0);
        stage.cluster.start_process(&active)?;
    }
    let name = format!("gap of bytes, lease of {LEASE_TTL_MS} ms, {kills} kills");
    figures.median(PART, &name, &gaps, "ms");
    let must = LEASE_TTL_MS as f64 + 2.0 * ms_of(ROUND);
    figures.bars(Aim::AtMost(must), Aim::AtMost(2000.0));
    figures.median(PART, "kill to the next one's election", &elected, "ms");
    let arrived = growth.course(None).at(Instant::now());
    anyhow::ensure!(arrived < bytes as f64, "the copy was over before the last kill");
    stage.cap(0).await?;
    stage.moved(&shard, to).await
}

fn ms_of(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}
