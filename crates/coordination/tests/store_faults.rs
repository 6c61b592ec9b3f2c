//! Calls while members crash, stop, fill up or ask for a login.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use std::time::Duration;

use etcd_client::{Permission, PermissionType};
use evenkeel_coordination::{ErrorClass, Guard, Guarded, Outcome, Store, StoreConfig, Write};
use evenkeel_testkit::{EtcdCluster, EtcdOptions, EtcdVersion, wait_for};
use support::{PATIENCE, SECOND, etcd, held, open, session};
use tokio::time::Instant;

async fn three_members() -> Option<(EtcdCluster, Store)> {
    let Ok(options) = EtcdOptions::of(EtcdVersion::V3_4) else {
        eprintln!("skipped: no {} here", EtcdVersion::V3_4);
        return None;
    };
    let cluster = EtcdCluster::start_with(&options, 3).await.unwrap();
    // Seed 0 begins at some member; which one does not matter to the cases below.
    let store = Store::open(StoreConfig::urls(cluster.urls())).unwrap();
    store.probe(PATIENCE).await.unwrap();
    Some((cluster, store))
}

fn create(key: &str) -> Guarded {
    Guarded {
        token: None,
        guards: vec![Guard::Absent { key: key.into() }],
        writes: vec![Write::Put { key: key.into(), value: b"v".to_vec(), lease: None }],
    }
}

#[tokio::test]
async fn calls_move_on_from_each_member_that_crashes() {
    let Some((mut cluster, store)) = three_members().await else { return };
    for round in 0..3 {
        cluster.members[round].kill9();
        for call in 0..10 {
            store.put("/t/a", format!("{round} {call}").into_bytes(), None).await.unwrap();
            store.get("/t/a").await.unwrap().unwrap();
        }
        cluster.members[round].restart().await.unwrap();
    }
}

#[tokio::test]
async fn calls_move_on_from_each_member_that_stops() {
    let Some((cluster, store)) = three_members().await else { return };
    for member in &cluster.members {
        member.stop().unwrap();
        // At most one attempt is lost to it, and perhaps one to the election that follows.
        store.put("/t/a", b"1".to_vec(), None).await.unwrap();
        let begun = Instant::now();
        for _ in 0..20 {
            store.put("/t/a", b"2".to_vec(), None).await.unwrap();
        }
        assert!(begun.elapsed() < SECOND, "later calls stay with the member that works");
        member.cont().unwrap();
    }
}

