//! Three agents and a hand that writes assignments: publishes and subscriptions across a
//! hand-over, a death, a stop and a restart.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_coordination::Entry;
use evenkeel_model::{Assignment, LoadReport, Role, ShardKey, ShardReport, ShardState};
use evenkeel_proto::data::shards_client::ShardsClient;
use evenkeel_proto::data::subscribe_response::Event;
use evenkeel_proto::data::{
    DescribeRequest, ShardMoved, StoredRecord, SubscribeRequest, SubscribeResponse,
};
use evenkeel_proto::refusal::Reason;
use tokio::time::timeout;
use tonic::transport::Channel;

use support::{Cluster, PATIENCE, id, parse, publish, shard};

async fn three_with_a_shard() -> (Cluster, BTreeMap<String, support::Running>, Assignment) {
    let mut cluster = Cluster::start().await;
    let agents = cluster.agents(&["b1", "b2", "b3"]).await;
    let assignment = Assignment::new(shard(0), id("b1"), vec![id("b2"), id("b3")]);
    cluster.assign(&assignment).await;
    cluster.serving("b1", &shard(0), 1).await;
    (cluster, agents, assignment)
}

async fn next(stream: &mut tonic::Streaming<SubscribeResponse>) -> Event {
    let message = timeout(PATIENCE, stream.message()).await.unwrap().unwrap().unwrap();
    message.event.unwrap()
}

async fn subscribe(
    client: &mut ShardsClient<Channel>,
    shard: &ShardKey,
    from_offset: u64,
    stop_at_end: bool,
) -> tonic::Streaming<SubscribeResponse> {
    let shard = shard.to_string();
    let request = SubscribeRequest { shard, from_offset, stop_at_end, began_offset: None };
    client.subscribe(request).await.unwrap().into_inner()
}

/// Everything committed now, read from the leader.
async fn read_all(client: &mut ShardsClient<Channel>, shard: &ShardKey) -> Vec<StoredRecord> {
    let mut stream = subscribe(client, shard, 0, true).await;
    let mut records = Vec::new();
    loop {
        match next(&mut stream).await {
            Event::Records(batch) => records.extend(batch.records),
            Event::End(_) => return records,
            Event::ShardMoved(moved) => panic!("not the leader: {moved:?}"),
        }
    }
}

