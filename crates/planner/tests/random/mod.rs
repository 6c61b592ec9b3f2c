//! Random clusters from a seed.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "no test uses all of it; made-up records are valid"
)]

use evenkeel_model::{
    Assignment, BrokerId, BrokerView, HistoryEntry, Kind, Lifecycle, Marker, MarkerReason, Move,
    MoveOutcome, MoveReason, ShardKey, ShardReport, ShardState, Snapshot, Strategy, Stream,
    StreamKey,
};
use serde_json::json;

/// A small generator (SplitMix64): the same numbers everywhere.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Both ends included.
    pub(crate) fn range(&mut self, from: u32, to: u32) -> u32 {
        from + self.below((to - from + 1) as usize) as u32
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

pub(crate) fn broker(n: usize) -> BrokerId {
    format!("b{n:02}").parse().unwrap()
}

pub(crate) fn add_brokers(s: &mut Snapshot, count: usize) {
    for n in 0..count {
        let since_ms = s.as_of_ms - 3_600_000;
        let view = BrokerView { last_seen_ms: s.as_of_ms - 1000, ..BrokerView::live(since_ms) };
        s.brokers.entry(broker(n)).or_insert(view);
    }
}

pub(crate) fn add_stream(s: &mut Snapshot, key: &StreamKey, shards: u32, factor: u32) {
    let stream = Stream {
        v: 1,
        stream: key.clone(),
        shards,
        replication_factor: factor,
        durable: true,
        created_at_ms: Some(s.as_of_ms - 3_600_000),
        region: None,
    };
    s.streams.insert(key.clone(), stream);
}

fn report(a: &Assignment, broker: &BrokerId, rest: serde_json::Value) -> ShardReport {
    let mut all = json!({"broker": broker, "shard": a.shard, "generation": a.generation});
    all.as_object_mut().unwrap().extend(rest.as_object().cloned().unwrap_or_default());
    serde_json::from_value(all).unwrap()
}

/// 2–6 live brokers, 1–6 streams of one copy, 0–9 leaders of each anywhere.
pub(crate) fn cluster(rng: &mut Rng) -> Snapshot {
    let mut s = Snapshot::empty(1_700_000_000_000);
    let brokers = 2 + rng.below(5);
    add_brokers(&mut s, brokers);
    for n in 0..1 + rng.below(6) {
        let kind = if rng.chance(20) { Kind::Cache } else { Kind::Stream };
        let key = StreamKey::new(kind, "default", &format!("s{n}")).unwrap();
        let mut number = 0;
        for b in 0..brokers {
            for _ in 0..rng.below(10) {
                let mut a = Assignment::new(key.shard(number), broker(b), Vec::new());
                a.state = ShardState::Active;
                s.assignments.insert(a.shard.clone(), a);
                number += 1;
            }
        }
        add_stream(&mut s, &key, number, 1);
    }
    s
}

/// Everything at once: zones, caps, lost and leaving brokers, copies in flight, fences, reports.
pub(crate) fn messy(rng: &mut Rng) -> Snapshot {
    let mut s = Snapshot::empty(1_700_000_000_000);
    let brokers = 3 + rng.below(7);
    add_brokers(&mut s, brokers);
    s.policy.moves_max_concurrent = rng.range(0, 4);
    s.policy.moves_max_per_node = rng.chance(40).then(|| rng.range(1, 2));
    s.policy.capacity_weighted = rng.chance(25);
    s.paused = rng.chance(10);
    let zones = rng.below(4);
    let now = s.as_of_ms;
    for view in s.brokers.values_mut() {
        if zones > 0 && rng.chance(90) {
            view.zone = Some(format!("z{}", rng.below(zones)));
        }
        view.max_shards = rng.chance(30).then(|| rng.range(0, 20));
        view.weight = f64::from(rng.range(1, 4));
        view.lifecycle = match rng.below(20) {
            0 | 1 => Lifecycle::Draining,
            2 | 3 => Lifecycle::Down,
            4 => Lifecycle::Left,
            _ => Lifecycle::Live,
        };
        view.since_ms = now - i64::from(rng.range(0, 600_000));
        view.last_seen_ms = now - i64::from(rng.range(0, 40_000));
        view.registered = view.is_serving() && !rng.chance(5);
        view.stopping = view.lifecycle == Lifecycle::Draining && rng.chance(30);
        view.region = rng.chance(60).then(|| format!("r{}", rng.below(2)));
    }
    for n in 0..1 + rng.below(5) {
        let key = StreamKey::new(Kind::Stream, "default", &format!("s{n}")).unwrap();
        let (shards, factor) = (rng.range(1, 12), rng.range(1, 3));
        add_stream(&mut s, &key, shards, factor);
        let stream = s.streams.get_mut(&key).unwrap();
        stream.durable = rng.chance(80);
        stream.region = rng.chance(15).then(|| format!("r{}", rng.below(2)));
        for number in 0..shards {
            if rng.chance(85) {
                let a = assignment(rng, key.shard(number), brokers, factor as usize, now);
                add_reports(rng, &mut s, &a);
                s.assignments.insert(a.shard.clone(), a);
            } else if rng.chance(50) {
                s.unassigned.insert(key.shard(number), marker(rng, brokers));
            }
        }
    }
    add_loads(rng, &mut s);
    s
}

fn marker(rng: &mut Rng, brokers: usize) -> Marker {
    let any = |rng: &mut Rng| rng.chance(60).then(|| broker(rng.below(brokers)));
    let (from_broker, to_broker) = (any(rng), any(rng));
    Marker { reason: MarkerReason::Unload, from_broker, to_broker }
}

/// Load reports, and now and then load rebalancing with a history of moves.
fn add_loads(rng: &mut Rng, s: &mut Snapshot) {
    s.policy.assignment_strategy =
        [Strategy::Fair, Strategy::Balanced, Strategy::WeightedLoad][rng.below(3)];
    s.policy.rebalancing.enabled = rng.chance(40);
    let leaders: Vec<(ShardKey, Option<BrokerId>)> =
        s.assignments.values().map(|a| (a.shard.clone(), a.leader.clone())).collect();
    for (id, view) in &mut s.brokers {
        let mut rows = Vec::new();
        for (shard, leader) in &leaders {
            if rng.chance(if leader.as_ref() == Some(id) { 80 } else { 5 }) {
                rows.push(json!({"shard": shard, "producers": rng.below(9)}));
            }
        }
        let report = json!({"reported_at_ms": s.as_of_ms - 30_000, "shards": rows,
            "cpu_percent": rng.below(100), "memory_percent": rng.below(100)});
        view.load = rng.chance(80).then(|| serde_json::from_value(report).unwrap());
    }
    for (shard, _) in leaders.iter().filter(|_| s.policy.rebalancing.enabled) {
        if rng.chance(10) {
            s.history.push(HistoryEntry {
                at_ms: s.as_of_ms - i64::from(rng.range(1, 4_000_000)),
                shard: shard.clone(),
                from: None,
                to: None,
                reason: MoveReason::Load,
                outcome: MoveOutcome::CutOver,
            });
        }
    }
    s.history.sort_by_key(|h| h.at_ms);
}

fn assignment(
    rng: &mut Rng,
    shard: ShardKey,
    brokers: usize,
    factor: usize,
    now: i64,
) -> Assignment {
    // One broker more than there are: it is gone from the list.
    let mut ids: Vec<BrokerId> = (0..=brokers).map(broker).collect();
    rng.shuffle(&mut ids);
    let voters = 1 + rng.below(factor.min(brokers - 1));
    let mut a = Assignment::new(shard, ids[0].clone(), ids[1..voters].to_vec());
    a.generation = u64::from(rng.range(1, 9));
    a.state = if rng.chance(80) { ShardState::Active } else { ShardState::Assigning };
    let other = ids[voters].clone();
    let record = |reason| Move {
        reason,
        started_at_ms: now - 60_000,
        fenced_at_ms: None,
        progress_at_ms: None,
        give_ups: 0,
        next_try_ms: None,
    };
    match rng.below(10) {
        0 => {
            a.successor = Some(if voters > 1 && rng.chance(50) { ids[1].clone() } else { other });
            a.move_ = Some(record(MoveReason::StreamBalance));
            if rng.chance(50) {
                a.state = ShardState::Draining;
            }
        }
        1 => {
            a.joining = Some(other);
            a.leaving = (voters > 1).then(|| ids[1].clone());
            a.move_ = Some(record(MoveReason::Restore));
        }
        2 => {
            let rests = rng.chance(50).then(|| now + i64::from(rng.range(0, 9_000)));
            let gave_up = Move { give_ups: 1, next_try_ms: rests, ..record(MoveReason::Drain) };
            a.move_ = Some(gave_up);
        }
        _ => {}
    }
    a
}

fn add_reports(rng: &mut Rng, s: &mut Snapshot, a: &Assignment) {
    let members: Vec<BrokerId> = a.members().into_iter().map(|(b, _)| b.clone()).collect();
    for member in members {
        if rng.chance(25) {
            continue;
        }
        let caught_up = rng.chance(70);
        let lag = if caught_up { 0 } else { rng.range(0, 5000) };
        let rest = json!({"caught_up": caught_up, "lag_records": lag,
            "log_end": rng.range(0, 2000), "drained": rng.chance(30)});
        s.reports.entry(a.shard.clone()).or_default().push(report(a, &member, rest));
    }
}

/// Load reports of some brokers, with a row for each shard they lead.
pub(crate) fn loads(rng: &mut Rng, s: &mut Snapshot) {
    let ids: Vec<BrokerId> = s.brokers.keys().cloned().collect();
    for id in ids {
        if rng.chance(30) {
            continue;
        }
        let led = s.assignments.values().filter(|a| a.leader.as_ref() == Some(&id));
        let row = |a: &Assignment| {
            json!({"shard": a.shard, "bytes_per_second": rng.range(0, 1000),
                "size_bytes": rng.range(0, 5000), "backlog": rng.range(0, 9)})
        };
        let rows: Vec<serde_json::Value> = led.map(row).collect();
        let report = json!({"reported_at_ms": s.as_of_ms - i64::from(rng.range(0, 120_000)),
            "cpu_percent": rng.range(0, 100), "memory_percent": rng.range(0, 100), "shards": rows});
        let report = serde_json::from_value(report).unwrap();
        s.brokers.get_mut(&id).unwrap().load = Some(report);
    }
}
