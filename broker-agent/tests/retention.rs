//! Old records are given up in running agents: readers are told where to go on, and a copy goes on
//! from the new start.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use evenkeel_model::Assignment;
use evenkeel_proto::data::SubscribeRequest;
use evenkeel_proto::data::subscribe_response::Event;
use evenkeel_proto::migrations::migrator_message::Message as Down;
use evenkeel_proto::refusal::first_offset;
use tokio::time::{sleep, timeout};
use tonic::Status;

use support::migrator::{Line, line_of, migrator};
use support::{Cluster, PATIENCE, Running, id, publish_batch, shard};

const PAYLOAD: usize = 1024;
const BATCH: u64 = 100;

/// More is kept than what a leader ships to a learner by itself.
const KEPT: u64 = 2_000_000;
const RECORDS: u64 = 3000;

async fn fill(cluster: &Cluster, records: std::ops::RangeInclusive<u64>) {
    let mut client = cluster.client("b1").await;
    for first in records.step_by(BATCH as usize) {
        publish_batch(&mut client, &shard(0), first, BATCH, PAYLOAD).await;
    }
}

/// The sequences of all records from an offset on.
async fn read(cluster: &Cluster, broker: &str, from_offset: u64) -> Result<Vec<u64>, Status> {
    let mut client = cluster.client(broker).await;
    let shard = shard(0).to_string();
    let asked = SubscribeRequest { shard, from_offset, stop_at_end: true, began_offset: None };
    let mut events = client.subscribe(asked).await?.into_inner();
    let mut sequences = Vec::new();
    while let Some(response) = events.message().await? {
        if let Some(Event::Records(batch)) = response.event {
            sequences.extend(batch.records.iter().map(|record| record.sequence));
        }
    }
    Ok(sequences)
}

/// Where a reader from 0 is told to go on, once that is past an offset.
async fn begins(cluster: &Cluster, past: u64) -> u64 {
    let found = timeout(PATIENCE, async {
        loop {
            if let Err(status) = read(cluster, "b1", 0).await
                && let Some(first) = first_offset(&status).filter(|first| *first > past)
            {
                return first;
            }
            sleep(Duration::from_millis(50)).await;
        }
    });
    found.await.expect("nothing is given up")
}

/// Agents that give old records up, `b1` leading.
async fn with_old_records() -> (Cluster, Vec<Running>, Assignment) {
    let mut cluster = Cluster::start().await;
    let mut agents = Vec::new();
    for broker in ["b1", "b2", "b3"] {
        let mut config = cluster.config(broker);
        config.log.segment_bytes = 128 << 10;
        config.log.retention_bytes = KEPT;
        agents.push(cluster.run(config));
        cluster.registered(broker).await;
    }
    let assignment = Assignment::new(shard(0), id("b1"), vec![id("b2")]);
    cluster.assign(&assignment).await;
    cluster.serving("b1", &shard(0), 1).await;
    fill(&cluster, 1..=RECORDS).await;
    (cluster, agents, assignment)
}

/// Orders the copy, again if it fails, until it is level.
async fn copied(cluster: &Cluster, line: &mut Line) {
    line.tell(Down::Order(cluster.repair_order().await)).await;
    loop {
        line.grant(2, 500_000).await;
        match line.progress(|_| true).await.state.as_str() {
            "level" => return,
            "failed" => line.tell(Down::Order(cluster.repair_order().await)).await,
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_goes_on_from_the_new_start_when_what_it_needs_is_given_up() {
    let (mut cluster, _agents, mut assignment) = with_old_records().await;
    let first = begins(&cluster, 0).await;
    assert_eq!(read(&cluster, "b1", first).await.unwrap().last(), Some(&RECORDS));

    let (mut sessions, _stop) = migrator(&cluster, 5).await;
    let mut line = line_of(&mut sessions, "b3").await;
    assignment.generation = 2;
    assignment.joining = Some(id("b3"));
    cluster.assign(&assignment).await;
    cluster.serving("b1", &shard(0), 2).await;
    line.tell(Down::Order(cluster.repair_order().await)).await;
    // A grant that comes before the leader let the log begin at its start expires unused.
    let half = loop {
        line.grant(2, 200_000).await;
        let progress = line.progress(|_| true).await;
        if progress.bytes_verified >= 400_000 {
            break progress;
        }
    };
    assert!(half.durable_offset >= first + 300, "it began at the source's start: {half:?}");

    // What the copy has, and what it would need next, is given up.
    fill(&cluster, RECORDS + 1..=2 * RECORDS).await;
    let later = begins(&cluster, half.durable_offset + 1000).await;
    copied(&cluster, &mut line).await;
    cluster.report("b3", &shard(0), "caught up", |r| r.generation == 2 && r.caught_up).await;

    let expected = read(&cluster, "b1", later).await.unwrap();
    assert_eq!(expected.last(), Some(&(2 * RECORDS)));
    assert!(expected.is_sorted_by(|a, b| a + 1 == *b), "a hole");
    assignment.generation = 3;
    assignment.joining = None;
    assignment.leader = Some(id("b3"));
    assignment.followers = vec![id("b1"), id("b2")];
    cluster.assign(&assignment).await;
    cluster.serving("b3", &shard(0), 3).await;
    assert_eq!(read(&cluster, "b3", later).await.unwrap(), expected);
}
