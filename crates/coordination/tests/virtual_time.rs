//! The very same code over in-memory links on a paused clock: hours pass in milliseconds, and the
//! same seed gives the same run.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use std::time::Duration;

use evenkeel_coordination::{
    Guarded, Leadership, Outcome, Store, StoreConfig, View, ViewConfig, Write,
};
use evenkeel_embedded_etcd::EmbeddedEtcd;
use support::{candidate, elected, held, in_memory, level, lost, ready, session, shown};
use tokio::time::{Instant, sleep};

fn store(server: &EmbeddedEtcd, seed: u64) -> Store {
    Store::open(StoreConfig { seed, ..StoreConfig::new([in_memory(server)]) }).unwrap()
}

fn ms(since: Instant) -> u128 {
    since.elapsed().as_millis()
}

#[tokio::test(start_paused = true)]
async fn a_leader_stops_before_its_lease_and_the_next_begins_after_it() {
    let etcd = EmbeddedEtcd::new(1);
    let (one, two) = (store(&etcd, 1), store(&etcd, 2));
    let (first, second) = (session(&one, 15), session(&two, 15));
    let leader = candidate(&one, &first, "leader");
    elected(&leader).await;
    let standby = candidate(&two, &second, "standby");
    held(&second).await;

    // An hour in which nothing happens.
    let (lease, hour) = (first.lease(), Duration::from_secs(3600));
    sleep(hour).await;
    assert_eq!(first.lease(), lease);
    assert!(leader.is_leading());

    // The leader's process goes, with everything in it.
    let until = first.alive_until().unwrap();
    drop((leader, first));
    elected(&standby).await;
    let margin = Duration::from_millis(1500);
    assert!(Instant::now() >= until + margin, "never while the leader may count on its lease");
    assert!(Instant::now() < until + margin + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_ends_the_lease_at_its_deadline_to_the_millisecond() {
    let etcd = EmbeddedEtcd::new(1);
    let store = store(&etcd, 1);
    let session = session(&store, 15);
    held(&session).await;
    sleep(Duration::from_secs(60)).await;
    etcd.pause();
    let until = session.alive_until().unwrap();
    lost(&session).await;
    assert!(Instant::now() - until < Duration::from_millis(2));
    assert!(!session.is_alive());
    sleep(Duration::from_secs(600)).await;
    etcd.resume();
    let resumed = Instant::now();
    assert_eq!(held(&session).await.epoch, 2);
    assert!(ms(resumed) < 5_000, "{} ms", ms(resumed));
}

#[tokio::test(start_paused = true)]
async fn a_view_notices_a_silent_store_and_lists_again_after_a_compaction() {
    let etcd = EmbeddedEtcd::new(1);
    let (writer, reader) = (store(&etcd, 1), store(&etcd, 2));
    let view = View::start(reader, vec!["/t/".into()], ViewConfig::default());
    ready(&view).await;
    for hour in 0..24 {
        writer.put(&format!("/t/{hour}"), b"v".to_vec(), None).await.unwrap();
        sleep(Duration::from_secs(3600)).await;
        etcd.compact_now();
        etcd.restart();
    }
    level(&view, &writer, "/t/").await;
    etcd.pause();
    let heard = view.heard_at();
    sleep(Duration::from_secs(60)).await;
    assert!(view.heard_at() <= heard + Duration::from_millis(1));
    etcd.resume();
    writer.delete_prefix("/t/").await.unwrap();
    level(&view, &writer, "/t/").await;
    assert_eq!(shown(&view, ""), vec![]);
}

/// Ten candidates that write under their token while the store stops, restarts, loses leases and
/// compacts. Everything that is seen is written down with its time.
async fn stormy_day(seed: u64) -> Vec<String> {
    let etcd = EmbeddedEtcd::new(seed);
    let stores: Vec<Store> = (0..10).map(|i| store(&etcd, seed * 100 + i)).collect();
    let sessions: Vec<_> = stores.iter().map(|store| session(store, 5)).collect();
    let elections: Vec<_> = stores
        .iter()
        .zip(&sessions)
        .enumerate()
        .map(|(i, (store, session))| candidate(store, session, &i.to_string()))
        .collect();
    let view = View::start(stores[0].clone(), vec!["/t/".into()], ViewConfig::default());
    let begun = Instant::now();
    let mut trace = Vec::new();
    for step in 0..300_u64 {
        match step % 97 {
            13 => etcd.pause(),
            // Now and then longer than the leases.
            16 | 41 => etcd.resume(),
            30 => etcd.pause(),
            50 => etcd.restart(),
            60 => etcd.compact_now(),
            70 => etcd.leases().into_iter().for_each(|id| {
                etcd.revoke_lease(id);
            }),
            _ => {}
        }
        let leaders: Vec<usize> = (0..10).filter(|i| elections[*i].token().is_some()).collect();
        assert!(leaders.len() <= 1, "{leaders:?} lead at step {step}");
        for leader in leaders {
            let txn = Guarded {
                token: elections[leader].token(),
                guards: vec![],
                writes: vec![Write::Put {
                    key: "/t/step".into(),
                    value: format!("{leader} {step}").into_bytes(),
                    lease: None,
                }],
            };
            let outcome = match stores[leader].commit(txn).await {
                Outcome::Written { revision } => format!("written at {revision}"),
                Outcome::Unknown(_) => "unknown".to_owned(),
                other => format!("{other:?}"),
            };
            trace.push(format!("{} {step} {leader} {outcome}", ms(begun)));
        }
        sleep(Duration::from_millis(500)).await;
    }
    etcd.resume();
    level(&view, &stores[0], "/t/").await;
    let leaders = |l: &Leadership| matches!(l, Leadership::Leading(_));
    let last = elections.iter().filter(|e| leaders(&e.watch().borrow())).count();
    trace.push(format!("{} {last} {:?}", ms(begun), shown(&view, "/t/")));
    trace
}

fn on_a_paused_clock(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(stormy_day(seed))
}

#[test]
fn the_same_seed_gives_the_same_storm() {
    let storms: Vec<_> = (1..3).map(on_a_paused_clock).collect();
    for (seed, storm) in (1..3).zip(&storms) {
        let written = storm.iter().filter(|line| line.contains("written")).count();
        assert!(written > 150, "seed {seed}: {written} writes");
        assert_eq!(on_a_paused_clock(seed), *storm, "seed {seed}");
    }
    assert_ne!(storms[0], storms[1]);
}
