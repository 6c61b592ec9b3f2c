//! A server that stops, crashes, or comes back without its data.

use std::time::Duration;

use etcd_client::{Client, Error, EventType, GetOptions, PutOptions, WatchOptions, WatchStream};
use evenkeel_testkit::wait_for;
use tokio::time::Instant;

use crate::server::{Kind, PATIENCE, Server, assert_silent, next_events};

async fn with_lease(client: &mut Client, key: String, ttl: i64) -> i64 {
    let lease = client.lease_grant(ttl, None).await.unwrap().id();
    client.put(key, "leased", Some(PutOptions::new().with_lease(lease))).await.unwrap();
    lease
}

/// Reads until the stream is over, by an error or an end.
async fn end_of(stream: &mut WatchStream) -> Option<Error> {
    let reading = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(error),
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("the stream ends in time")
}

async fn serves(client: &Client, key: &str) -> bool {
    let mut client = client.clone();
    let get = tokio::time::timeout(Duration::from_secs(2), client.get(key, None));
    matches!(get.await, Ok(Ok(_)))
}

async fn a_stopped_server_is_silent_and_then_goes_on(etcd: Server) {
    let mut client = etcd.client().await;
    let (mut stream, _) = etcd.watch_all(WatchOptions::new()).await;
    client.put(etcd.key("a"), "before", None).await.unwrap();
    next_events(&mut stream, 1).await;

    etcd.pause();
    let mut writer = client.clone();
    let key = etcd.key("a");
    let write = tokio::spawn(async move { writer.put(key, "during", None).await });
    assert_silent(&mut stream).await;
    assert!(!write.is_finished(), "a call hangs, it is not refused");

    etcd.resume();
    write.await.unwrap().unwrap();
    let events = next_events(&mut stream, 1).await;
    assert_eq!(events[0].kv().unwrap().value(), b"during");
}

async fn a_lease_that_ran_out_while_the_server_was_stopped_is_gone(etcd: Server) {
    let mut client = etcd.client().await;
    let (mut stream, _) = etcd.watch_all(WatchOptions::new()).await;
    let lease = with_lease(&mut client, etcd.key("a"), 2).await;
    next_events(&mut stream, 1).await;
    let (mut keeper, mut answers) = client.lease_keep_alive(lease).await.unwrap();
    etcd.pause();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    etcd.resume();
    keeper.keep_alive().await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().ttl(), 0);
    let events = next_events(&mut stream, 1).await;
    assert_eq!(events[0].event_type(), EventType::Delete);
}

async fn a_restart_ends_watches_and_keeps_the_data(mut etcd: Server) {
    let mut client = etcd.client().await;
    let (mut stream, _) = etcd.watch_all(WatchOptions::new()).await;
    let put = client.put(etcd.key("a"), "kept", None).await.unwrap();
    let header = put.header().unwrap();
    etcd.restart().await;
    let error = end_of(&mut stream).await;
    assert!(error.is_some() || etcd.kind == Kind::Embedded, "a crash is an error to the reader");

    // The same client goes on, perhaps after an error or two.
    let key = etcd.key("a");
    wait_for("an answer after the restart", PATIENCE, || serves(&client, &key)).await;
    let got = client.get(key, Some(GetOptions::new())).await.unwrap();
    assert_eq!(got.kvs()[0].value(), b"kept");
    assert_eq!(got.header().unwrap().revision(), header.revision());
    assert_eq!(got.header().unwrap().cluster_id(), header.cluster_id());

    let options = WatchOptions::new().with_start_revision(header.revision());
    let (mut stream, _) = etcd.watch_all(options).await;
    assert_eq!(next_events(&mut stream, 1).await[0].kv().unwrap().value(), b"kept");
}

async fn a_restart_gives_every_lease_its_whole_time_again(mut etcd: Server) {
    let mut client = etcd.client().await;
    let lease = with_lease(&mut client, etcd.key("a"), 3).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let before = Instant::now();
    etcd.restart().await;
    let key = etcd.key("a");
    wait_for("an answer after the restart", PATIENCE, || serves(&client, &key)).await;
    let left = client.lease_time_to_live(lease, None).await.unwrap();
    assert_eq!(left.granted_ttl(), 3);
    let revision = client.get(key, None).await.unwrap().header().unwrap().revision();
    let options = WatchOptions::new().with_start_revision(revision + 1);
    let (mut stream, _) = etcd.watch_all(options).await;
    let events = next_events(&mut stream, 1).await;
    assert_eq!(events[0].event_type(), EventType::Delete);
    assert!(before.elapsed() >= Duration::from_millis(2900), "{:?}", before.elapsed());
}

async fn a_server_without_its_data_is_another_cluster_at_revision_one(mut etcd: Server) {
    let mut client = etcd.client().await;
    let lease = with_lease(&mut client, etcd.key("a"), 60).await;
    for _ in 0..3 {
        client.put(etcd.key("b"), "", None).await.unwrap();
    }
    let before = client.get(etcd.key("a"), None).await.unwrap().header().unwrap().clone();
    let (mut stream, _) = etcd.watch_all(WatchOptions::new()).await;
    etcd.wipe().await;
    end_of(&mut stream).await;

    let key = etcd.key("a");
    wait_for("an answer after the wipe", PATIENCE, || serves(&client, &key)).await;
    let got = client.get(key, None).await.unwrap();
    assert_eq!((got.count(), got.header().unwrap().revision()), (0, 1));
    assert_eq!(client.lease_time_to_live(lease, None).await.unwrap().ttl(), -1);
    let cluster = got.header().unwrap().cluster_id();
    if etcd.kind == Kind::Embedded {
        assert_ne!(cluster, before.cluster_id());
    }
    // A watch from where the lost history was waits for a future that may never come.
    let options = WatchOptions::new().with_start_revision(before.revision() + 1);
    let (mut stream, _) = etcd.watch_all(options).await;
    client.put(etcd.key("c"), "", None).await.unwrap();
    assert_silent(&mut stream).await;
}

cases! {
    shared {}
    own {
        a_stopped_server_is_silent_and_then_goes_on
        a_lease_that_ran_out_while_the_server_was_stopped_is_gone
        a_restart_ends_watches_and_keeps_the_data
        a_restart_gives_every_lease_its_whole_time_again
        a_server_without_its_data_is_another_cluster_at_revision_one
    }
}
