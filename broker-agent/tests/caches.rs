//! A cache that running agents compact: readers that began before see each record once, those that
//! begin later see the newest of each key.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_model::{Assignment, ShardKey};
use evenkeel_proto::data::subscribe_response::Event;
use evenkeel_proto::data::{
    PublishRequest, Record, StoredRecord, SubscribeRequest, SubscribeResponse,
};
use evenkeel_proto::refusal::first_offset;
use tokio::time::{sleep, timeout};
use tonic::{Status, Streaming};

use support::{Cluster, PATIENCE, id};

const VALUE_BYTES: usize = 1024;
const KEYS: u64 = 10;

fn cache() -> ShardKey {
    "cache/default/prices/0".parse().unwrap()
}

fn record(key: &str, sequence: u64) -> Record {
    let payload = vec![sequence as u8; VALUE_BYTES].into();
    Record { payload, producer_id: 9, sequence, key: Some(key.to_owned().into()) }
}

async fn publish(cluster: &Cluster, broker: &str, records: Vec<Record>) {
    let request = PublishRequest { shard: cache().to_string(), records, forwarded: false };
    cluster.client(broker).await.publish(request).await.unwrap();
}

/// New values of a few keys, in turn.
async fn fill(cluster: &Cluster, broker: &str, sequences: std::ops::Range<u64>) {
    for first in sequences.clone().step_by(100) {
        let batch = first..(first + 100).min(sequences.end);
        let records = batch.map(|n| record(&format!("k{}", n % KEYS), n)).collect();
        publish(cluster, broker, records).await;
    }
}

async fn subscribe(
    cluster: &Cluster,
    broker: &str,
    from_offset: u64,
    began_offset: Option<u64>,
    stop_at_end: bool,
) -> Result<Streaming<SubscribeResponse>, Status> {
    let shard = cache().to_string();
    let asked = SubscribeRequest { shard, from_offset, stop_at_end, began_offset };
    Ok(cluster.client(broker).await.subscribe(asked).await?.into_inner())
}

/// The next records; `None` at the end.
async fn next(
    events: &mut Streaming<SubscribeResponse>,
) -> Result<Option<Vec<StoredRecord>>, Status> {
    let event = timeout(PATIENCE, events.message()).await.expect("no record comes")?;
    match event.and_then(|event| event.event) {
        Some(Event::Records(batch)) => Ok(Some(batch.records)),
        _ => Ok(None),
    }
}

/// Everything from an offset on.
async fn read(
    cluster: &Cluster,
    broker: &str,
    from_offset: u64,
    began_offset: Option<u64>,
) -> Result<Vec<StoredRecord>, Status> {
    let mut events = subscribe(cluster, broker, from_offset, began_offset, true).await?;
    let mut records = Vec::new();
    while let Some(more) = next(&mut events).await? {
        records.extend(more);
    }
    Ok(records)
}

/// The records for a reader that begins where the log does, or goes on there, once that is past an
/// offset.
async fn kept(
    cluster: &Cluster,
    broker: &str,
    past: u64,
    began_offset: Option<u64>,
) -> Vec<StoredRecord> {
    let found = timeout(PATIENCE, async {
        let mut from = 0;
        loop {
            match read(cluster, broker, from, began_offset).await {
                Ok(records) if from > past => return records,
                Ok(_) => sleep(Duration::from_millis(100)).await,
                Err(status) => from = first_offset(&status).unwrap(),
            }
        }
    });
    found.await.expect("nothing is given up")
}

/// The newest sequence of each key.
fn newest(records: &[StoredRecord]) -> BTreeMap<String, u64> {
    records.iter().map(|r| (String::from_utf8_lossy(r.key()).into(), r.sequence)).collect()
}

fn expected(end: u64) -> BTreeMap<String, u64> {
    let newest = (end - KEYS..end).map(|n| (format!("k{}", n % KEYS), n));
    newest.chain([("once".to_owned(), 1)]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_sees_each_record_once_and_a_new_one_the_newest_of_each_key() {
    let mut cluster = Cluster::start().await;
    let mut agents = Vec::new();
    for broker in ["b1", "b2", "b3"] {
        let mut config = cluster.config(broker);
        config.log.segment_bytes = 64 << 10;
        agents.push(cluster.run(config));
        cluster.registered(broker).await;
    }
    let mut assignment = Assignment::new(cache(), id("b1"), vec![id("b2"), id("b3")]);
    cluster.assign(&assignment).await;
    cluster.serving("b1", &cache(), 1).await;

    let mut events = subscribe(&cluster, "b1", 0, None, false).await.unwrap();
    let reader = tokio::spawn(async move {
        let mut sequences = Vec::new();
        while sequences.last() != Some(&1001) {
            let records = next(&mut events).await.unwrap().unwrap();
            sequences.extend(records.iter().map(|r| r.sequence));
        }
        sequences
    });
    publish(&cluster, "b1", vec![record("once", 1)]).await;
    fill(&cluster, "b1", 2..1001).await;
    assert_eq!(newest(&kept(&cluster, "b1", 500, None).await), expected(1001));
    publish(&cluster, "b1", vec![record("k1", 1001)]).await;
    let sequences = reader.await.unwrap();
    assert!(sequences.iter().copied().eq(1..=1001), "{sequences:?}");
    // Nor is one sent again to a reader that goes on and says where it began.
    let going_on = newest(&kept(&cluster, "b1", 500, Some(0)).await);
    assert!(!going_on.contains_key("once"), "{going_on:?}");

    // Another one leads, and compacts what it has.
    assignment.generation = 2;
    assignment.leader = Some(id("b2"));
    assignment.followers = vec![id("b1"), id("b3")];
    cluster.assign(&assignment).await;
    cluster.serving("b2", &cache(), 2).await;
    fill(&cluster, "b2", 1002..2001).await;
    assert_eq!(newest(&kept(&cluster, "b2", 1500, None).await), expected(2001));
}
