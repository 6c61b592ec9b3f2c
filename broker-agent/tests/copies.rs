//! A copy under a migrator's orders and grants, played by the test: within credit, resumed,
//! verified, then fed by the leader.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_model::Assignment;
use evenkeel_proto::copy::pull_request::Request as Ask;
use evenkeel_proto::copy::shard_copy_client::ShardCopyClient;
use evenkeel_proto::copy::{Credit, DigestRequest, Open, PullRequest};
use evenkeel_proto::migrations::migrator_message::Message as Down;
use evenkeel_proto::migrations::{CopyOrder, CopyProgress};
use evenkeel_proto::refusal::Reason;
use evenkeel_runtime::Network;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use support::damaging::{Damage, damaging};
use support::migrator::{Line, line_of, migrator};
use support::{Cluster, PATIENCE, id, publish, publish_batch, shard};

/// More than what a leader ships to a learner by itself.
const RECORDS: u64 = 3000;
const PAYLOAD: usize = 1024;
const BATCH: u64 = 100;
const BYTES: u64 = RECORDS * PAYLOAD as u64;

/// `b1` leads a shard with some bytes in it; `b2` follows; `b3` is to join.
async fn with_a_joiner() -> (Cluster, Vec<support::Running>, CopyOrder) {
    let mut cluster = Cluster::start().await;
    let agents = cluster.agents(&["b1", "b2", "b3"]).await;
    let mut assignment = Assignment::new(shard(0), id("b1"), vec![id("b2")]);
    cluster.assign(&assignment).await;
    cluster.serving("b1", &shard(0), 1).await;
    let mut client = cluster.client("b1").await;
    for first in (1..=RECORDS).step_by(BATCH as usize) {
        publish_batch(&mut client, &shard(0), first, BATCH, PAYLOAD).await;
    }
    assignment.generation = 2;
    assignment.joining = Some(id("b3"));
    cluster.assign(&assignment).await;
    cluster.serving("b1", &shard(0), 2).await;
    let order = cluster.repair_order().await;
    (cluster, agents.into_values().collect(), order)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_moves_only_what_was_granted_and_ends_level() {
    let (cluster, _agents, order) = with_a_joiner().await;
    let (mut sessions, _stop) = migrator(&cluster, 5).await;
    let mut line = line_of(&mut sessions, "b3").await;
    line.tell(Down::Order(order)).await;
    let opened = line.progress(|p| p.state == "running").await;
    assert_eq!((opened.generation, opened.bytes_verified), (2, 0));

    line.grant(2, 200_000).await;
    let paused = line.progress(|p| p.bytes_verified >= 200_000).await;
    assert!(paused.bytes_verified < 200_000 + 16 * 1024 + 8192, "{paused:?}");
    assert!(paused.bytes_remaining > 0);
    // Nothing flows without grants.
    let later = line.progress(|p| p.state == "waiting_credit").await;
    assert_eq!(later.bytes_verified, paused.bytes_verified);

    let level = loop {
        line.grant(2, 500_000).await;
        let progress = line.progress(|_| true).await;
        if progress.state == "level" {
            break progress;
        }
        assert_ne!(progress.state, "failed", "{progress:?}");
    };
    // The leader ships the last thousand by itself once the copy is that near.
    assert!(level.bytes_verified > BYTES / 2, "{level:?}");
    // From here on the leader feeds it.
    let mut client = cluster.client("b1").await;
    publish(&mut client, &shard(0), RECORDS + 1).await.unwrap();
    let report =
        cluster.report("b3", &shard(0), "caught up", |r| r.generation == 2 && r.caught_up).await;
    assert_eq!(report.halted, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_migrator_goes_on_where_the_last_one_died() {
    let (cluster, _agents, order) = with_a_joiner().await;
    let (mut sessions, stop) = migrator(&cluster, 5).await;
    let mut line = line_of(&mut sessions, "b3").await;
    line.tell(Down::Order(order.clone())).await;
    line.progress(|p| p.state == "running").await;
    line.grant(2, 400_000).await;
    let before = line.progress(|p| p.bytes_verified >= 400_000).await;
    stop.trigger();
    drop((line, sessions));

    let (mut sessions, _stop) = migrator(&cluster, 6).await;
    let mut line = line_of(&mut sessions, "b3").await;
    let mut repeated = order;
    repeated.source = "b1".to_owned();
    repeated.source_address = cluster.address("b1").await;
    line.tell(Down::Order(repeated)).await;
    let level = loop {
        line.grant(2, 1_000_000).await;
        let progress = line.progress(|_| true).await;
        if progress.state == "level" && progress.durable_offset > before.durable_offset {
            break progress;
        }
        assert_ne!(progress.state, "failed", "{progress:?}");
    };
    let second_part = BYTES + BYTES / 10 - before.bytes_verified;
    assert!(level.bytes_verified < second_part, "{before:?} then {level:?}");
}

/// Grants until the copy is level or has failed.
async fn to_its_end(line: &mut Line) -> CopyProgress {
    loop {
        line.grant(2, 500_000).await;
        let progress = line.progress(|_| true).await;
        if matches!(progress.state.as_str(), "level" | "failed") {
            return progress;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_has_just_started_does_not_call_a_part_the_whole() {
    let (cluster, mut agents, mut order) = with_a_joiner().await;
    let (mut sessions, _stop) = migrator(&cluster, 5).await;
    let mut line = line_of(&mut sessions, "b3").await;
    line.tell(Down::Order(order.clone())).await;
    line.progress(|p| p.state == "running").await;
    line.grant(2, 400_000).await;
    line.progress(|p| p.bytes_verified >= 400_000).await;
    agents.drain(..2).for_each(support::Running::kill);
    for broker in ["b1", "b2"] {
        let key = cluster.keys.registration(&id(broker));
        cluster.until("registrations to go", |get| get(&key).is_none().then_some(())).await;
    }
    // Without its leader a follower does not know what is committed.
    agents.push(cluster.run(cluster.config("b2")));
    order.source_address = cluster.registered("b2").await.address;
    line.tell(Down::Order(order.clone())).await;
    line.grant(2, 500_000).await;
    let told =
        |p: &CopyProgress| p.state == "level" || p.detail.contains("known to be committed here");
    let refused = line.progress(told).await;
    assert_ne!(refused.state, "level", "{refused:?}");
    agents.push(cluster.run(cluster.config("b1")));
    cluster.serving("b1", &shard(0), 2).await;
    let ended = loop {
        line.tell(Down::Order(order.clone())).await;
        line.grant(2, 500_000).await;
        let progress = line.progress(|_| true).await;
        if progress.state == "level" {
            break progress;
        }
    };
    assert!(ended.durable_offset >= RECORDS - 1000, "{ended:?}");
    let caught_up = |r: &evenkeel_model::ShardReport| r.generation == 2 && r.caught_up;
    cluster.report("b3", &shard(0), "caught up", caught_up).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_chunk_is_fetched_again_and_nothing_else() {
    let (cluster, _agents, mut order) = with_a_joiner().await;
    let (mut sessions, _stop) = migrator(&cluster, 5).await;
    let mut line = line_of(&mut sessions, "b3").await;
    let damage = Damage::new(20, 0);
    let (address, _source) = damaging(&order.source_address, damage.clone()).await;
    order.source_address = address;
    line.tell(Down::Order(order)).await;
    let level = to_its_end(&mut line).await;
    assert_eq!(level.state, "level", "{level:?}");
    assert_eq!(damage.chunks.load(Ordering::Acquire), 0, "it was damaged");
    let most = BYTES + BYTES / 10 + 64 * 1024;
    assert!(level.bytes_verified < most, "{} bytes for {BYTES}", level.bytes_verified);
    let caught_up = |r: &evenkeel_model::ShardReport| r.generation == 2 && r.caught_up;
    cluster.report("b3", &shard(0), "caught up", caught_up).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_differs_from_its_source_does_not_count_until_another_one_agrees() {
    let (cluster, _agents, mut order) = with_a_joiner().await;
    let (mut sessions, _stop) = migrator(&cluster, 5).await;
    let mut line = line_of(&mut sessions, "b3").await;
    let honest = order.clone();
    line.tell(Down::Order(order.clone())).await;
    line.progress(|p| p.state == "running").await;
    line.grant(2, 400_000).await;
    line.progress(|p| p.bytes_verified >= 400_000).await;
    // What another copy brought is compared with the source that is there now.
    let (address, _source) = damaging(&order.source_address, Damage::new(0, 1)).await;
    order.source_address = address;
    line.tell(Down::Order(order)).await;
    line.progress(|p| p.bytes_verified == 0).await;
    let failed = to_its_end(&mut line).await;
    assert_eq!(failed.state, "failed", "{failed:?}");
    assert!(failed.detail.contains("differ from the source"), "{failed:?}");
    let report = cluster.report("b3", &shard(0), "report", |r| r.generation == 2).await;
    assert!(!report.caught_up && report.lag_records.is_none(), "{report:?}");
    line.tell(Down::Order(honest)).await;
    line.progress(|p| p.state == "running").await;
    let level = to_its_end(&mut line).await;
    assert_eq!(level.state, "level", "{level:?}");
    let caught_up = |r: &evenkeel_model::ShardReport| r.generation == 2 && r.caught_up;
    cluster.report("b3", &shard(0), "caught up", caught_up).await;
}

/// Changes the payload of the first record in a segment file, and its checksum with it.
fn change_first_record(segment: &std::path::Path) {
    const AT: usize = 16;
    let mut bytes = std::fs::read(segment).unwrap();
    let length = u32::from_le_bytes(bytes[AT + 4..AT + 8].try_into().unwrap()) as usize + 8;
    let frame = &mut bytes[AT..AT + length];
    frame[length - 1] ^= 1;
    let checksum = crc32c::crc32c(&frame[4..]);
    frame[..4].copy_from_slice(&checksum.to_le_bytes());
    std::fs::write(segment, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_stored_as_it_came_is_thrown_away_and_fetched_again() {
    let (cluster, _agents, order) = with_a_joiner().await;
    let (mut sessions, _stop) = migrator(&cluster, 5).await;
    let mut line = line_of(&mut sessions, "b3").await;
    line.tell(Down::Order(order)).await;
    line.progress(|p| p.state == "running").await;
    // Less than is read back at once.
    line.grant(2, 300_000).await;
    line.progress(|p| p.bytes_verified >= 300_000).await;
    let folder = cluster.data_dir("b3").join("shards").join(shard(0).to_string());
    change_first_record(&folder.join("00000000000000000000.log"));
    let level = to_its_end(&mut line).await;
    assert_eq!(level.state, "level", "{level:?}");
    assert!(level.bytes_verified > BYTES + 300_000, "fetched again: {level:?}");
    let caught_up = |r: &evenkeel_model::ShardReport| r.generation == 2 && r.caught_up;
    cluster.report("b3", &shard(0), "caught up", caught_up).await;
    let channel = |address: String| ShardCopyClient::new(Network::tcp().channel(&address));
    let all = DigestRequest {
        shard: shard(0).to_string(),
        generation: 2,
        from_offset: 0,
        to_offset: level.durable_offset,
    };
    let mut digests = Vec::new();
    for broker in ["b1", "b3"] {
        let mut client = channel(cluster.address(broker).await);
        digests.push(client.digest(all.clone()).await.unwrap().into_inner());
    }
    assert_eq!(digests[0], digests[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_refuses_what_is_stale_and_sends_no_more_than_the_credit() {
    let (cluster, _agents, _) = with_a_joiner().await;
    let channel = Network::tcp().channel(&cluster.address("b1").await);
    let mut client = ShardCopyClient::new(channel);
    let open = |generation, token| Open {
        shard: shard(0).to_string(),
        generation,
        token,
        destination: "b3".to_owned(),
        start_offset: 0,
        start_generation: 0,
        max_chunk_bytes: 0,
        class: String::new(),
    };
    let request = |ask| PullRequest { request: Some(ask) };
    let digest = |generation| DigestRequest {
        shard: shard(0).to_string(),
        generation,
        from_offset: 0,
        to_offset: 10,
    };
    assert_eq!(client.digest(digest(2)).await.unwrap().into_inner().to_offset, 10);
    let stale = client.digest(digest(1)).await.unwrap_err();
    assert_eq!(Reason::of(&stale).unwrap().0, Reason::StaleGeneration, "{stale}");

    let (asks, requests) = mpsc::channel(8);
    asks.send(request(Ask::Open(open(2, 7)))).await.unwrap();
    asks.send(request(Ask::Credit(Credit { cumulative_bytes: 100_000 }))).await.unwrap();
    let mut chunks = client.pull(ReceiverStream::new(requests)).await.unwrap().into_inner();
    let mut sent = 0;
    while sent < 100_000 {
        sent += timeout(PATIENCE, chunks.next()).await.unwrap().unwrap().unwrap().frames.len();
    }
    assert!(sent < 100_000 + 16 * 1024 + 8192, "{sent}");
    let more = timeout(Duration::from_millis(300), chunks.next()).await;
    assert!(more.is_err(), "no credit is left: {more:?}");

    let refused = |open| {
        let mut client = client.clone();
        async move {
            let (asks, requests) = mpsc::channel(8);
            asks.send(request(Ask::Open(open))).await.unwrap();
            let credit = Credit { cumulative_bytes: 1000 };
            asks.send(request(Ask::Credit(credit))).await.unwrap();
            let status = match client.pull(ReceiverStream::new(requests)).await {
                Ok(chunks) => chunks.into_inner().next().await.unwrap().unwrap_err(),
                Err(status) => status,
            };
            Reason::of(&status).unwrap().0
        }
    };
    assert_eq!(refused(open(1, 7)).await, Reason::StaleGeneration);
    assert_eq!(refused(open(2, 6)).await, Reason::StaleGeneration, "an older load manager");
}
