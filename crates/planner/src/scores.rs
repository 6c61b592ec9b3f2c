//! Load scores per broker. They order brokers within a tier and measure imbalance. A broker without
//! a usable report is unknown, which is not idle: it is scored by the mean of the others.

use evenkeel_model::broker::{DEFAULT_DISK_BYTES_PER_SECOND, DEFAULT_NETWORK_BYTES_PER_SECOND};
use evenkeel_model::{BrokerView, LoadReport, ShardLoad, Strategy};

use crate::facts::LoadFacts;
use crate::tally::Tally;
use crate::world::{NONE, Ord32, Standing, World};

const BACKLOG_UNIT: f64 = 10_000.0;
const BOTTLENECK: f64 = 0.7;
const TOPIC_SHARE: f64 = 0.3;
const SYSTEM_SHARE: f64 = 0.35;

/// Scores of all brokers under one strategy.
pub(crate) struct Scores {
    strategy: Strategy,
    /// Shards led are the score: `fair`, or nobody reports CPU or memory.
    counts: bool,
    base: Vec<f64>,
    known: Vec<bool>,
    /// Leaders that a broker was given since its last report.
    since: Vec<u32>,
    /// The cluster's mean score of one led shard.
    per_led: f64,
}

/// The load of one shard by itself: 0.2 for being there, then throughput, connections, backlog.
pub fn topic_load(row: &ShardLoad) -> f64 {
    let connections = f64::from(row.producers) + f64::from(row.consumers);
    0.2 + 0.3 * megabits(row.bytes_per_second)
        + 0.3 * connections
        + 0.2 * (row.backlog as f64 / BACKLOG_UNIT)
}

fn megabits(bytes_per_second: f64) -> f64 {
    usable(Some(bytes_per_second)) * 8.0 / 1_000_000.0
}

/// More than any machine does, a second or in percent: sums of what is larger would not stay numbers.
const MOST: f64 = 1e15;

/// A value that is missing or no number counts 0.
pub(crate) fn usable(value: Option<f64>) -> f64 {
    value.filter(|v| v.is_finite() && *v > 0.0).map_or(0.0, |v| v.min(MOST))
}

/// A broker's report, if it is not too old.
pub(crate) fn fresh<'a>(world: &World<'a>, view: &'a BrokerView) -> Option<&'a LoadReport> {
    let age = |r: &LoadReport| world.now.saturating_sub(r.reported_at_ms);
    view.load.as_ref().filter(|r| age(r) <= world.policy.load_stale_after_ms)
}

impl Scores {
    pub(crate) fn new(world: &World<'_>, tally: &Tally, strategy: Strategy) -> Self {
        let n = world.brokers.len();
        let active = |b: &Ord32| world.standing(*b) == Standing::Target;
        let report = |b: Ord32| world.brokers[b as usize].view.and_then(|v| fresh(world, v));
        let strains = |r: &LoadReport| usable(r.cpu_percent) + usable(r.memory_percent) > 0.0;
        let counts = match strategy {
            Strategy::Fair => true,
            Strategy::WeightedLoad => false,
            Strategy::Balanced => {
                !(0..n as Ord32).filter(active).any(|b| report(b).is_some_and(strains))
            }
        };
        let mut scores = Self {
            strategy,
            counts,
            base: vec![0.0; n],
            known: vec![false; n],
            since: vec![0; n],
            per_led: 0.0,
        };
        for b in 0..n as Ord32 {
            let Some(view) = world.brokers[b as usize].view else { continue };
            let Some(report) = fresh(world, view) else { continue };
            let Some(load) = &world.facts.loads[b as usize] else { continue };
            scores.known[b as usize] = true;
            scores.base[b as usize] = raw_score(strategy, view, report, load);
            scores.compare_with_assignments(world, tally, b, load);
        }
        scores.impute(world, tally);
        scores
    }

