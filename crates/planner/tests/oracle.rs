//! The choice of a leader's broker, reckoned a second time from the written rule: slowly, with maps
//! and names, sharing no code with the planner but the published hash.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;

use std::collections::BTreeMap;

use evenkeel_model::hash::score64;
use evenkeel_model::{BrokerId, LoadReport, ShardKey, ShardLoad, Snapshot, Strategy, StreamKey};
use evenkeel_planner::{Step, plan};
use random::{Rng, cluster};
use serde_json::json;

/// What the slow reckoning keeps.
struct Oracle<'s> {
    s: &'s Snapshot,
    led: BTreeMap<BrokerId, u32>,
    of_stream: BTreeMap<(StreamKey, BrokerId), u32>,
    held: BTreeMap<BrokerId, u32>,
    since: BTreeMap<BrokerId, u32>,
    base: BTreeMap<BrokerId, f64>,
    per_led: f64,
    counts: bool,
}

fn get<K: Ord>(map: &BTreeMap<K, u32>, key: &K) -> u32 {
    map.get(key).copied().unwrap_or(0)
}

fn report<'s>(s: &'s Snapshot, b: &BrokerId) -> Option<&'s LoadReport> {
    let load = s.brokers[b].load.as_ref()?;
    (s.as_of_ms - load.reported_at_ms <= s.policy.load_stale_after_ms).then_some(load)
}

fn topic(row: &ShardLoad) -> f64 {
    let connections = f64::from(row.producers + row.consumers);
    0.2 + 0.3 * row.bytes_per_second * 8.0 / 1e6
        + 0.3 * connections
        + 0.2 * row.backlog as f64 / 1e4
}

