//! Leases: grants, renewals, ends.

use std::time::Duration;

use etcd_client::{
    Client, Error, EventType, LeaseGrantOptions, LeaseTimeToLiveOptions, PutOptions, WatchOptions,
};
use tokio::time::Instant;
use tonic::Code;

use crate::server::{PATIENCE, Server, assert_refused, next, next_events};

const NOT_FOUND: &str = "etcdserver: requested lease not found";

async fn grant(client: &mut Client, ttl: i64) -> i64 {
    client.lease_grant(ttl, None).await.unwrap().id()
}

async fn put_with(client: &mut Client, key: String, lease: i64) {
    client.put(key, "", Some(PutOptions::new().with_lease(lease))).await.unwrap();
}

async fn a_grant_answers_an_id_and_the_time_to_live(etcd: Server) {
    let mut client = etcd.client().await;
    let first = client.lease_grant(60, None).await.unwrap();
    assert!(first.id() > 0 && first.ttl() == 60 && first.error().is_empty());
    let second = client.lease_grant(60, None).await.unwrap();
    assert_ne!(first.id(), second.id());
    // Unlike a key, a lease is not a change of the store.
    let listed = client.leases().await.unwrap();
    for lease in [first.id(), second.id()] {
        assert!(listed.leases().iter().any(|status| status.id() == lease));
    }
}

async fn a_grant_may_name_its_id_once(etcd: Server) {
    let mut client = etcd.client().await;
    let lease = grant(&mut client, 60).await;
    let wanted = lease ^ 0x5555;
    let options = || Some(LeaseGrantOptions::new().with_id(wanted));
    assert_eq!(client.lease_grant(60, options()).await.unwrap().id(), wanted);
    let refused = client.lease_grant(60, options()).await;
    assert_refused(refused, Code::FailedPrecondition, "etcdserver: lease already exists");
}

async fn too_short_times_to_live_are_raised_and_too_long_ones_refused(etcd: Server) {
    let mut client = etcd.client().await;
    for ttl in [0, 1] {
        assert_eq!(client.lease_grant(ttl, None).await.unwrap().ttl(), 2);
    }
    assert_eq!(client.lease_grant(3, None).await.unwrap().ttl(), 3);
    let refused = client.lease_grant(10_000_000_000, None).await;
    assert_refused(refused, Code::OutOfRange, "etcdserver: too large lease TTL");
}

async fn leases_do_not_raise_the_revision_their_keys_do(etcd: Server) {
    let mut client = etcd.client().await;
    let first = client.lease_grant(60, None).await.unwrap();
    assert_eq!(first.header().unwrap().revision(), 1);
    let empty = client.lease_revoke(first.id()).await.unwrap();
    assert_eq!(empty.header().unwrap().revision(), 1);
    let lease = grant(&mut client, 60).await;
    for name in ["a", "b", "c"] {
        put_with(&mut client, etcd.key(name), lease).await;
    }
    let revoked = client.lease_revoke(lease).await.unwrap();
    assert_eq!(revoked.header().unwrap().revision(), 5, "three puts, and one for all deletes");
}

async fn a_revoked_lease_takes_its_keys_along(etcd: Server) {
    let mut client = etcd.client().await;
    let lease = grant(&mut client, 60).await;
    for name in ["b", "a"] {
        put_with(&mut client, etcd.key(name), lease).await;
    }
    client.put(etcd.key("c"), "", None).await.unwrap();
    let (mut stream, _) = etcd.watch_all(WatchOptions::new()).await;
    client.lease_revoke(lease).await.unwrap();
    let message = next(&mut stream).await;
    let said: Vec<(EventType, &str)> = message
        .events()
        .iter()
        .map(|event| (event.event_type(), event.kv().unwrap().key_str().unwrap()))
        .collect();
    let (a, b) = (etcd.key("a"), etcd.key("b"));
    assert_eq!(said, [(EventType::Delete, a.as_str()), (EventType::Delete, b.as_str())]);
    assert_eq!(client.get(etcd.key("c"), None).await.unwrap().count(), 1);
    assert_refused(client.lease_revoke(lease).await, Code::NotFound, NOT_FOUND);
}

async fn a_key_has_the_lease_of_its_last_put(etcd: Server) {
    let mut client = etcd.client().await;
    let first = grant(&mut client, 60).await;
    let second = grant(&mut client, 60).await;
    for name in ["freed", "moved", "kept"] {
        put_with(&mut client, etcd.key(name), first).await;
    }
    client.put(etcd.key("freed"), "", None).await.unwrap();
    put_with(&mut client, etcd.key("moved"), second).await;
    let got = client.get(etcd.key("moved"), None).await.unwrap();
    assert_eq!(got.kvs()[0].lease(), second);

    client.lease_revoke(first).await.unwrap();
    for (name, left) in [("freed", 1), ("moved", 1), ("kept", 0)] {
        assert_eq!(client.get(etcd.key(name), None).await.unwrap().count(), left, "{name}");
    }
    client.lease_revoke(second).await.unwrap();
    assert_eq!(client.get(etcd.key("moved"), None).await.unwrap().count(), 0);
}

