//! Two leaders-to-be that write as fast as they can while etcd crashes, stops and forgets.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_coordination::{
    Election, Guard, Guarded, Outcome, Session, Store, View, ViewConfig, Write,
};
use evenkeel_testkit::{Etcd, EtcdVersion};
use support::{PATIENCE, candidate, elected, etcd, level, open, ready, session};
use tokio::time::{Instant, sleep, timeout};

const PREFIX: &str = "/t/writes/";

/// Writes each key once, under its token, with the token as the value. Returns the keys whose
/// write was answered.
async fn work(store: Store, election: Election, name: usize, stop: Arc<AtomicBool>) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let Some(token) = election.token() else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let key = format!("{PREFIX}{name}/{number:06}");
        let value = token.create_revision.to_string().into_bytes();
        let txn = Guarded {
            token: Some(token),
            guards: vec![Guard::Absent { key: key.clone() }],
            writes: vec![Write::Put { key: key.clone(), value, lease: None }],
        };
        match store.commit(txn).await {
            Outcome::Written { .. } => acknowledged.push(key),
            Outcome::Stale { found } => panic!("a key that is written once was there: {found:?}"),
            Outcome::Deposed | Outcome::Unknown(_) => {}
        }
    }
    acknowledged
}

struct Instance {
    store: Store,
    session: Session,
    election: Election,
}

fn instance(url: &str, name: &str) -> Instance {
    let store = open(url);
    let session = session(&store, 2);
    let election = candidate(&store, &session, name);
    Instance { store, session, election }
}

async fn storm(etcd: &mut Etcd, store: &Store) {
    for round in 0..4 {
        sleep(Duration::from_millis(700)).await;
        match round % 2 {
            0 => {
                etcd.kill9();
                etcd.restart().await.unwrap();
            }
            // Longer than the leases.
            _ => {
                etcd.stop().unwrap();
                sleep(Duration::from_millis(2500)).await;
                etcd.cont().unwrap();
            }
        }
        sleep(Duration::from_millis(300)).await;
        if let Ok(listing) = store.list(PREFIX).await {
            // Views that were cut off must list again.
            store.compact(listing.revision).await.unwrap();
        }
    }
}

/// Test plan: after the storm every acknowledged write is there, the tokens rise with the
/// revisions (no write of an older leader after one of a newer), and the view is the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_and_no_deposed_leader_writes() {
    let Some(mut etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let store = open(&etcd.url());
    let view = View::start(store.clone(), vec![PREFIX.into()], ViewConfig::default());
    ready(&view).await;
    let stop = Arc::new(AtomicBool::new(false));
    let instances = [instance(&etcd.url(), "one"), instance(&etcd.url(), "two")];
    let workers: Vec<_> = instances
        .iter()
        .enumerate()
        .map(|(name, i)| {
            tokio::spawn(work(i.store.clone(), i.election.clone(), name, stop.clone()))
        })
        .collect();
    storm(&mut etcd, &store).await;
    // Somebody leads again when it is over.
    let [one, two] = &instances;
    let begun = Instant::now();
    tokio::select! {
        biased;
        _ = elected(&one.election) => {}
        _ = elected(&two.election) => {}
    }
    assert!(begun.elapsed() < PATIENCE);
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = BTreeSet::new();
    for worker in workers {
        acknowledged.extend(timeout(PATIENCE, worker).await.expect("a worker hangs").unwrap());
    }
    level(&view, &store, PREFIX).await;

    let mut entries = store.list(PREFIX).await.unwrap().entries;
    let stored: BTreeSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    let lost: Vec<&String> = acknowledged.difference(&stored).collect();
    assert!(lost.is_empty(), "{} acknowledged writes are lost: {lost:?}", lost.len());
    assert!(acknowledged.len() > 100, "only {} writes", acknowledged.len());
    entries.sort_by_key(|entry| entry.create_revision);
    let tokens: Vec<i64> =
        entries.iter().map(|e| String::from_utf8_lossy(&e.value).parse().unwrap()).collect();
    assert!(tokens.is_sorted(), "an older leader wrote after a newer one");
    for instance in instances {
        instance.session.revoke().await;
    }
}
