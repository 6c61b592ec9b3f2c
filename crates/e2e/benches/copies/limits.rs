//! A real copy under an operator's cap: how exactly it is held, and how soon a new one is.

use std::time::Duration;

use evenkeel_e2e::bench::figures::{Aim, Figures, Sample};
use tokio::time::{Instant, sleep};

use crate::Args;
use crate::stage::{ROUND, Stage, ms};

const PART: &str = "limits";

/// MB/s, one after the other; all below what the agents' own law allows.
const CAPS: [u64; 4] = [3, 6, 2, 5];

/// Of each cap, what is not counted for its accuracy.
const SETTLED: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let stage = Stage::start(args, 2, 1, Duration::from_secs(60)).await?;
    let measured = measure(args, &stage, figures).await;
    stage.explain(measured)
}

async fn measure(args: &Args, stage: &Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let each = Duration::from_secs(args.seconds.div_ceil(2).max(3));
    let bytes = CAPS.iter().sum::<u64>() * 1_000_000 * (each.as_secs() + 1);
    let shard = stage.stream("limits", 1, 1, bytes).await?.shard(0);
    let (from, to) =
        if stage.led(&shard.stream, "b1")?.is_empty() { ("b2", "b1") } else { ("b1", "b2") };
    let growth = stage.growth(to, std::slice::from_ref(&shard));
    stage.cap(CAPS[0] * 1_000_000).await?;
    stage.move_shard(&shard, to).await?;
    stage.arrived(to, &shard, 1 << 20).await?;
    let mut changes = Vec::new();
    for cap in CAPS {
        let at = Instant::now();
        stage.cap(cap * 1_000_000).await?;
        changes.push((at, cap));
        sleep(each).await;
    }
    let course = growth.course(None);
    let arrived = course.at(Instant::now());
    anyhow::ensure!(arrived < bytes as f64, "all {bytes} bytes came from {from} too soon");
    let (mut off, mut times) = (Sample::default(), Sample::default());
    for (number, (at, cap)) in changes.into_iter().enumerate() {
        let rate = (cap * 1_000_000) as f64;
        // Whole rounds: a part of one would be counted as none or as a whole.
        let rounds = ((each - SETTLED).as_millis() / ROUND.as_millis()) as u32;
        let counted = course.rate(at + SETTLED, at + SETTLED + ROUND * rounds);
        off.add((counted / rate - 1.0).abs() * 100.0);
        if number > 0 {
            let near = |found: f64| (found / rate - 1.0).abs() <= 0.05;
            let settled = course.first_window(at, ROUND * 2, near);
            times.add(settled.map_or(f64::NAN, |settled| ms(at, settled)));
        }
    }
    let name = format!("an operator's cap of {CAPS:?} MB/s in turn: off by");
    figures.median(PART, &name, &off, "%");
    figures.bars(Aim::AtMost(2.0), Aim::AtMost(0.5));
    figures.median(PART, "change of the cap to within 5 % of it", &times, "ms");
    figures.bars(Aim::AtMost(1000.0), Aim::AtMost(250.0));
    Ok(())
}
