//! Commands that describe the cluster.

use std::collections::BTreeMap;

use evenkeel_model::{
    Assignment, BrokerId, BrokerView, CopyPauseRecord, HistoryEntry, Kind, LoadReport, Marker,
    Move, ShardKey, ShardLoad, ShardReport, Snapshot, Stream, StreamKey,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// `key=value` words of a command, and the words without a `=`.
pub(super) struct Words<'a> {
    pub(super) plain: Vec<&'a str>,
    pub(super) named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn new(words: &[&'a str]) -> Self {
        let mut split = Self { plain: Vec::new(), named: BTreeMap::new() };
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => {
                    split.named.insert(key, value);
                }
                None => split.plain.push(word),
            }
        }
        split
    }

    pub(super) fn flag(&self, word: &str) -> bool {
        self.plain.contains(&word)
    }

    pub(super) fn get<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, String> {
        let parse = |v: &&str| v.parse().map_err(|_| format!("{key}={v} cannot be read"));
        self.named.get(key).map(parse).transpose()
    }

    fn ids(&self, key: &str) -> Result<Vec<BrokerId>, String> {
        let list = self.named.get(key).copied().unwrap_or_default();
        list.split(',').filter(|id| !id.is_empty()).map(broker).collect()
    }
}

pub(super) fn broker(id: &str) -> Result<BrokerId, String> {
    id.parse().map_err(|e| format!("{e}"))
}

/// `orders` is `stream/default/orders`, `cache:orders` is `cache/default/orders`.
pub(super) fn stream(name: &str) -> Result<StreamKey, String> {
    let (kind, name) = match name.strip_prefix("cache:") {
        Some(name) => (Kind::Cache, name),
        None => (Kind::Stream, name),
    };
    let (namespace, name) = name.split_once('.').unwrap_or(("default", name));
    StreamKey::new(kind, namespace, name).map_err(|e| e.to_string())
}

pub(super) fn shard(name: &str) -> Result<ShardKey, String> {
    let (name, number) = name.rsplit_once('/').ok_or("a shard is name/number")?;
    Ok(stream(name)?.shard(number.parse().map_err(|_| "a shard is name/number")?))
}

fn word<T: DeserializeOwned>(value: &str) -> Result<T, String> {
    serde_json::from_value(json!(value)).map_err(|e| e.to_string())
}

/// `-5000` and `+5000` are relative to now; times are milliseconds.
pub(super) fn time(now: i64, value: &str) -> Result<i64, String> {
    let number: i64 = value.parse().map_err(|_| format!("'{value}' is no time"))?;
    Ok(if value.starts_with(['-', '+']) { now + number } else { number })
}

fn times(words: &Words<'_>, now: i64, key: &str) -> Result<Option<i64>, String> {
    words.named.get(key).map(|v| time(now, v)).transpose()
}

/// `brokers a b c zone=z1 max=2 lifecycle=down since=-5000 …`, adds or changes.
pub(super) fn brokers(s: &mut Snapshot, words: &Words<'_>) -> Result<(), String> {
    let now = s.as_of_ms;
    for id in words.plain.iter().filter(|w| !["unregistered", "stopping"].contains(w)) {
        let view = s.brokers.entry(broker(id)?).or_insert(BrokerView::live(now - 3_600_000));
        view.stopping = words.flag("stopping");
        view.registered = !words.flag("unregistered");
        if let Some(l) = words.named.get("lifecycle") {
            view.lifecycle = word(l)?;
            view.since_ms = now - 3_600_000;
        }
        view.since_ms = times(words, now, "since")?.unwrap_or(view.since_ms);
        view.last_seen_ms = times(words, now, "seen")?.unwrap_or(view.last_seen_ms);
        view.zone = words.get("zone")?.or(view.zone.take());
        view.region = words.get("region")?.or(view.region.take());
        view.max_shards = words.get("max")?.or(view.max_shards);
        view.weight = words.get("weight")?.unwrap_or(view.weight);
    }
    Ok(())
}