fn score_of(strategy: Strategy, r: &LoadReport) -> f64 {
    let (cpu, memory) = (r.cpu_percent.unwrap_or(0.0), r.memory_percent.unwrap_or(0.0));
    match strategy {
        Strategy::Fair => r.shards.len() as f64,
        Strategy::Balanced => {
            0.3 * r.shards.iter().map(topic).sum::<f64>() + 0.35 * cpu + 0.35 * memory
        }
        Strategy::WeightedLoad => {
            let mut used = [
                (cpu / 100.0).min(1.0),
                (memory / 100.0).min(1.0),
                (r.disk_io_bytes_per_second.unwrap_or(0.0) / 200e6).min(1.0),
                (r.network_io_bytes_per_second.unwrap_or(0.0) / 125e6).min(1.0),
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

impl<'s> Oracle<'s> {
    fn new(s: &'s Snapshot) -> Self {
        let strategy = s.policy.assignment_strategy;
        let mut oracle = Self {
            s,
            led: BTreeMap::new(),
            of_stream: BTreeMap::new(),
            held: BTreeMap::new(),
            since: BTreeMap::new(),
            base: BTreeMap::new(),
            per_led: 0.0,
            counts: strategy == Strategy::Fair,
        };
        for a in s.assignments.values() {
            oracle.count(&a.shard, a.leader.as_ref().unwrap(), false);
        }
        let known: Vec<BrokerId> =
            s.brokers.keys().filter(|b| report(s, b).is_some()).cloned().collect();
        let strain = |b: &&BrokerId| {
            report(s, b).is_some_and(|r| {
                r.cpu_percent.unwrap_or(0.0) > 0.0 || r.memory_percent.unwrap_or(0.0) > 0.0
            })
        };
        if strategy == Strategy::Balanced && !known.iter().any(|b| strain(&b)) {
            oracle.counts = true;
        }
        for b in &known {
            let report = report(s, b).unwrap();
            oracle.base.insert(b.clone(), score_of(strategy, report));
            let listed = report.shards.len() as u32;
            oracle.since.insert(b.clone(), get(&oracle.led, b) - listed);
        }
        let led: u32 = known.iter().map(|b| get(&oracle.led, b)).sum();
        if led > 0 {
            oracle.per_led = oracle.base.values().sum::<f64>() / f64::from(led);
        }
        if !known.is_empty() {
            let sum: f64 = known.iter().map(|b| oracle.score(b)).sum();
            let mean = sum / known.len() as f64;
            for b in s.brokers.keys().filter(|b| !known.contains(b)) {
                oracle.base.insert(b.clone(), mean);
            }
        }
        oracle
    }

    fn count(&mut self, shard: &ShardKey, leader: &BrokerId, new: bool) {
        *self.led.entry(leader.clone()).or_default() += 1;
        *self.held.entry(leader.clone()).or_default() += 1;
        *self.of_stream.entry((shard.stream.clone(), leader.clone())).or_default() += 1;
        *self.since.entry(leader.clone()).or_default() += u32::from(new);
    }

    fn score(&self, b: &BrokerId) -> f64 {
        if self.counts {
            return f64::from(get(&self.led, b));
        }
        self.base.get(b).copied().unwrap_or(0.0) + f64::from(get(&self.since, b)) * self.per_led
    }

    fn place(&mut self, shard: &ShardKey) -> Option<BrokerId> {
        let m = self.s.brokers.len() as u32;
        let n = self.s.streams[&shard.stream].shards;
        let all: u32 = self.s.streams.values().map(|s| s.shards).sum();
        let room = |b: &&BrokerId| {
            let cap = self.s.brokers[*b].max_shards.unwrap_or(u32::MAX);
            get(&self.held, b) < cap
        };
        let legal: Vec<&BrokerId> = self.s.brokers.keys().filter(room).collect();
        let led = |b: &BrokerId| get(&self.of_stream, &(shard.stream.clone(), b.clone()));
        let floor = |b: &BrokerId| led(b) < n / m;
        let ceiling = |b: &BrokerId| led(b) < n.div_ceil(m);
        let share = |b: &BrokerId| get(&self.led, b) < all.div_ceil(m);
        let any = |_: &BrokerId| true;
        let both = |x: &dyn Fn(&BrokerId) -> bool, b: &BrokerId| x(b) && share(b);
        let tests: [&dyn Fn(&BrokerId) -> bool; 6] =
            [&|b| both(&floor, b), &floor, &|b| both(&ceiling, b), &ceiling, &share, &any];
        let tier: Vec<&BrokerId> = tests
            .iter()
            .map(|test| legal.iter().filter(|b| test(b)).copied().collect::<Vec<_>>())
            .find(|tier| !tier.is_empty())?;
        let lowest = tier.iter().map(|b| self.score(b)).fold(f64::INFINITY, f64::min);
        let band = lowest * (1.0 + self.s.policy.tie_band_percent / 100.0);
        let mut equals: Vec<&BrokerId> =
            tier.into_iter().filter(|b| self.score(b) <= band).collect();
        let text = shard.to_string();
        equals.sort_by(|a, b| {
            get(&self.since, a)
                .cmp(&get(&self.since, b))
                .then(score64(&text, b.as_str()).cmp(&score64(&text, a.as_str())))
                .then(a.cmp(b))
        });
        let chosen = equals[0].clone();
        self.count(shard, &chosen, true);
        Some(chosen)
    }
}

/// Loads, caps, and some shards that nobody holds yet.
fn unplaced(rng: &mut Rng) -> Snapshot {
    let mut s = cluster(rng);
    s.policy.assignment_strategy =
        [Strategy::Fair, Strategy::Balanced, Strategy::WeightedLoad][rng.below(3)];
    s.policy.moves_max_concurrent = 0;
    let shards: Vec<ShardKey> = s.assignments.keys().cloned().collect();
    for shard in shards {
        if rng.chance(40) {
            s.assignments.remove(&shard);
        }
    }
    let ids: Vec<BrokerId> = s.brokers.keys().cloned().collect();
    for id in ids {
        let led = s.assignments.values().filter(|a| a.leader.as_ref() == Some(&id));
        let rows: Vec<_> = led
            .filter(|_| rng.chance(70))
            .map(|a| json!({"shard": a.shard, "producers": 2, "bytes_per_second": 1e5}))
            .collect();
        let broker = s.brokers.get_mut(&id).unwrap();
        broker.max_shards = rng.chance(20).then(|| rng.range(0, 12));
        if rng.chance(75) {
            let age = if rng.chance(10) { 90_001 } else { 90_000 };
            let report = json!({"reported_at_ms": s.as_of_ms - age, "shards": rows,
                "cpu_percent": rng.below(100), "memory_percent": rng.below(100),
                "disk_io_bytes_per_second": rng.below(300_000_000)});
            broker.load = Some(serde_json::from_value(report).unwrap());
        }
    }
    s
}

#[test]
fn the_planner_places_where_the_written_rule_says() {
    let mut placed = 0;
    for seed in 0..400 {
        let s = unplaced(&mut Rng::new(seed));
        let mut oracle = Oracle::new(&s);
        let mut expected: BTreeMap<ShardKey, Option<BrokerId>> = BTreeMap::new();
        for (key, stream) in &s.streams {
            for number in 0..stream.shards {
                let shard = key.shard(number);
                if !s.assignments.contains_key(&shard) {
                    let to = oracle.place(&shard);
                    expected.insert(shard, to);
                }
            }
        }
        let plan = plan(&s);
        for (shard, to) in expected {
            let decision = plan.decisions.iter().find(|d| d.shard == shard).unwrap();
            let write = decision.decision.write().filter(|w| w.step == Step::Place);
            assert_eq!(write.and_then(|w| w.to.clone()), to, "seed {seed}: {decision}");
            placed += 1;
        }
    }
    assert!(placed > 3000, "only {placed}");
}