fn sequences(records: &[StoredRecord]) -> Vec<u64> {
    records.iter().map(|record| record.sequence).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_broker_takes_a_publish_and_sends_a_subscription_on() {
    let (cluster, _agents, _) = three_with_a_shard().await;
    let mut leader = cluster.client("b1").await;
    let mut other = cluster.client("b3").await;
    let mut offsets = Vec::new();
    for sequence in 1..=10 {
        let client = if sequence % 2 == 0 { &mut leader } else { &mut other };
        let response = publish(client, &shard(0), sequence).await.unwrap();
        assert_eq!((response.leader.as_str(), response.generation), ("b1", 1));
        offsets.extend(response.offsets);
    }
    assert!(offsets.is_sorted_by(|a, b| a < b), "{offsets:?}");
    let again = publish(&mut other, &shard(0), 10).await.unwrap();
    assert_eq!(again.offsets, offsets[9..], "a repetition is not written again");

    let records = read_all(&mut leader, &shard(0)).await;
    assert_eq!(sequences(&records), (1..=10).collect::<Vec<u64>>());
    assert_eq!(records.iter().map(|r| r.offset).collect::<Vec<_>>(), offsets);

    let mut stream = subscribe(&mut other, &shard(0), 5, false).await;
    let moved = ShardMoved {
        leader: Some("b1".to_owned()),
        address: Some(cluster.address("b1").await),
        resume_offset: 5,
    };
    assert_eq!(next(&mut stream).await, Event::ShardMoved(moved));

    let described = DescribeRequest { stream: shard(0).stream.to_string() };
    let described = other.describe(described).await.unwrap().into_inner().shards;
    assert_eq!((described.len(), described[0].leader.as_deref()), (1, Some("b1")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_done_is_refused_with_a_reason() {
    let cluster = Cluster::start().await;
    let _agents = cluster.agents(&["b1"]).await;
    let mut client = cluster.client("b1").await;
    let refused = publish(&mut client, &shard(7), 1).await.unwrap_err();
    assert_eq!(Reason::of(&refused).unwrap().0, Reason::ShardUnavailable);
    assert!(refused.message().contains("was not written"), "{refused}");
    let request = SubscribeRequest { shard: "orders".to_owned(), ..SubscribeRequest::default() };
    let refused = client.subscribe(request).await.unwrap_err();
    assert_eq!(Reason::of(&refused).unwrap().0, Reason::InvalidArgument);
    assert!(refused.message().starts_with("field 'shard': shard 'orders'"), "{refused}");
    let request = DescribeRequest { stream: "stream/default/none".to_owned() };
    let refused = client.describe(request).await.unwrap_err();
    assert_eq!(Reason::of(&refused).unwrap().0, Reason::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_its_limits_a_broker_refuses_at_once_with_a_delay() {
    let mut cluster = Cluster::start().await;
    let mut config = cluster.config("b1");
    config.requests_max = 2;
    config.move_hold_ms = 5_000;
    let _agent = cluster.run(config);
    cluster.registered("b1").await;
    // Its only other member is not there, so that nothing is committed.
    let assignment = Assignment::new(shard(0), id("b1"), vec![id("b2")]);
    cluster.assign(&assignment).await;
    let client = cluster.client("b1").await;
    let report = |r: &evenkeel_model::ShardReport| r.generation == 1;
    cluster.report("b1", &shard(0), "opening", report).await;
    let mut publishes: tokio::task::JoinSet<_> = (1..=3)
        .map(|sequence| {
            let mut client = client.clone();
            async move { publish(&mut client, &shard(0), sequence).await }
        })
        .collect();
    // Two wait for the leader to serve; the third is told at once.
    let first = timeout(PATIENCE, publishes.join_next()).await.unwrap().unwrap().unwrap();
    let shed = first.unwrap_err();
    assert_eq!(Reason::of(&shed).unwrap().0, Reason::Overloaded);
    assert_eq!(shed.message(), "2 requests are being served already");
    assert!(evenkeel_proto::refusal::retry_delay(&shed).is_some());
    while let Some(publish) = publishes.join_next().await {
        let refused = publish.unwrap().unwrap_err();
        assert_eq!(Reason::of(&refused).unwrap().0, Reason::ShardUnavailable, "{refused}");
    }
}

/// Publishes through a third broker without a pause until told to stop.
fn producer(
    mut client: ShardsClient<Channel>,
    stop: tokio::sync::watch::Receiver<bool>,
) -> tokio::task::JoinHandle<(u64, Duration)> {
    tokio::spawn(async move {
        let (mut sequence, mut slowest) = (0, Duration::ZERO);
        while !*stop.borrow() {
            sequence += 1;
            let started = tokio::time::Instant::now();
            publish(&mut client, &shard(0), sequence).await.expect("no publish is refused");
            slowest = slowest.max(started.elapsed());
        }
        (sequence, slowest)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_delays_publishes_and_loses_none() {
    let (mut cluster, _agents, mut assignment) = three_with_a_shard().await;
    let mut reader = cluster.client("b1").await;
    let mut stream = subscribe(&mut reader, &shard(0), 0, false).await;
    let (stop_tx, stop) = tokio::sync::watch::channel(false);
    let third = producer(cluster.client("b3").await, stop);
    let mut delivered = Vec::new();
    while delivered.len() < 50 {
        match next(&mut stream).await {
            Event::Records(batch) => delivered.extend(batch.records),
            other => panic!("{other:?}"),
        }
    }

    assignment.generation = 2;
    assignment.state = ShardState::Draining;
    assignment.successor = Some(id("b2"));
    cluster.assign(&assignment).await;
    let moved = loop {
        match next(&mut stream).await {
            Event::Records(batch) => delivered.extend(batch.records),
            Event::ShardMoved(moved) => break moved,
            Event::End(_) => panic!("no end was asked for"),
        }
    };
    assert_eq!(moved.leader.as_deref(), Some("b2"));
    assert_eq!(moved.address, Some(cluster.address("b2").await));
    cluster.report("b1", &shard(0), "drained", |r| r.generation == 2 && r.drained).await;

    assignment.generation = 3;
    assignment.state = ShardState::Assigning;
    assignment.successor = None;
    assignment.leader = Some(id("b2"));
    assignment.followers = vec![id("b1"), id("b3")];
    cluster.assign(&assignment).await;
    let mut successor = cluster.client("b2").await;
    let mut stream = subscribe(&mut successor, &shard(0), moved.resume_offset, false).await;
    while delivered.len() < 200 {
        match next(&mut stream).await {
            Event::Records(batch) => delivered.extend(batch.records),
            other => panic!("{other:?}"),
        }
    }
    stop_tx.send(true).unwrap();
    let (published, slowest) = third.await.unwrap();
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");

    let records = read_all(&mut successor, &shard(0)).await;
    let all: Vec<u64> = (1..=published).collect();
    assert_eq!(sequences(&records), all, "each acknowledged record once, in order");
    assert_eq!(sequences(&delivered), all[..delivered.len()], "nothing repeated, nothing left out");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_waits_for_the_next_leader_and_no_longer_than_it_may() {
    let (mut cluster, _agents, mut assignment) = three_with_a_shard().await;
    let mut third = cluster.client("b3").await;
    publish(&mut third, &shard(0), 1).await.unwrap();
    assignment.generation = 2;
    assignment.state = ShardState::Draining;
    assignment.successor = Some(id("b2"));
    cluster.assign(&assignment).await;
    cluster.report("b1", &shard(0), "drained", |r| r.generation == 2 && r.drained).await;
    let started = tokio::time::Instant::now();
    let refused = publish(&mut third, &shard(0), 2).await.unwrap_err();
    assert_eq!(Reason::of(&refused).unwrap().0, Reason::Moving);
    let waited = started.elapsed();
    let limit = Duration::from_millis(2000);
    assert!(waited >= limit && waited < 2 * limit, "{waited:?}");

    // The old leader keeps it.
    assignment.generation = 3;
    assignment.state = ShardState::Assigning;
    assignment.successor = None;
    cluster.assign(&assignment).await;
    cluster.serving("b1", &shard(0), 3).await;
    publish(&mut third, &shard(0), 2).await.unwrap();
    let records = read_all(&mut cluster.client("b1").await, &shard(0)).await;
    assert_eq!(sequences(&records), [1, 2], "the refused one was not written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_leader_is_followed_by_one_that_has_everything() {
    let (mut cluster, mut agents, mut assignment) = three_with_a_shard().await;
    let mut client = cluster.client("b2").await;
    for sequence in 1..=100 {
        publish(&mut client, &shard(0), sequence).await.unwrap();
    }
    agents.remove("b1").unwrap().kill();
    let registration = cluster.keys.registration(&id("b1"));
    cluster
        .until("the registration of b1 to go", |get| get(&registration).is_none().then_some(()))
        .await;
    let reports = cluster.keys.report(&id("b1"), &shard(0));
    cluster.until("its report to go", |get| get(&reports).is_none().then_some(())).await;

    assignment.generation = 2;
    assignment.leader = Some(id("b3"));
    assignment.followers = vec![id("b2")];
    cluster.assign(&assignment).await;
    publish(&mut client, &shard(0), 101).await.unwrap();
    let records = read_all(&mut cluster.client("b3").await, &shard(0)).await;
    assert_eq!(sequences(&records), (1..=101).collect::<Vec<u64>>());

    // It comes back with a later incarnation, follows and catches up.
    let back = cluster.run(cluster.config("b1"));
    let incarnation = cluster.registered("b1").await.incarnation;
    assert_eq!(incarnation, 2);
    assignment.generation = 3;
    assignment.followers = vec![id("b2"), id("b1")];
    cluster.assign(&assignment).await;
    cluster.report("b1", &shard(0), "caught up", |r| r.generation == 3 && r.caught_up).await;
    drop(back);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_broker_serves_until_it_leads_nothing() {
    let (mut cluster, mut agents, mut assignment) = three_with_a_shard().await;
    let mut client = cluster.client("b3").await;
    let stopping = agents.remove("b1").unwrap();
    stopping.ask_to_stop();
    let key = cluster.keys.registration(&id("b1"));
    cluster
        .until("b1 to say that it stops", |get| {
            let registration: evenkeel_model::Registration = parse(get(&key)?);
            registration.stopping.then_some(())
        })
        .await;
    publish(&mut client, &shard(0), 1).await.unwrap();

    assignment.generation = 2;
    assignment.state = ShardState::Draining;
    assignment.successor = Some(id("b2"));
    cluster.assign(&assignment).await;
    cluster.report("b1", &shard(0), "drained", |r| r.generation == 2 && r.drained).await;
    assignment.generation = 3;
    assignment.state = ShardState::Assigning;
    assignment.successor = None;
    assignment.leader = Some(id("b2"));
    assignment.followers = vec![id("b3")];
    cluster.assign(&assignment).await;
    publish(&mut client, &shard(0), 2).await.unwrap();
    stopping.ended().await.unwrap();
    assert!(cluster.store.get(&key).await.unwrap().is_none(), "its lease was given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_key_is_written_again_and_an_older_duty_is_refused() {
    let (mut cluster, _agents, mut assignment) = three_with_a_shard().await;
    let key = cluster.keys.registration(&id("b1"));
    let before = cluster.store.get(&key).await.unwrap().unwrap();
    cluster.store.delete(&key).await.unwrap();
    let again = cluster
        .until("b1 to register again", |get| {
            get(&key).filter(|entry| entry.create_revision > before.create_revision)
        })
        .await;
    assert_eq!(again.value, before.value, "the same incarnation");

    let report = cluster.keys.load(&id("b1"));
    let load: LoadReport = cluster
        .until("a load report that lists the shard", |get| {
            Some(parse(get(&report)?)).filter(|load: &LoadReport| !load.shards.is_empty())
        })
        .await;
    assert_eq!((load.shards[0].shard.clone(), load.incarnation), (shard(0), 1));
    assert!(load.cpu_percent.is_some() && load.memory_percent.is_some(), "{load:?}");
    assert!(load.disk_used_percent.is_some_and(|used| used > 0.0), "{load:?}");

    assignment.generation = 5;
    cluster.assign(&assignment).await;
    cluster.serving("b1", &shard(0), 5).await;
    // A write that was overtaken, in the key of one broker only.
    let mut old = assignment.clone();
    old.generation = 4;
    old.leader = Some(id("b2"));
    old.followers = vec![id("b1")];
    let told =
        evenkeel_model::BrokerShard { v: 1, role: Role::Follower, assignment: old, token: 1 };
    let told_key = cluster.keys.broker_shard(&id("b1"), &shard(0));
    cluster.store.put(&told_key, evenkeel_model::encode(&told), None).await.unwrap();
    let mut client = cluster.client("b1").await;
    for sequence in 1..=20 {
        let response = publish(&mut client, &shard(0), sequence).await.unwrap();
        assert_eq!((response.leader.as_str(), response.generation), ("b1", 5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_etcd_a_leader_stops_at_its_deadline_and_comes_back() {
    let (cluster, _agents, _) = three_with_a_shard().await;
    let mut client = cluster.client("b1").await;
    publish(&mut client, &shard(0), 1).await.unwrap();
    let before = cluster.registered("b1").await.incarnation;
    cluster.etcd.pause();
    // It serves on while its lease is provably alive, and not longer.
    let mut sequence = 2;
    let refused = timeout(PATIENCE, async {
        loop {
            match publish(&mut client, &shard(0), sequence).await {
                Ok(_) => sequence += 1,
                Err(refused) if Reason::of(&refused).is_some() => return refused,
                // The lease ended while it was being committed.
                Err(uncertain) => assert!(uncertain.message().contains("may or may not")),
            }
        }
    });
    let refused = refused.await.expect("a leader without a lease refuses");
    assert_eq!(Reason::of(&refused).unwrap().0, Reason::ShardUnavailable);
    assert!(refused.message().contains("lease is not provably alive"), "{refused}");

    cluster.etcd.resume();
    timeout(PATIENCE, async { while publish(&mut client, &shard(0), sequence).await.is_err() {} })
        .await
        .expect("it serves again under a new lease");
    assert_eq!(cluster.registered("b1").await.incarnation, before);
    cluster.serving("b1", &shard(0), 1).await;
    let records = read_all(&mut client, &shard(0)).await;
    assert_eq!(sequences(&records), (1..=sequence).collect::<Vec<u64>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_does_not_wait_for_a_frozen_leader() {
    let (mut cluster, agents, mut assignment) = three_with_a_shard().await;
    let mut client = cluster.client("b2").await;
    publish(&mut client, &shard(0), 1).await.unwrap();
    agents["b1"].freeze(Duration::from_secs(6));
    let started = tokio::time::Instant::now();
    let stuck = tokio::spawn({
        let mut client = client.clone();
        async move { publish(&mut client, &shard(0), 2).await }
    });
    let registration = cluster.keys.registration(&id("b1"));
    cluster
        .until("the registration of b1 to go", |get| get(&registration).is_none().then_some(()))
        .await;
    assignment.generation = 2;
    assignment.leader = Some(id("b3"));
    assignment.followers = vec![id("b2")];
    cluster.assign(&assignment).await;
    let response = stuck.await.unwrap().unwrap();
    assert_eq!((response.leader.as_str(), response.generation), ("b3", 2));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());

    // What wakes up sends on.
    cluster.registered("b1").await;
    let mut woken = cluster.client("b1").await;
    let response = publish(&mut woken, &shard(0), 3).await.unwrap();
    assert_eq!(response.leader, "b3");
    let records = read_all(&mut cluster.client("b3").await, &shard(0)).await;
    assert_eq!(sequences(&records), [1, 2, 3]);
}

/// The shard goes round and round while a producer writes through one of the brokers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_hand_overs_in_a_row_lose_and_repeat_nothing() {
    let (mut cluster, _agents, mut assignment) = three_with_a_shard().await;
    let (stop_tx, stop) = tokio::sync::watch::channel(false);
    let third = producer(cluster.client("b3").await, stop);
    let names = ["b1", "b2", "b3"];
    for turn in 0..10 {
        let (from, to) = (names[turn % 3], names[(turn + 1) % 3]);
        assignment.generation += 1;
        assignment.state = ShardState::Draining;
        assignment.successor = Some(id(to));
        cluster.assign(&assignment).await;
        let fenced = assignment.generation;
        cluster.report(from, &shard(0), "drained", |r| r.generation == fenced && r.drained).await;
        assignment.generation += 1;
        assignment.state = ShardState::Assigning;
        assignment.successor = None;
        assignment.leader = Some(id(to));
        assignment.followers = names.iter().filter(|n| **n != to).map(|n| id(n)).collect();
        cluster.assign(&assignment).await;
        cluster.serving(to, &shard(0), assignment.generation).await;
    }
    stop_tx.send(true).unwrap();
    let (published, slowest) = third.await.unwrap();
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    let records = read_all(&mut cluster.client("b2").await, &shard(0)).await;
    assert_eq!(sequences(&records), (1..=published).collect::<Vec<u64>>());
}

/// A store that was lost says nothing about who holds a shard: what is here may be the last copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_erased_only_when_others_hold_the_shard() {
    let (mut cluster, _agents, mut assignment) = three_with_a_shard().await;
    let mut client = cluster.client("b1").await;
    publish(&mut client, &shard(0), 1).await.unwrap();
    let stored = cluster.data_dir("b3").join("shards/stream/default/orders/0");
    assert!(stored.exists());
    assignment.generation = 2;
    assignment.followers = vec![id("b2")];
    cluster.assign(&assignment).await;
    evenkeel_testkit::wait_for("b3's bytes to go", PATIENCE, || async { !stored.exists() }).await;

    // A leader that is only named may never serve: what others hold of it may be all there is.
    let kept = cluster.data_dir("b1").join("shards/stream/default/orders/0");
    assignment.generation = 3;
    (assignment.leader, assignment.followers) = (Some(id("b4")), vec![id("b2")]);
    cluster.assign(&assignment).await;
    let report = cluster.keys.report(&id("b1"), &shard(0));
    cluster.until("b1 to let go of it", |get| get(&report).is_none().then_some(())).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(kept.exists());
    assignment.generation = 4;
    (assignment.leader, assignment.followers) = (Some(id("b2")), vec![]);
    cluster.assign(&assignment).await;
    cluster.serving("b2", &shard(0), 4).await;
    evenkeel_testkit::wait_for("b1's bytes to go", PATIENCE, || async { !kept.exists() }).await;

    // Without any record of the shard everything stays.
    let kept = cluster.data_dir("b2").join("shards/stream/default/orders/0");
    cluster.store.delete_prefix("/cluster/shards/").await.unwrap();
    cluster.store.delete_prefix("/cluster/brokers/").await.unwrap();
    let report = cluster.keys.report(&id("b2"), &shard(0));
    cluster.until("b2 to let go of it", |get| get(&report).is_none().then_some(())).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(kept.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_that_is_damaged_declines_and_who_handed_over_serves_again() {
    let mut cluster = Cluster::start().await;
    let mut agents = cluster.agents(&["b1", "b2"]).await;
    let mut assignment = Assignment::new(shard(0), id("b1"), vec![]);
    cluster.assign(&assignment).await;
    cluster.serving("b1", &shard(0), 1).await;
    let mut client = cluster.client("b1").await;
    for sequence in 1..=50 {
        publish(&mut client, &shard(0), sequence).await.unwrap();
    }
    assignment.successor = Some(id("b2"));
    for (generation, state) in [(2, ShardState::Active), (3, ShardState::Draining)] {
        (assignment.generation, assignment.state) = (generation, state);
        cluster.assign(&assignment).await;
        let level = |r: &ShardReport| r.generation == generation && r.caught_up;
        cluster.report("b2", &shard(0), "caught up", level).await;
    }
    cluster.report("b1", &shard(0), "drained", |r| r.generation == 3 && r.drained).await;

    // It dies with its last segment damaged, and is named all the same.
    stopped(&cluster, agents.remove("b2").unwrap(), "b2").await;
    let folder = |broker: &str| cluster.data_dir(broker).join("shards/stream/default/orders/0");
    let (kept, damaged) = (folder("b1"), folder("b2"));
    let flip = || {
        let segments = std::fs::read_dir(&damaged).unwrap().map(|entry| entry.unwrap().path());
        let last = segments.filter(|p| p.extension().is_some_and(|e| e == "log")).max().unwrap();
        let mut bytes = std::fs::read(&last).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&last, bytes).unwrap();
    };
    flip();
    (assignment.generation, assignment.state) = (4, ShardState::Assigning);
    (assignment.leader, assignment.successor) = (Some(id("b2")), None);
    cluster.assign(&assignment).await;
    let again = cluster.run(cluster.config("b2"));
    let declined = |r: &ShardReport| r.generation == 4 && r.declined;
    let word = cluster.report("b2", &shard(0), "that it declined", declined).await;
    assert!(word.halted.is_some_and(|why| why.contains("damaged")));
    let offer = |r: &ShardReport| r.generation == 3 && r.drained;
    cluster.report("b1", &shard(0), "that it had drained", offer).await;

    // Mended meanwhile, it keeps its word, for who handed over may serve by now.
    stopped(&cluster, again, "b2").await;
    flip();
    let again = cluster.run(cluster.config("b2"));
    let word = cluster.report("b2", &shard(0), "that it declined", declined).await;
    assert!(word.is_mended(), "{word:?}");
    assert!(kept.exists());
    (assignment.generation, assignment.leader) = (5, Some(id("b1")));
    cluster.assign(&assignment).await;
    cluster.serving("b1", &shard(0), 5).await;
    publish(&mut client, &shard(0), 51).await.unwrap();
    let records = read_all(&mut client, &shard(0)).await;
    assert_eq!(sequences(&records), (1..=51).collect::<Vec<u64>>());
    evenkeel_testkit::wait_for("b2's bytes to go", PATIENCE, || async { !damaged.exists() }).await;
    drop(again);
}

/// Kills an agent and waits until nobody counts on it.
async fn stopped(cluster: &Cluster, agent: support::Running, broker: &str) {
    agent.kill();
    let registration = cluster.keys.registration(&id(broker));
    let report = cluster.keys.report(&id(broker), &shard(0));
    let gone = |get: &dyn Fn(&str) -> Option<Entry>| {
        (get(&registration).is_none() && get(&report).is_none()).then_some(())
    };
    cluster.until("its lease to end", gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_cannot_be_one_broker() {
    let cluster = Cluster::start().await;
    let agents = cluster.agents(&["b1"]).await;
    let error = cluster.run(cluster.config("b1")).ended().await.unwrap_err().to_string();
    assert!(error.contains("is in use by another broker-agent"), "{error}");

    // A copy of the directory, started later: the earlier one gives way with a clear word.
    let mut config = cluster.config("b1");
    config.data_dir = cluster.data_dir("copied");
    std::fs::create_dir_all(&config.data_dir).unwrap();
    let identity = "identity.json";
    std::fs::copy(cluster.data_dir("b1").join(identity), config.data_dir.join(identity)).unwrap();
    let _second = cluster.run(config);
    let first = agents.into_values().next().unwrap();
    let error = first.ended().await.unwrap_err().to_string();
    assert!(error.contains("runs as broker 'b1' (incarnation 2, here 1)"), "{error}");
}