async fn a_key_needs_a_lease_that_exists(etcd: Server) {
    let mut client = etcd.client().await;
    let options = PutOptions::new().with_lease(77);
    let refused = client.put(etcd.key("a"), "", Some(options)).await;
    assert_refused(refused, Code::NotFound, NOT_FOUND);
    assert_eq!(client.get(etcd.key("a"), None).await.unwrap().count(), 0);
}

async fn what_is_left_of_a_lease_can_be_asked(etcd: Server) {
    let mut client = etcd.client().await;
    let lease = grant(&mut client, 60).await;
    for name in ["b", "a"] {
        put_with(&mut client, etcd.key(name), lease).await;
    }
    let left = client.lease_time_to_live(lease, None).await.unwrap();
    assert_eq!((left.id(), left.granted_ttl(), left.keys().len()), (lease, 60, 0));
    assert!((55..=60).contains(&left.ttl()), "{}", left.ttl());
    let options = LeaseTimeToLiveOptions::new().with_keys();
    let left = client.lease_time_to_live(lease, Some(options)).await.unwrap();
    let mut keys = left.keys().to_vec();
    keys.sort();
    assert_eq!(keys, [etcd.key("a").into_bytes(), etcd.key("b").into_bytes()]);
    let none = client.lease_time_to_live(77, None).await.unwrap();
    assert_eq!((none.id(), none.ttl(), none.granted_ttl()), (77, -1, 0));
}

async fn a_lease_not_kept_alive_ends_after_its_time_and_not_before(etcd: Server) {
    let mut client = etcd.client().await;
    let (mut stream, _) = etcd.watch_all(WatchOptions::new()).await;
    let granted = Instant::now();
    let lease = grant(&mut client, 2).await;
    put_with(&mut client, etcd.key("a"), lease).await;
    let events = next_events(&mut stream, 2).await;
    let lasted = granted.elapsed();
    assert_eq!(events[1].event_type(), EventType::Delete);
    assert!(lasted >= Duration::from_millis(1900), "{lasted:?}");
    assert!(lasted < Duration::from_millis(4500), "{lasted:?}");
    assert_eq!(client.get(etcd.key("a"), None).await.unwrap().count(), 0);
    assert_eq!(client.lease_time_to_live(lease, None).await.unwrap().ttl(), -1);
    assert_refused(client.lease_revoke(lease).await, Code::NotFound, NOT_FOUND);
}

async fn a_lease_kept_alive_goes_on_until_the_renewals_end(etcd: Server) {
    let mut client = etcd.client().await;
    let (mut stream, _) = etcd.watch_all(WatchOptions::new()).await;
    let granted = Instant::now();
    let lease = grant(&mut client, 2).await;
    put_with(&mut client, etcd.key("a"), lease).await;
    let (mut keeper, mut answers) = client.lease_keep_alive(lease).await.unwrap();
    while granted.elapsed() < Duration::from_millis(2800) {
        tokio::time::sleep(Duration::from_millis(700)).await;
        keeper.keep_alive().await.unwrap();
        let answer = answers.message().await.unwrap().unwrap();
        assert_eq!((answer.id(), answer.ttl()), (lease, 2));
    }
    let renewed = Instant::now();
    let events = next_events(&mut stream, 2).await;
    assert_eq!(events[1].event_type(), EventType::Delete);
    assert!(renewed.elapsed() >= Duration::from_millis(1800), "{:?}", renewed.elapsed());
    keeper.keep_alive().await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().ttl(), 0, "gone is told by a zero");
}

async fn a_renewal_of_a_lease_that_is_gone_answers_zero(etcd: Server) {
    let mut client = etcd.client().await;
    let lease = grant(&mut client, 60).await;
    let (mut keeper, mut answers) = client.lease_keep_alive(lease).await.unwrap();
    client.lease_revoke(lease).await.unwrap();
    keeper.keep_alive().await.unwrap();
    let answer = tokio::time::timeout(PATIENCE, answers.message()).await.unwrap();
    let answer = answer.unwrap().unwrap();
    assert_eq!((answer.id(), answer.ttl()), (lease, 0));
    // The stream goes on; a first renewal of it is where the client makes an error of the zero.
    keeper.keep_alive().await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().ttl(), 0);
    let refused = client.lease_keep_alive(lease).await;
    let Err(Error::LeaseKeepAliveError(text)) = refused else { panic!("{refused:?}") };
    assert_eq!(text, "lease not found");
}

cases! {
    shared {
        a_grant_answers_an_id_and_the_time_to_live
        a_grant_may_name_its_id_once
        a_revoked_lease_takes_its_keys_along
        a_key_has_the_lease_of_its_last_put
        a_key_needs_a_lease_that_exists
        what_is_left_of_a_lease_can_be_asked
        a_lease_not_kept_alive_ends_after_its_time_and_not_before
        a_lease_kept_alive_goes_on_until_the_renewals_end
        a_renewal_of_a_lease_that_is_gone_answers_zero
    }
    own {
        leases_do_not_raise_the_revision_their_keys_do
    }
    // etcd's defaults: the shortest time to live hangs on the election time-out.
    with ["--heartbeat-interval", "100", "--election-timeout", "1000"] {
        too_short_times_to_live_are_raised_and_too_long_ones_refused
    }
}
