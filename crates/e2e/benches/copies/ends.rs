//! Three copies into one broker, then three out of one: what passes at each node against what its
//! own controller allows, second by second.

use std::time::Duration;

use evenkeel_e2e::bench::figures::{Aim, Figures};
use evenkeel_e2e::bench::growth::Course;
use evenkeel_e2e::bench::meters::Meters;
use evenkeel_model::ShardKey;
use tokio::time::{Instant, sleep};

use crate::Args;
use crate::stage::Stage;

const PART: &str = "ends";
const BROKERS: [&str; 4] = ["b1", "b2", "b3", "b4"];
const HUB: &str = "b4";

const LOOK: Duration = Duration::from_millis(100);

/// When a counter was read that took longer is not known well enough: a hundredth of a window.
const LATE: Duration = Duration::from_millis(10);

/// Over so long no more than the limit may pass.
const WINDOW: Duration = Duration::from_secs(1);

/// What an idle bucket has saved passes at the start.
const SETTLED: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let stage = Stage::start(args, 4, 1, Duration::from_secs(60)).await?;
    let measured = measure(args, &stage, figures).await;
    stage.explain(measured)
}

async fn measure(args: &Args, stage: &Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let stream = stage.stream("ends", 4, 1, args.shard_mib << 20).await?;
    let mut shards = Vec::new();
    for broker in BROKERS.into_iter().filter(|broker| *broker != HUB) {
        let led = stage.led(&stream, broker)?;
        anyhow::ensure!(led.len() == 1, "{broker} leads {} shards, not one", led.len());
        shards.extend(led.into_iter().map(|shard| (shard, broker)));
    }
    let into: Vec<_> = shards.iter().map(|(shard, _)| (shard.clone(), HUB)).collect();
    let seen = moves(stage, args, &into).await?;
    report(figures, "3 copies into 1", &seen);
    // To another broker than the one it was at: what it left there would be built upon.
    let turned = shards.iter().map(|(_, broker)| *broker).cycle().skip(1);
    let out: Vec<_> = shards.iter().map(|(shard, _)| shard.clone()).zip(turned).collect();
    let seen = moves(stage, args, &out).await?;
    report(figures, "3 copies out of 1", &seen);
    Ok(())
}

/// Moves shards all at once; what passed at each broker meanwhile.
async fn moves(
    stage: &Stage,
    args: &Args,
    moves: &[(ShardKey, &str)],
) -> anyhow::Result<Vec<Passed>> {
    let mut passed: Vec<Passed> = BROKERS
        .into_iter()
        .flat_map(|broker| [("egress", broker), ("ingress", broker)])
        .map(|(direction, broker)| Passed::new(broker, direction))
        .collect();
    for (shard, to) in moves {
        stage.move_shard(shard, to).await?;
    }
    let all = async {
        for (shard, to) in moves {
            stage.moved(shard, to).await?;
        }
        anyhow::Ok(())
    };
    let looking = async {
        loop {
            for pair in passed.chunks_mut(2) {
                let asked = Instant::now();
                let meters = Meters::read(&stage.cluster, pair[0].broker).await?;
                let took = asked.elapsed();
                if took > LATE {
                    continue;
                }
                for one in pair {
                    one.look(asked + took / 2, &meters, args.link_bytes() as f64);
                }
            }
            sleep(LOOK).await;
        }
    };
    tokio::select! {
        ended = all => ended?,
        stopped = looking => return stopped,
    }
    Ok(passed)
}

/// What passed at one end of one broker, and what was allowed.
struct Passed {
    broker: &'static str,
    direction: &'static str,
    bytes: Course,
    allowed: Vec<(Instant, f64)>,
}

impl Passed {
    fn new(broker: &'static str, direction: &'static str) -> Self {
        Self { broker, direction, bytes: Course::default(), allowed: Vec::new() }
    }

    fn look(&mut self, now: Instant, meters: &Meters, link: f64) {
        let bytes = meters.sum("evenkeel_broker_copy_bytes_total", self.direction);
        self.bytes.0.push((now, bytes as u64));
        let share = meters.sum("evenkeel_broker_throttle_share_ratio", "");
        self.allowed.push((now, share * link));
    }

    /// Bytes that were allowed between two times.
    fn allowed(&self, from: Instant, to: Instant) -> f64 {
        let steps = self.allowed.windows(2).filter(|pair| pair[1].0 > from && pair[0].0 < to);
        steps
            .map(|pair| {
                let (start, end) = (pair[0].0.max(from), pair[1].0.min(to));
                // A share that rose in between may have risen at once.
                pair[0].1.max(pair[1].1) * (end - start).as_secs_f64()
            })
            .sum()
    }

    /// From its first bytes to its last.
    fn span(&self) -> Option<(Instant, Instant)> {
        let begun = self.bytes.0.first()?;
        Some((self.bytes.first_growth(begun.0)?, self.bytes.last_growth()?))
    }

    /// The worst window over what was allowed in it.
    fn worst(&self) -> Option<f64> {
        let (from, to) = self.span()?;
        let starts = self.bytes.0.iter().map(|(at, _)| *at);
        let windows = starts.filter(|at| *at >= from + SETTLED && *at + WINDOW <= to);
        windows
            .map(|at| {
                let passed = self.bytes.at(at + WINDOW) - self.bytes.at(at);
                passed / self.allowed(at, at + WINDOW)
            })
            .reduce(f64::max)
    }

    /// All that passed over all that was allowed.
    fn whole(&self) -> Option<f64> {
        let (from, to) = self.span()?;
        Some((self.bytes.at(to) - self.bytes.at(from)) / self.allowed(from, to))
    }
}

fn report(figures: &mut Figures, what: &str, seen: &[Passed]) {
    let most = |of: &dyn Fn(&Passed) -> Option<f64>| {
        let all = seen.iter().filter_map(of);
        all.fold(f64::NAN, f64::max)
    };
    let over = |ratio: f64| (ratio - 1.0) * 100.0;
    let name = format!("{what}: most of any end's worst second over its limit");
    figures.add(PART, &name, over(most(&Passed::worst)), "%");
    figures.bars(Aim::AtMost(2.0), Aim::AtMost(0.5));
    let name = format!("{what}: the busiest end, of its limit over the whole time");
    figures.add(PART, &name, most(&Passed::whole) * 100.0, "%");
}