/// `stream orders shards=12 rf=3 leaders=b1:1,b2:10 followers=all|b1,b2 level`: leaders are given
/// out in that order, `followers=all` are the next brokers after the leader, `level` reports all
/// of them caught up.
pub(super) fn add_stream(s: &mut Snapshot, words: &Words<'_>) -> Result<(), String> {
    let names: Vec<&str> = words.plain.iter().filter(|w| **w != "level").copied().collect();
    for name in names {
        let key = stream(name)?;
        let age: i64 = words.get("age")?.unwrap_or(3_600_000);
        let record = Stream {
            v: 1,
            stream: key.clone(),
            shards: words.get("shards")?.unwrap_or(1),
            replication_factor: words.get("rf")?.unwrap_or(1),
            durable: words.get("durable")?.unwrap_or(true),
            created_at_ms: Some(s.as_of_ms - age),
            region: words.get("region")?,
        };
        let mut leaders = Vec::new();
        for part in words.named.get("leaders").copied().unwrap_or_default().split(',') {
            let (id, count) = part.split_once(':').unwrap_or((part, "1"));
            let count: usize = count.parse().map_err(|_| format!("leaders={part}"))?;
            for _ in 0..if id.is_empty() { 0 } else { count } {
                leaders.push(broker(id)?);
            }
        }
        if leaders.len() > record.shards as usize {
            return Err(format!("{} leaders for {} shards", leaders.len(), record.shards));
        }
        for (number, leader) in leaders.into_iter().enumerate() {
            let followers = followers(s, words, &record, &leader)?;
            let shard = key.shard(number as u32);
            let mut assignment = Assignment::new(shard.clone(), leader, followers);
            assignment.state = evenkeel_model::ShardState::Active;
            if words.flag("level") {
                level(s, &assignment);
            }
            s.assignments.insert(shard, assignment);
        }
        s.streams.insert(key, record);
    }
    Ok(())
}

fn followers(
    s: &Snapshot,
    words: &Words<'_>,
    record: &Stream,
    leader: &BrokerId,
) -> Result<Vec<BrokerId>, String> {
    if words.named.get("followers") != Some(&"all") {
        return words.ids("followers");
    }
    let ids: Vec<&BrokerId> = s.brokers.keys().collect();
    let at = ids.iter().position(|id| *id == leader).ok_or("leader is no broker")?;
    let next = (1..ids.len()).map(|i| ids[(at + i) % ids.len()].clone());
    Ok(next.take(record.replication_factor as usize - 1).collect())
}

fn level(s: &mut Snapshot, a: &Assignment) {
    for broker in a.voters() {
        let text = json!({"broker": broker, "shard": a.shard, "generation": a.generation,
            "caught_up": true, "lag_records": 0, "log_end": 100});
        let report: ShardReport = serde_json::from_value(text).unwrap();
        s.reports.entry(a.shard.clone()).or_default().push(report);
    }
}

/// `assign orders/0 leader=a followers=b,c gen=4 state=draining successor=b joining=b leaving=c
/// move=drain started=-5 fenced=-5 progress=-5 giveups=1 next=+5`.
pub(super) fn assign(s: &mut Snapshot, words: &Words<'_>) -> Result<(), String> {
    let now = s.as_of_ms;
    let key = shard(words.plain.first().ok_or("which shard?")?)?;
    let move_ = match words.named.get("move") {
        None => None,
        Some(reason) => Some(Move {
            reason: word(reason)?,
            started_at_ms: times(words, now, "started")?.unwrap_or(now),
            fenced_at_ms: times(words, now, "fenced")?,
            progress_at_ms: times(words, now, "progress")?,
            give_ups: words.get("giveups")?.unwrap_or(0),
            next_try_ms: times(words, now, "next")?,
        }),
    };
    let assignment = Assignment {
        shard: key.clone(),
        leader: words.get("leader")?,
        followers: words.ids("followers")?,
        generation: words.get("gen")?.unwrap_or(1),
        state: word(words.named.get("state").copied().unwrap_or("active"))?,
        successor: words.get("successor")?,
        joining: words.get("joining")?,
        leaving: words.get("leaving")?,
        move_,
    };
    s.assignments.insert(key, assignment);
    Ok(())
}

/// `report b orders/0 gen=4 lag=10 end=100 caught_up drained declined phase=serving
/// halted=why`.
pub(super) fn report(s: &mut Snapshot, words: &Words<'_>) -> Result<(), String> {
    let [id, name, ..] = words.plain[..] else { return Err("report BROKER SHARD".into()) };
    let key = shard(name)?;
    let generation = s.assignments.get(&key).map_or(1, |a| a.generation);
    let report = ShardReport {
        broker: broker(id)?,
        shard: key.clone(),
        generation: words.get("gen")?.unwrap_or(generation),
        phase: words.named.get("phase").map(|p| word(p)).transpose()?,
        caught_up: words.flag("caught_up"),
        lag_records: words.get("lag")?,
        drained: words.flag("drained"),
        halted: words.get("halted")?,
        log_end: words.get("end")?,
        declined: words.flag("declined"),
    };
    let reports = s.reports.entry(key).or_default();
    reports.retain(|r| r.broker != report.broker);
    reports.push(report);
    Ok(())
}

