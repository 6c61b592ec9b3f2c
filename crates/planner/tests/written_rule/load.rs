//! Load scores, from the written rule.

use std::collections::BTreeMap;

use evenkeel_model::{BrokerId, LoadReport, ShardLoad, Snapshot, Strategy};

use super::get;

/// Scores of all brokers, and who was given what since its report.
#[derive(Default)]
pub(crate) struct Loads {
    /// Shards led are the score.
    counts: bool,
    base: BTreeMap<BrokerId, f64>,
    since: BTreeMap<BrokerId, u64>,
    per_led: f64,
}

/// The report of a broker, unless it is too old.
fn usable<'s>(s: &'s Snapshot, b: &BrokerId) -> Option<&'s LoadReport> {
    let load = s.brokers[b].load.as_ref()?;
    (s.as_of_ms - load.reported_at_ms <= s.policy.load_stale_after_ms).then_some(load)
}

fn topic(row: &ShardLoad) -> f64 {
    let connections = f64::from(row.producers + row.consumers);
    0.2 + 0.3 * row.bytes_per_second * 8.0 / 1e6
        + 0.3 * connections
        + 0.2 * row.backlog as f64 / 1e4
}

fn or_zero(value: Option<f64>) -> f64 {
    value.unwrap_or(0.0)
}

fn raw(s: &Snapshot, b: &BrokerId, r: &LoadReport) -> f64 {
    let (cpu, memory) = (or_zero(r.cpu_percent), or_zero(r.memory_percent));
    let disk = s.brokers[b].disk_bytes_per_second.unwrap_or(200_000_000) as f64;
    let link = s.brokers[b].network_bytes_per_second.unwrap_or(125_000_000) as f64;
    match s.policy.assignment_strategy {
        Strategy::Fair => r.shards.len() as f64,
        Strategy::Balanced => {
            0.3 * r.shards.iter().map(topic).sum::<f64>() + 0.35 * cpu + 0.35 * memory
        }
        Strategy::WeightedLoad => {
            let mut used = [
                (cpu / 100.0).min(1.0),
                (memory / 100.0).min(1.0),
                (or_zero(r.disk_io_bytes_per_second) / disk).min(1.0),
                (or_zero(r.network_io_bytes_per_second) / link).min(1.0),
            ];
            used.sort_by(f64::total_cmp);
            if used[3] > 0.7 {
                100.0 * (0.5 * used[3] + (used[0] + used[1] + used[2]) * 0.5 / 3.0)
            } else {
                100.0 * (used[0] + used[1] + used[2] + used[3]) / 4.0
            }
        }
    }
}

impl Loads {
    pub(crate) fn new(s: &Snapshot, led: &BTreeMap<BrokerId, u64>) -> Self {
        let strategy = s.policy.assignment_strategy;
        let mut loads = Self { counts: strategy == Strategy::Fair, ..Self::default() };
        let reporting: Vec<BrokerId> =
            s.brokers.keys().filter(|b| usable(s, b).is_some()).cloned().collect();
        for b in &reporting {
            let report = usable(s, b).unwrap();
            let (base, still) = loads.without_what_went(s, b, report);
            loads.base.insert(b.clone(), base);
            loads.since.insert(b.clone(), get(led, b) - still);
        }
        let known: Vec<&BrokerId> =
            reporting.iter().filter(|b| s.brokers[*b].is_target()).collect();
        let strained = |b: &&BrokerId| {
            let report = usable(s, b).unwrap();
            or_zero(report.cpu_percent) > 0.0 || or_zero(report.memory_percent) > 0.0
        };
        if strategy == Strategy::Balanced && !known.iter().any(strained) {
            loads.counts = true;
        }
        let leads: u64 = known.iter().map(|b| get(led, *b)).sum();
        if leads > 0 {
            loads.per_led = known.iter().map(|b| loads.base[*b]).sum::<f64>() / leads as f64;
        }
        if !known.is_empty() {
            let sum: f64 = known.iter().map(|b| loads.score(b, led)).sum();
            let mean = sum / known.len() as f64;
            for b in s.brokers.keys().filter(|b| !reporting.contains(b)) {
                loads.base.insert(b.clone(), mean);
            }
        }
        loads
    }

    /// The reported score less what left the broker since, and the rows that it still leads.
    fn without_what_went(&self, s: &Snapshot, b: &BrokerId, report: &LoadReport) -> (f64, u64) {
        let reported = raw(s, b, report);
        let leads = |row: &&ShardLoad| s.assignments[&row.shard].eventual_leader() == Some(b);
        let still = report.shards.iter().filter(leads).count();
        let gone: f64 = report
            .shards
            .iter()
            .filter(|row| !leads(row))
            .map(|row| match s.policy.assignment_strategy {
                Strategy::Fair => 0.0,
                Strategy::Balanced => 0.3 * topic(row),
                Strategy::WeightedLoad => reported / report.shards.len() as f64,
            })
            .sum();
        ((reported - gone).max(0.0), still as u64)
    }

    pub(crate) fn score(&self, b: &BrokerId, led: &BTreeMap<BrokerId, u64>) -> f64 {
        if self.counts {
            return get(led, b) as f64;
        }
        self.base.get(b).copied().unwrap_or(0.0) + self.since(b) as f64 * self.per_led
    }

    /// Leaders given to a broker since its last report.
    pub(crate) fn since(&self, b: &BrokerId) -> u64 {
        get(&self.since, b)
    }

    pub(crate) fn given(&mut self, b: &BrokerId) {
        *self.since.entry(b.clone()).or_default() += 1;
    }
}
