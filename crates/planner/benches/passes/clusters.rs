//! Large clusters, the same every time.

use evenkeel_model::{
    Assignment, BrokerId, BrokerView, Kind, LoadReport, Phase, ShardKey, ShardLoad, ShardReport,
    ShardState, Snapshot, Stream, StreamKey,
};

/// The size of a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) shards: u32,
    pub(crate) per_stream: u32,
    pub(crate) replicas: usize,
    pub(crate) brokers: usize,
    pub(crate) zones: usize,
    pub(crate) loads: bool,
}

/// A value of this process' memory, KiB, as Linux gives it.
pub(crate) fn memory(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn broker_id(n: usize) -> BrokerId {
    BrokerId::new(&format!("broker-{n:04}")).unwrap()
}

/// Streams and brokers, nothing placed.
pub(crate) fn unplaced(shape: Shape) -> Snapshot {
    let mut s = Snapshot::empty(1_700_000_000_000);
    for n in 0..shape.brokers {
        let view = BrokerView {
            last_seen_ms: s.as_of_ms,
            zone: (shape.zones > 0).then(|| format!("z{}", n % shape.zones)),
            ..BrokerView::live(s.as_of_ms - 3_600_000)
        };
        s.brokers.insert(broker_id(n), view);
    }
    for n in 0..shape.shards.div_ceil(shape.per_stream) {
        let key = StreamKey::new(Kind::Stream, "default", &format!("stream-{n:06}")).unwrap();
        let stream = Stream {
            v: 1,
            stream: key.clone(),
            shards: shape.per_stream.min(shape.shards - n * shape.per_stream),
            replication_factor: shape.replicas as u32,
            durable: true,
            created_at_ms: Some(s.first_registered_ms),
            region: None,
        };
        s.streams.insert(key, stream);
    }
    s
}

/// Everything placed evenly, every stream level, replicas in different zones.
pub(crate) fn settled(shape: Shape) -> Snapshot {
    let mut s = unplaced(shape);
    let ids: Vec<BrokerId> = s.brokers.keys().cloned().collect();
    let keys: Vec<ShardKey> =
        s.streams.values().flat_map(|t| (0..t.shards).map(|n| t.stream.shard(n))).collect();
    for (n, key) in keys.into_iter().enumerate() {
        let at = |i: usize| ids[(n + i) % ids.len()].clone();
        let followers = (1..shape.replicas).map(at).collect();
        let mut a = Assignment::new(key.clone(), at(0), followers);
        a.state = ShardState::Active;
        if shape.loads {
            add_row(&mut s, &key, at(0), n);
        }
        s.assignments.insert(key, a);
    }
    s
}

fn add_row(s: &mut Snapshot, key: &ShardKey, leader: BrokerId, n: usize) {
    let as_of_ms = s.as_of_ms;
    let view = s.brokers.get_mut(&leader).unwrap();
    let report = view.load.get_or_insert_with(|| LoadReport {
        v: 1,
        reported_at_ms: as_of_ms - 5000,
        incarnation: 1,
        disk_used_percent: None,
        cpu_percent: Some(40.0),
        memory_percent: Some(50.0),
        disk_io_bytes_per_second: Some(1e6),
        network_io_bytes_per_second: Some(1e6),
        shards: Vec::new(),
    });
    report.shards.push(ShardLoad {
        shard: key.clone(),
        messages_per_second: 100.0,
        bytes_per_second: 10_000.0 + n as f64 % 1000.0,
        producers: 1,
        consumers: 2,
        subscriptions: 1,
        backlog: n as u64 % 100,
        size_bytes: 1_000_000_000,
        log_end: 1_000_000,
    });
}

/// Lets the first broker lead so many shards, by changing places with their leaders.
pub(crate) fn lead_at_least(s: &mut Snapshot, count: usize) {
    let first = s.brokers.keys().next().unwrap().clone();
    let mut led = s.assignments.values().filter(|a| a.leader.as_ref() == Some(&first)).count();
    for a in s.assignments.values_mut() {
        if led < count && a.followers.contains(&first) {
            let leader = a.leader.replace(first.clone()).unwrap();
            a.followers.retain(|f| *f != first);
            a.followers.push(leader);
            led += 1;
        }
    }
    let mut others = s.assignments.values_mut().filter(|a| !a.voters().any(|b| *b == first));
    while led < count {
        let a = others.next().unwrap();
        a.leader = Some(first.clone());
        led += 1;
    }
}

/// Every replica reports that it holds everything.
pub(crate) fn report_all(s: &mut Snapshot) {
    for (shard, a) in &s.assignments {
        let report = |broker: &BrokerId| ShardReport {
            broker: broker.clone(),
            shard: shard.clone(),
            generation: a.generation,
            phase: Some(if a.leader.as_ref() == Some(broker) {
                Phase::Serving
            } else {
                Phase::Following
            }),
            caught_up: true,
            lag_records: Some(0),
            drained: false,
            halted: None,
            log_end: Some(1_000_000),
            declined: false,
        };
        s.reports.insert(shard.clone(), a.voters().map(report).collect());
    }
}