/// `marker orders/0 reason=unload from=a to=b`.
pub(super) fn marker(s: &mut Snapshot, words: &Words<'_>) -> Result<(), String> {
    let key = shard(words.plain.first().ok_or("which shard?")?)?;
    let reason = word(words.named.get("reason").copied().unwrap_or("new"))?;
    let marker = Marker { reason, from_broker: words.get("from")?, to_broker: words.get("to")? };
    s.unassigned.insert(key, marker);
    Ok(())
}

/// `pause class/drain by=ann reason=rack at=-5000 until=+5000`, or `pause shard/stream/default/s/0`.
pub(super) fn pause(s: &mut Snapshot, words: &Words<'_>) -> Result<(), String> {
    let scope = words.plain.first().ok_or("of what?")?;
    s.copy_pauses.push(CopyPauseRecord {
        v: 1,
        scope: scope.parse().map_err(|e| format!("{e}"))?,
        by: words.get("by")?.unwrap_or_else(|| "ann".to_owned()),
        reason: words.get("reason")?.unwrap_or_default(),
        at_ms: times(words, s.as_of_ms, "at")?.unwrap_or(s.as_of_ms),
        until_ms: times(words, s.as_of_ms, "until")?,
    });
    Ok(())
}

/// `history orders/0 at=-5000 reason=load from=a to=b outcome=cut_over`.
pub(super) fn history(s: &mut Snapshot, words: &Words<'_>) -> Result<(), String> {
    s.history.push(HistoryEntry {
        at_ms: times(words, s.as_of_ms, "at")?.unwrap_or(s.as_of_ms),
        shard: shard(words.plain.first().ok_or("which shard?")?)?,
        from: words.get("from")?,
        to: words.get("to")?,
        reason: word(words.named.get("reason").copied().unwrap_or("load"))?,
        outcome: word(words.named.get("outcome").copied().unwrap_or("cut_over"))?,
    });
    Ok(())
}

/// `load b1 cpu=50 mem=30 used=90 disk=0 net=0 age=1000 rows=led`, then `row b1 orders/0 bytes=… …`.
pub(super) fn load(s: &mut Snapshot, words: &Words<'_>) -> Result<(), String> {
    for id in &words.plain {
        let id = broker(id)?;
        let led = s.assignments.values().filter(|a| a.leader.as_ref() == Some(&id));
        let rows = if words.named.get("rows") == Some(&"led") {
            led.map(|a| json!({"shard": a.shard})).collect()
        } else {
            Vec::new()
        };
        let age: i64 = words.get("age")?.unwrap_or(1000);
        let report: LoadReport = serde_json::from_value(json!({
            "reported_at_ms": s.as_of_ms - age,
            "cpu_percent": words.get::<f64>("cpu")?, "memory_percent": words.get::<f64>("mem")?,
            "disk_used_percent": words.get::<f64>("used")?,
            "disk_io_bytes_per_second": words.get::<f64>("disk")?,
            "network_io_bytes_per_second": words.get::<f64>("net")?,
            "shards": rows,
        }))
        .map_err(|e| e.to_string())?;
        s.brokers.get_mut(&id).ok_or("load of an unknown broker")?.load = Some(report);
    }
    Ok(())
}

/// `row b1 orders/0 bytes=1000 producers=1 consumers=2 backlog=5`.
pub(super) fn row(s: &mut Snapshot, words: &Words<'_>) -> Result<(), String> {
    let [id, name, ..] = words.plain[..] else { return Err("row BROKER SHARD".into()) };
    let key = shard(name)?;
    let row: ShardLoad = serde_json::from_value(json!({
        "shard": key,
        "bytes_per_second": words.get::<f64>("bytes")?.unwrap_or(0.0),
        "producers": words.get::<u32>("producers")?.unwrap_or(0),
        "consumers": words.get::<u32>("consumers")?.unwrap_or(0),
        "backlog": words.get::<u64>("backlog")?.unwrap_or(0),
    }))
    .map_err(|e| e.to_string())?;
    let view = s.brokers.get_mut(&broker(id)?).ok_or("row of an unknown broker")?;
    let report = view.load.as_mut().ok_or("row of a broker without a report")?;
    report.shards.retain(|r| r.shard != row.shard);
    report.shards.push(row);
    Ok(())
}

/// `policy moves_max_concurrent=2 rebalancing.enabled=true`.
pub(super) fn policy(s: &mut Snapshot, words: &Words<'_>) -> Result<(), String> {
    for (key, value) in &words.named {
        let value: Value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        let patch = key.rsplit('.').fold(value, |v, part| json!({ part: v }));
        s.policy = s.policy.merged(&patch).map_err(|e| e.to_string())?;
    }
    Ok(())
}