    /// What a report does not show yet: leaders given since, and leaders gone since.
    fn compare_with_assignments(
        &mut self,
        world: &World<'_>,
        tally: &Tally,
        broker: Ord32,
        load: &LoadFacts,
    ) {
        let raw = self.base[broker as usize];
        let mut still = 0;
        let mut gone = 0.0;
        for &(shard, topic_load) in load.rows.iter().filter(|(shard, _)| *shard != NONE) {
            let facts = world.shard(shard);
            let leader = if facts.successor == NONE { facts.leader } else { facts.successor };
            if leader == broker {
                still += 1;
            } else if leader != NONE {
                gone += match self.strategy {
                    Strategy::Fair => 0.0,
                    Strategy::Balanced => TOPIC_SHARE * topic_load,
                    Strategy::WeightedLoad => raw / load.rows.len() as f64,
                };
            }
        }
        self.base[broker as usize] = (raw - gone).max(0.0);
        self.since[broker as usize] = tally.leaders[broker as usize].saturating_sub(still);
    }

    fn impute(&mut self, world: &World<'_>, tally: &Tally) {
        let known = || {
            (0..self.base.len())
                .filter(|b| self.known[*b] && world.brokers[*b].standing == Standing::Target)
        };
        let total: f64 = known().map(|b| self.base[b]).sum();
        let led: u32 = known().map(|b| tally.leaders[b]).sum();
        if led > 0 {
            self.per_led = total / f64::from(led);
        }
        let count = known().count();
        if count == 0 {
            return;
        }
        let mean = known().map(|b| self.score(b as Ord32, tally)).sum::<f64>() / count as f64;
        for b in 0..self.base.len() {
            if !self.known[b] {
                self.base[b] = mean;
            }
        }
    }

    pub(crate) fn score(&self, broker: Ord32, tally: &Tally) -> f64 {
        let b = broker as usize;
        if self.counts {
            return f64::from(tally.leaders[b]);
        }
        self.base[b] + f64::from(self.since[b]) * self.per_led
    }

    pub(crate) fn since(&self, broker: Ord32) -> u32 {
        self.since[broker as usize]
    }

    /// Whether the score rests on a report, or needs none.
    pub(crate) fn is_known(&self, broker: Ord32) -> bool {
        self.strategy == Strategy::Fair || self.known[broker as usize]
    }

    /// Counts one more leader that `broker` was given.
    pub(crate) fn assigned(&mut self, broker: Ord32) {
        if broker != NONE {
            self.since[broker as usize] += 1;
        }
    }

    /// What a shard takes from the score of the broker that leads it.
    pub(crate) fn takes(&self, broker: Ord32, row: Option<&ShardLoad>, tally: &Tally) -> f64 {
        if self.counts {
            return 1.0;
        }
        match self.strategy {
            Strategy::Fair => 1.0,
            Strategy::Balanced => TOPIC_SHARE * row.map_or(0.2, topic_load),
            Strategy::WeightedLoad => {
                let led = tally.leaders[broker as usize].max(1);
                self.score(broker, tally) / f64::from(led)
            }
        }
    }
}

fn raw_score(strategy: Strategy, view: &BrokerView, report: &LoadReport, load: &LoadFacts) -> f64 {
    match strategy {
        Strategy::Fair => load.rows.len() as f64,
        Strategy::Balanced => {
            TOPIC_SHARE * load.topics
                + SYSTEM_SHARE * usable(report.cpu_percent)
                + SYSTEM_SHARE * usable(report.memory_percent)
        }
        Strategy::WeightedLoad => weighted_score(view, report),
    }
}

fn weighted_score(view: &BrokerView, report: &LoadReport) -> f64 {
    let disk = view.disk_bytes_per_second.unwrap_or(DEFAULT_DISK_BYTES_PER_SECOND);
    let network = view.network_bytes_per_second.unwrap_or(DEFAULT_NETWORK_BYTES_PER_SECOND);
    let rate = |value, capacity: u64| usable(value) / (capacity.max(1) as f64);
    let used = [
        usable(report.cpu_percent) / 100.0,
        usable(report.memory_percent) / 100.0,
        rate(report.disk_io_bytes_per_second, disk),
        rate(report.network_io_bytes_per_second, network),
    ]
    .map(|u| u.min(1.0));
    let sum: f64 = used.iter().sum();
    let highest = used.iter().copied().fold(0.0, f64::max);
    let score =
        if highest > BOTTLENECK { 0.5 * highest + 0.5 / 3.0 * (sum - highest) } else { 0.25 * sum };
    score * 100.0
}
