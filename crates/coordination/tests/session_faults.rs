//! Leases and leadership while etcd crashes, stops, is cut off, or the leader itself is stopped.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use evenkeel_coordination::{Guarded, Leadership, Outcome, Store, Token, Write};
use evenkeel_testkit::{EtcdVersion, Proxy, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use support::{
    PATIENCE, SECOND, Server, candidate, elected, etcd, held, lost, not_leading, open, session,
};
use tokio::time::Instant;

#[tokio::test]
async fn a_lease_survives_a_crash_of_etcd_shorter_than_it() {
    let Some(mut etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let store = open(&etcd.url());
    let session = session(&store, 5);
    let lease = held(&session).await;
    store.put("/t/a", b"1".to_vec(), Some(lease.id)).await.unwrap();
    for _ in 0..3 {
        etcd.kill9();
        etcd.restart().await.unwrap();
        let until = session.alive_until().unwrap();
        wait_for("a renewal", PATIENCE, || async { session.alive_until() > Some(until) }).await;
    }
    assert_eq!(session.lease(), Some(lease));
    assert_eq!(store.get("/t/a").await.unwrap().unwrap().lease, Some(lease.id));
}

#[tokio::test]
async fn a_lease_is_lost_before_etcd_can_expire_it() {
    let Some(etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let store = open(&etcd.url());
    let session = session(&store, 3);
    let first = held(&session).await;
    let election = candidate(&store, &session, "one");
    elected(&election).await;
    etcd.stop().unwrap();
    let stopped = Instant::now();
    let until = session.alive_until().unwrap();
    lost(&session).await;
    assert!(Instant::now() >= until, "not before it must");
    assert!(stopped.elapsed() < 3 * SECOND, "{:?}", stopped.elapsed());
    assert!(!election.is_leading());
    etcd.cont().unwrap();
    let second = held(&session).await;
    assert!(second.epoch > first.epoch);
    elected(&election).await;
}

/// A renewal must be late by more than the lease before anything changes hands.
#[tokio::test]
async fn a_short_cut_changes_nothing_and_a_long_one_exactly_one_leader() {
    let Some(etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let proxy = Proxy::start(etcd.address()).await.unwrap();
    let (near, far) = (open(&etcd.url()), open(&proxy.url()));
    let (steady, shaken) = (session(&near, 3), session(&far, 3));
    let leader = candidate(&far, &shaken, "leader");
    let token = elected(&leader).await;
    let standby = candidate(&near, &steady, "standby");

    proxy.cut();
    let cut = Instant::now();
    tokio::time::sleep_until(cut + Duration::from_millis(1200)).await;
    proxy.heal();
    let until = shaken.alive_until();
    wait_for("a renewal", PATIENCE, || async { shaken.alive_until() > until }).await;
    assert_eq!(leader.token(), Some(token.clone()), "40 % of the lease is survived");

    proxy.cut();
    let cut = Instant::now();
    not_leading(&leader).await;
    assert!(!standby.is_leading(), "the leader stops before another can begin");
    let next = elected(&standby).await;
    assert!(cut.elapsed() < 6 * SECOND, "{:?}", cut.elapsed());
    proxy.heal();
    held(&shaken).await;
    let following = |now: &Leadership| {
        matches!(now, Leadership::Following { leader: Some(entry) }
            if entry.create_revision == next.create_revision)
    };
    let mut seen = leader.watch();
    tokio::time::timeout(PATIENCE, seen.wait_for(following)).await.expect("not following").unwrap();
    assert_eq!(standby.token(), Some(next));
}

#[tokio::test]
async fn connections_that_are_reset_cost_no_lease() {
    let Some(etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let proxy = Proxy::start(etcd.address()).await.unwrap();
    let store = open(&proxy.url());
    let session = session(&store, 3);
    let lease = held(&session).await;
    for _ in 0..10 {
        proxy.reset();
        let until = session.alive_until();
        wait_for("a renewal", PATIENCE, || async { session.alive_until() > until }).await;
    }
    assert_eq!(session.lease(), Some(lease));
}

#[tokio::test]
async fn all_leases_revoked_at_once_are_replaced_at_once() {
    let server = Server::embedded().await;
    let Server::Embedded { server: etcd, .. } = &server else { unreachable!() };
    let store = server.store();
    let sessions: Vec<_> = (0..20).map(|_| session(&store, 2)).collect();
    for session in &sessions {
        held(session).await;
    }
    for id in etcd.leases() {
        etcd.revoke_lease(id);
    }
    let revoked = Instant::now();
    for session in &sessions {
        wait_for("the next lease", PATIENCE, || async {
            session.lease().is_some_and(|lease| lease.epoch == 2)
        })
        .await;
    }
    // Seen with the next renewal at the latest, a third of the lease later.
    assert!(revoked.elapsed() < SECOND, "{:?}", revoked.elapsed());
}

/// Test plan: another process is elected, stopped by a signal until somebody else leads, and then
/// woken with a write in its hands. The write must be refused, and it must know at once that it
/// leads no longer.
#[tokio::test]
async fn a_leader_that_was_stopped_cannot_write_when_it_wakes() {
    let Some(etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let mut leader = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_leader_process", "--ignored", "--nocapture"])
        .env("LEADER_ETCD_URL", etcd.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(leader.stdout.take().unwrap()).lines();
    let mut said = |word: &str| {
        let line = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(word)));
        line.expect("the leader process ended").unwrap()
    };
    said("elected");
    let process = Pid::from_raw(i32::try_from(leader.id()).unwrap()).unwrap();
    kill_process(process, Signal::STOP).unwrap();

    let store = open(&etcd.url());
    let standby_session = session(&store, 2);
    let standby = candidate(&store, &standby_session, "standby");
    let token = elected(&standby).await;
    let ours = store.commit(write(token, "standby")).await;
    assert!(matches!(ours, Outcome::Written { .. }));

    // The command is in the pipe before the process goes on.
    leader.stdin.take().unwrap().write_all(b"write\n").unwrap();
    kill_process(process, Signal::CONT).unwrap();
    assert!(said("result").contains("result Deposed, leading false"));
    assert!(leader.wait().unwrap().success());
    assert_eq!(store.get("/t/a").await.unwrap().unwrap().value, b"standby");
    assert!(standby.is_leading());
}

/// The other side of the case above, in its own process.
#[tokio::test]
#[ignore = "run by another test, as a process of its own"]
async fn the_leader_process() {
    let Some(url) = std::env::var_os("LEADER_ETCD_URL") else { return };
    let url = url.into_string().unwrap();
    let store = open(&url);
    let session = session(&store, 2);
    let election = candidate(&store, &session, "leader");
    let token = elected(&election).await;
    println!("elected");
    let mut line = String::new();
    // Blocks the only thread on purpose: nothing of ours has run when the write is made.
    std::io::stdin().read_line(&mut line).unwrap();
    let leading = election.is_leading();
    let outcome = store.commit(write(token, "leader")).await;
    println!("result {outcome:?}, leading {leading}");
}

fn write(token: Token, value: &str) -> Guarded {
    let value = value.as_bytes().to_vec();
    let write = Write::Put { key: "/t/a".into(), value, lease: None };
    Guarded { token: Some(token), guards: vec![], writes: vec![write] }
}

/// The election is decided in the store, so that losing answers on the way cannot make two.
#[tokio::test]
async fn there_is_never_more_than_one_leader_while_etcd_crashes() {
    let Some(mut etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let stores: Vec<Store> = (0..3).map(|_| open(&etcd.url())).collect();
    let sessions: Vec<_> = stores.iter().map(|store| session(store, 2)).collect();
    let elections: Vec<_> = stores
        .iter()
        .zip(&sessions)
        .map(|(store, session)| candidate(store, session, "candidate"))
        .collect();
    let mut last = 0;
    for _ in 0..4 {
        wait_for("a leader", PATIENCE, || async {
            elections.iter().any(|election| election.token().is_some())
        })
        .await;
        let tokens: Vec<Token> = elections.iter().filter_map(|e| e.token()).collect();
        let [token] = tokens.as_slice() else { panic!("several lead: {tokens:?}") };
        assert!(token.create_revision >= last);
        last = token.create_revision;
        etcd.kill9();
        etcd.restart().await.unwrap();
    }
}
