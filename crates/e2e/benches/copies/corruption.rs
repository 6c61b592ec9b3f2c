//! One bit of one of many chunks turned on its way: whether it is noticed, whether what arrives is
//! right in the end, and what it costs to mend.

use std::time::Duration;

use evenkeel_e2e::bench::figures::{Aim, Figures, Sample};
use evenkeel_model::ShardKey;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Args;
use crate::flipper::Flipper;
use crate::pair::{self, Place, Source};

const PART: &str = "corruption";
const BYTES: u64 = 16 << 20;

/// Copies at once.
const AT_ONCE: usize = 8;

/// A note of a failed attempt stands for half a second.
const LOOK: Duration = Duration::from_millis(20);

/// What became of one copy.
#[derive(Debug, Clone, Copy)]
struct Trial {
    struck: bool,
    noticed: bool,
    level: bool,
    identical: bool,
    /// Bytes sent beyond the shard's size, as part of it.
    again: f64,
}

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(args.seed);
    let shard: ShardKey = "stream/bench/corruption/0".parse()?;
    let mut source = Source::start(&Place::Memory).await?;
    source.fill(&shard, BYTES).await?;
    let source = std::sync::Arc::new(source);
    let chunks: Vec<usize> = source.chunks(&shard).await?.iter().map(bytes::Bytes::len).collect();
    let size: usize = chunks.iter().sum();
    let mut places: Vec<u64> = (0..args.flips).map(|_| rng.random_range(0..BYTES)).collect();
    let mut trials = Vec::new();
    let mut running = JoinSet::new();
    while !places.is_empty() || !running.is_empty() {
        while running.len() < AT_ONCE
            && let Some(after) = places.pop()
        {
            let (source, shard) = (source.clone(), shard.clone());
            running.spawn(async move { trial(&source, &shard, size as u64, after).await });
        }
        if let Some(ended) = running.join_next().await {
            trials.push(ended??);
        }
    }
    let struck: Vec<&Trial> = trials.iter().filter(|trial| trial.struck).collect();
    anyhow::ensure!(!struck.is_empty(), "no bit was turned");
    let percent = |holds: &dyn Fn(&Trial) -> bool| {
        struck.iter().filter(|trial| holds(trial)).count() as f64 / struck.len() as f64 * 100.0
    };
    let all = chunks.len() * struck.len();
    let name = format!("{} bits turned in {all} chunks: noticed", struck.len());
    figures.add(PART, &name, percent(&|trial| trial.noticed), "%");
    figures.aim(Aim::AtLeast(100.0));
    let broken = struck.iter().filter(|trial| trial.level && !trial.identical).count();
    figures.add(PART, "copies that ended level and broken", broken as f64, "");
    figures.aim(Aim::AtMost(0.0));
    let whole = percent(&|trial| trial.level && trial.identical);
    figures.add(PART, "copies that mended themselves and ended level", whole, "%");
    figures.aim(Aim::AtLeast(100.0));
    let again: Sample = struck.iter().map(|trial| trial.again * 100.0).collect();
    figures.median(PART, "bytes sent again, of the shard's size", &again, "%");
    Ok(())
}

async fn trial(source: &Source, shard: &ShardKey, size: u64, after: u64) -> anyhow::Result<Trial> {
    let wire = Flipper::start(&source.address, after).await?;
    let mut copying = pair::start(source, shard, &wire.address(), &Place::Memory).await?;
    let mut noticed = false;
    while !copying.is_over() {
        noticed |= copying.said().is_some_and(|said| !said.detail.is_empty());
        sleep(LOOK).await;
    }
    let level = copying.ended().await.is_ok_and(|said| said.state == "level");
    let identical = copying.is_identical(source).await?;
    copying.host.close().await;
    let again = wire.passed().saturating_sub(size) as f64 / size as f64;
    Ok(Trial { struck: wire.has_struck(), noticed, level, identical, again })
}