#[tokio::test]
async fn a_restart_of_the_only_member_is_waited_out() {
    let Some(mut etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let store = open(&etcd.url());
    store.put("/t/a", b"1".to_vec(), None).await.unwrap();
    etcd.kill9();
    let (put, restarted) = tokio::join!(store.put("/t/a", b"2".to_vec(), None), etcd.restart());
    restarted.unwrap();
    put.unwrap();
    assert_eq!(store.get("/t/a").await.unwrap().unwrap().value, b"2");
}

#[tokio::test]
async fn a_transaction_that_never_left_is_tried_again_elsewhere() {
    let Some(etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    // Whichever comes first, nobody listens on one of them.
    for seed in 0..4 {
        let urls = ["http://127.0.0.1:1".to_owned(), etcd.url()];
        let store = Store::open(StoreConfig { seed, ..StoreConfig::urls(urls) }).unwrap();
        let outcome = store.commit(create(&format!("/t/{seed}"))).await;
        assert!(matches!(outcome, Outcome::Written { .. }), "{outcome:?}");
    }
    let config = StoreConfig { patience: SECOND, ..StoreConfig::urls(["http://127.0.0.1:1"]) };
    let Outcome::Unknown(error) = Store::open(config.clone()).unwrap().commit(create("/t/x")).await
    else {
        panic!("nobody listens there")
    };
    assert_eq!((error.class, error.maybe_applied()), (ErrorClass::Unavailable, false));
    let probe = Store::open(config).unwrap().probe(SECOND).await.unwrap_err();
    assert!(probe.detail.starts_with("no usable store at http://127.0.0.1:1: "), "{probe}");
}

#[tokio::test]
async fn a_transaction_that_got_no_answer_is_unknown_and_not_repeated() {
    let Some(etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let config = StoreConfig { request_timeout: SECOND, ..StoreConfig::urls([etcd.url()]) };
    let store = Store::open(config).unwrap();
    store.probe(PATIENCE).await.unwrap();
    etcd.stop().unwrap();
    let begun = Instant::now();
    let outcome = store.commit(create("/t/a")).await;
    let Outcome::Unknown(error) = outcome else { panic!("a stopped etcd answered: {outcome:?}") };
    assert!(error.maybe_applied());
    assert!(begun.elapsed() < 2 * SECOND, "one attempt only");
    etcd.cont().unwrap();
    // Only a new look can tell; either answer is right, and the store works again.
    match store.commit(create("/t/a")).await {
        Outcome::Written { .. } => {}
        Outcome::Stale { found } => assert_eq!(found[0].value, b"v"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_full_store_refuses_writes_but_keeps_leases_and_can_be_reclaimed() {
    let flags = ["--quota-backend-bytes", "16777216"];
    let Some(etcd) = etcd(EtcdVersion::V3_4, &flags).await else { return };
    let store = open(&etcd.url());
    let old = session(&store, 2);
    let lease = held(&old).await;
    let full = loop {
        if let Err(error) = store.put("/t/a", vec![0; 1_000_000], None).await {
            break error;
        }
    };
    assert_eq!((full.class, full.maybe_applied()), (ErrorClass::NoSpace, false));
    let Outcome::Unknown(error) = store.commit(create("/t/b")).await else {
        panic!("a full store wrote")
    };
    assert_eq!((error.class, error.maybe_applied()), (ErrorClass::NoSpace, false));
    assert!(!store.status().await.unwrap().errors.is_empty());
    // Reads and keep-alives go on; the lease outlives its time.
    let until = old.alive_until().unwrap();
    tokio::time::sleep_until(until + SECOND).await;
    assert_eq!(old.lease(), Some(lease));
    let revision = store.get("/t/a").await.unwrap().unwrap().mod_revision;
    // Nobody new gets a lease.
    let new = session(&store, 2);
    store.delete("/t/a").await.unwrap();
    assert!(!new.is_alive());

    store.reclaim(revision, PATIENCE).await.unwrap();
    store.put("/t/a", b"fits".to_vec(), None).await.unwrap();
    held(&new).await;
    assert_eq!(store.status().await.unwrap().errors, Vec::<String>::new());
}

#[tokio::test]
async fn an_expired_login_is_renewed_and_a_wrong_one_reported() {
    let Some(etcd) = etcd(EtcdVersion::V3_4, &["--auth-token-ttl", "1"]).await else { return };
    enable_auth(&etcd.url()).await;
    let login = |name: &str, password: &str| {
        let user = Some((name.to_owned(), password.to_owned()));
        Store::open(StoreConfig { user, ..StoreConfig::urls([etcd.url()]) }).unwrap()
    };
    let store = login("keel", "secret");
    store.probe(PATIENCE).await.unwrap();
    let session = session(&store, 2);
    let lease = held(&session).await;
    for round in 0..3 {
        // The token expires; etcd says so to nobody.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let key = format!("/cluster/{round}");
        assert!(matches!(store.commit(create(&key)).await, Outcome::Written { .. }));
        store.put(&key, b"2".to_vec(), Some(lease.id)).await.unwrap();
        assert_eq!(store.list("/cluster/").await.unwrap().entries.len(), round + 1);
    }
    assert_eq!(session.lease(), Some(lease));

    let forbidden = store.get("/other").await.unwrap_err();
    assert_eq!(forbidden.class, ErrorClass::Fatal);
    let begun = Instant::now();
    let wrong = login("keel", "guess").probe(PATIENCE).await.unwrap_err();
    assert_eq!(wrong.class, ErrorClass::Auth);
    assert!(wrong.detail.contains("authentication failed"), "{wrong}");
    let nobody = open(&etcd.url()).probe(PATIENCE).await.unwrap_err();
    assert_eq!(nobody.class, ErrorClass::Auth);
    assert!(begun.elapsed() < PATIENCE, "trying again is useless");
}

/// `root`, and `keel` who may use `/cluster/` only.
async fn enable_auth(url: &str) {
    let mut client = etcd_client::Client::connect([url], None).await.unwrap();
    client.user_add("root", "root", None).await.unwrap();
    client.role_add("root").await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("keel", "secret", None).await.unwrap();
    client.role_add("cluster").await.unwrap();
    let all = Permission::new(PermissionType::Readwrite, "/cluster/").with_prefix();
    client.role_grant_permission("cluster", all).await.unwrap();
    client.user_grant_role("keel", "cluster").await.unwrap();
    client.auth_enable().await.unwrap();
}

#[tokio::test]
async fn calls_are_not_lost_in_a_flood() {
    let Some(etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let store = open(&etcd.url());
    let mut calls = tokio::task::JoinSet::new();
    for i in 0..2000 {
        let store = store.clone();
        calls.spawn(async move { store.put(&format!("/t/{i:04}"), vec![0; 100], None).await });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap().unwrap();
    }
    wait_for("all keys", PATIENCE, || async {
        store.list("/t/").await.is_ok_and(|listing| listing.entries.len() == 2000)
    })
    .await;
}
