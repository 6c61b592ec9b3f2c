//! What the door promises, held to the embedded server and to every etcd that is at hand.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use std::time::Duration;

use evenkeel_coordination::{
    Change, ErrorClass, Guard, Guarded, Leadership, Outcome, Store, Token, View, ViewConfig, Write,
};
use evenkeel_testkit::EtcdVersion;
use support::{
    PATIENCE, SECOND, Server, candidate, elected, held, level, lost, ready, session, shown, texts,
};
use tokio::time::timeout;

/// Runs each case against each server; those that this machine lacks say so and pass.
macro_rules! contract {
    ($($case:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $case() {
                let server = super::Server::embedded().await;
                super::$case(server.store()).await;
            })*
        }
        mod etcd_3_4 {
            $(#[tokio::test]
            async fn $case() {
                if let Some(server) = super::Server::real(super::EtcdVersion::V3_4).await {
                    super::$case(server.store()).await;
                }
            })*
        }
        mod etcd_3_5 {
            $(#[tokio::test]
            async fn $case() {
                if let Some(server) = super::Server::real(super::EtcdVersion::V3_5).await {
                    super::$case(server.store()).await;
                }
            })*
        }
    };
}

contract! {
    keys_are_put_read_and_deleted,
    a_listing_is_of_one_revision_however_many_pages,
    large_values_are_listed_in_smaller_pages,
    many_keys_are_written_beyond_the_limit_of_a_transaction,
    a_transaction_is_made_only_if_its_guards_hold,
    the_token_tells_deposed_from_stale,
    a_transaction_beyond_the_limits_is_refused_unsent,
    a_lease_that_does_not_exist_is_told_apart,
    compacting_twice_is_no_error,
    keys_on_a_lease_live_while_it_is_renewed_and_go_when_it_is_revoked,
    a_revoked_lease_is_lost_and_replaced,
    the_leader_resigns_and_the_next_is_elected_at_once,
    a_leader_whose_key_is_deleted_is_deposed,
    a_leader_without_progress_gives_up,
    a_view_follows_every_change,
    a_view_tells_of_changes_in_order,
    a_view_of_several_prefixes_shows_transactions_whole,
    a_view_of_one_watch_per_prefix_shows_them_all,
    a_large_transaction_reaches_the_view,
    a_view_is_known_to_be_level_without_an_event,
}

fn put(key: &str, value: &str) -> Write {
    Write::Put { key: key.to_owned(), value: value.as_bytes().to_vec(), lease: None }
}

fn guarded(guards: Vec<Guard>, writes: Vec<Write>) -> Guarded {
    Guarded { token: None, guards, writes }
}

fn written(outcome: Outcome) -> i64 {
    match outcome {
        Outcome::Written { revision } => revision,
        other => panic!("not written: {other:?}"),
    }
}

async fn keys_are_put_read_and_deleted(store: Store) {
    store.probe(PATIENCE).await.unwrap();
    assert_eq!(store.get("/t/a").await.unwrap(), None);
    let first = store.put("/t/a", b"1".to_vec(), None).await.unwrap();
    let second = store.put("/t/a", b"2".to_vec(), None).await.unwrap();
    let entry = store.get("/t/a").await.unwrap().unwrap();
    assert_eq!(entry.value, b"2");
    assert_eq!((entry.create_revision, entry.mod_revision, entry.lease), (first, second, None));
    assert!(store.delete("/t/a").await.unwrap());
    assert!(!store.delete("/t/a").await.unwrap());
    assert_eq!(store.get("/t/a").await.unwrap(), None);
    let empty = store.get("").await.unwrap_err();
    assert_eq!(empty.class, ErrorClass::Fatal);
}

async fn a_listing_is_of_one_revision_however_many_pages(store: Store) {
    let entries = (0..2500).map(|i| (format!("/t/{i:05}"), b"v".to_vec())).collect();
    store.put("/t", b"not below the prefix".to_vec(), None).await.unwrap();
    let revision = store.put_all(entries, None).await.unwrap();
    store.put("/u", b"after it".to_vec(), None).await.unwrap();
    let listing = store.list("/t/").await.unwrap();
    assert_eq!(listing.revision, revision + 1);
    assert_ne!(listing.cluster_id, 0);
    let keys: Vec<String> = listing.entries.into_iter().map(|entry| entry.key).collect();
    let expected: Vec<String> = (0..2500).map(|i| format!("/t/{i:05}")).collect();
    assert_eq!(keys, expected);
    assert_eq!(store.list("/none/").await.unwrap().entries, vec![]);
}

async fn large_values_are_listed_in_smaller_pages(store: Store) {
    let megabyte = vec![7; 1_000_000];
    let entries = (0..40).map(|i| (format!("/t/{i:02}"), megabyte.clone())).collect();
    store.put_all(entries, None).await.unwrap();
    let listing = store.list("/t/").await.unwrap();
    assert_eq!(listing.entries.len(), 40);
    assert!(listing.entries.iter().all(|entry| entry.value == megabyte));
    let too_large = store.put("/t/x", vec![0; 2_000_000], None).await.unwrap_err();
    assert_eq!(too_large.class, ErrorClass::TooLarge);
}

async fn many_keys_are_written_beyond_the_limit_of_a_transaction(store: Store) {
    assert_eq!(store.put_all(vec![], None).await.unwrap(), 0);
    let keys: Vec<String> = (0..300).map(|i| format!("/t/{i:03}")).collect();
    let entries = keys.iter().map(|key| (key.clone(), b"v".to_vec())).collect();
    store.put_all(entries, None).await.unwrap();
    assert_eq!(store.list("/t/").await.unwrap().entries.len(), 300);
    assert_eq!(store.delete_all(keys[..200].to_vec()).await.unwrap(), 200);
    assert_eq!(store.delete_prefix("/t/").await.unwrap(), 100);
    assert_eq!(store.list("/t/").await.unwrap().entries, vec![]);
}

async fn a_transaction_is_made_only_if_its_guards_hold(store: Store) {
    let absent = || Guard::Absent { key: "/t/a".into() };
    let txn = guarded(vec![absent()], vec![put("/t/a", "1"), put("/t/b", "1")]);
    let first = written(store.commit(txn.clone()).await);
    let a = store.get("/t/a").await.unwrap().unwrap();
    let b = store.get("/t/b").await.unwrap().unwrap();
    assert_eq!(a.mod_revision, first);
    assert_eq!(store.commit(txn).await, Outcome::Stale { found: vec![a.clone()] });

    let unchanged = |revision| Guard::ModRevision { key: "/t/a".into(), revision };
    let exists = |key: &str| Guard::Exists { key: key.into() };
    let delete = Write::Delete { key: "/t/b".into() };
    let txn = |revision| {
        guarded(vec![unchanged(revision), exists("/t/b")], vec![put("/t/a", "2"), delete.clone()])
    };
    // What does not hold is found in key order, each key once, and nothing was written.
    let found = vec![a, b];
    assert_eq!(store.commit(txn(first + 1)).await, Outcome::Stale { found });
    let second = written(store.commit(txn(first)).await);
    assert_eq!(store.get("/t/b").await.unwrap(), None);
    // Revision 0 means absent, for a key that has been deleted too.
    let again = Guard::ModRevision { key: "/t/b".into(), revision: 0 };
    let created = Guard::CreateRevision { key: "/t/a".into(), revision: first };
    let third = written(store.commit(guarded(vec![again, created], vec![put("/t/b", "3")])).await);
    assert!(first < second && second < third);
}

async fn the_token_tells_deposed_from_stale(store: Store) {
    let create_revision = store.put("/t/leader", b"me".to_vec(), None).await.unwrap();
    let token = |create_revision| Some(Token { key: "/t/leader".into(), create_revision });
    let txn = |token| Guarded {
        token,
        guards: vec![Guard::Absent { key: "/t/a".into() }],
        writes: vec![put("/t/a", "1")],
    };
    let elsewhere = store.commit(txn(token(create_revision + 1))).await;
    assert_eq!(elsewhere, Outcome::Deposed);
    written(store.commit(txn(token(create_revision))).await);
    // Writing the leader key again does not end the leadership; deleting it does.
    store.put("/t/leader", b"still me".to_vec(), None).await.unwrap();
    let a = store.get("/t/a").await.unwrap().unwrap();
    let stale = store.commit(txn(token(create_revision))).await;
    assert_eq!(stale, Outcome::Stale { found: vec![a] });
    store.delete("/t/leader").await.unwrap();
    assert_eq!(store.commit(txn(token(create_revision))).await, Outcome::Deposed);
    store.put("/t/leader", b"somebody else".to_vec(), None).await.unwrap();
    assert_eq!(store.commit(txn(token(create_revision))).await, Outcome::Deposed);
}

async fn a_transaction_beyond_the_limits_is_refused_unsent(store: Store) {
    let writes = |n: usize| (0..n).map(|i| put(&format!("/t/{i}"), "v")).collect::<Vec<_>>();
    written(store.commit(guarded(vec![], writes(128))).await);
    let Outcome::Unknown(error) = store.commit(guarded(vec![], writes(129))).await else {
        panic!("expected a refusal");
    };
    assert_eq!(error.class, ErrorClass::TooLarge);
    assert!(!error.maybe_applied());
    assert_eq!(error.detail, "129 writes in one transaction; expected <= 128");
    let guards = (0..128).map(|i| Guard::Exists { key: format!("/t/{i}") }).collect();
    written(store.commit(guarded(guards, writes(1))).await);
    let twice = store.commit(guarded(vec![], vec![put("/t/0", "a"), put("/t/0", "b")])).await;
    let Outcome::Unknown(error) = twice else { panic!("expected a refusal") };
    assert_eq!((error.class, error.maybe_applied()), (ErrorClass::Fatal, false));
}

async fn a_lease_that_does_not_exist_is_told_apart(store: Store) {
    let gone = store.put("/t/a", b"1".to_vec(), Some(12_345)).await.unwrap_err();
    assert_eq!(gone.class, ErrorClass::LeaseGone);
    let write = Write::Put { key: "/t/a".into(), value: vec![], lease: Some(12_345) };
    let Outcome::Unknown(error) = store.commit(guarded(vec![], vec![write])).await else {
        panic!("expected a refusal");
    };
    assert_eq!((error.class, error.maybe_applied()), (ErrorClass::LeaseGone, false));
}

async fn compacting_twice_is_no_error(store: Store) {
    store.put("/t/a", b"1".to_vec(), None).await.unwrap();
    let revision = store.put("/t/a", b"2".to_vec(), None).await.unwrap();
    store.compact(revision).await.unwrap();
    store.compact(revision).await.unwrap();
    let future = store.compact(revision + 1000).await.unwrap_err();
    assert_eq!(future.class, ErrorClass::Fatal);
    assert_eq!(store.get("/t/a").await.unwrap().unwrap().value, b"2");
}

async fn keys_on_a_lease_live_while_it_is_renewed_and_go_when_it_is_revoked(store: Store) {
    let session = session(&store, 2);
    let lease = held(&session).await;
    assert_eq!(lease.epoch, 1);
    store.put("/t/a", b"1".to_vec(), Some(lease.id)).await.unwrap();
    let until = session.alive_until().unwrap();
    // Past the first deadline, and past the time to live as well.
    tokio::time::sleep_until(until + 2 * SECOND).await;
    assert!(session.is_alive() && session.alive_until().unwrap() > until);
    assert_eq!(session.lease(), Some(lease));
    assert_eq!(store.get("/t/a").await.unwrap().unwrap().lease, Some(lease.id));
    session.revoke().await;
    assert_eq!((session.is_alive(), session.lease()), (false, None));
    assert_eq!(store.get("/t/a").await.unwrap(), None);
    assert_eq!(session.held().await, None, "a revoked session has ended");
}

async fn a_revoked_lease_is_lost_and_replaced(store: Store) {
    let session = session(&store, 2);
    let first = held(&session).await;
    // Another session's driver would do; etcdctl in an operator's hand does too.
    revoke(&store, first.id).await;
    lost(&session).await;
    let second = held(&session).await;
    assert_eq!(second.epoch, 2);
    assert_ne!(second.id, first.id);
}

async fn the_leader_resigns_and_the_next_is_elected_at_once(store: Store) {
    let (one, two) = (session(&store, 10), session(&store, 10));
    let first = candidate(&store, &one, "one");
    let token = elected(&first).await;
    let second = candidate(&store, &two, "two");
    let mut seen = second.watch();
    let following = seen.wait_for(|l| matches!(l, Leadership::Following { leader: Some(_) }));
    let leader = timeout(PATIENCE, following).await.unwrap().unwrap().clone();
    let entry = store.get("/cluster/leader/test").await.unwrap();
    assert_eq!(leader, Leadership::Following { leader: entry.clone() });
    assert_eq!(entry.unwrap().create_revision, token.create_revision);

    let resigned = tokio::time::Instant::now();
    first.resign().await;
    assert!(!first.is_leading());
    let next = elected(&second).await;
    assert!(resigned.elapsed() < SECOND, "the deletion is watched, not polled for");
    assert!(next.create_revision > token.create_revision);
    assert_eq!(first.elected().await, None, "who resigned takes part no longer");
}

async fn a_leader_whose_key_is_deleted_is_deposed(store: Store) {
    let session = session(&store, 10);
    let election = candidate(&store, &session, "one");
    let token = elected(&election).await;
    store.delete("/cluster/leader/test").await.unwrap();
    let mut leadership = election.watch();
    let again = leadership.wait_for(
        |now| matches!(now, Leadership::Leading(new) if new.create_revision > token.create_revision),
    );
    timeout(PATIENCE, again).await.expect("not elected again").unwrap();
    let old = Guarded { token: Some(token), guards: vec![], writes: vec![put("/t/a", "1")] };
    assert_eq!(store.commit(old).await, Outcome::Deposed);
}

async fn a_leader_without_progress_gives_up(store: Store) {
    let (one, two) = (session(&store, 10), session(&store, 10));
    let config = evenkeel_coordination::ElectionConfig::new("test", "/t/leader", b"1".to_vec())
        .with_progress_timeout(Duration::from_millis(300));
    let stuck = evenkeel_coordination::Election::start(store.clone(), one, config.clone());
    elected(&stuck).await;
    let other = evenkeel_coordination::Election::start(store.clone(), two, config);
    // Its session is alive all the time.
    elected(&other).await;
    assert!(!stuck.is_leading());
}

async fn a_view_follows_every_change(store: Store) {
    let entries = (0..10).map(|i| (format!("/t/{i}"), b"v".to_vec())).collect();
    store.put_all(entries, None).await.unwrap();
    let view = View::start(store.clone(), vec!["/t/".into()], ViewConfig::default());
    assert!(!view.is_ready());
    ready(&view).await;
    assert_eq!(shown(&view, "/t/").len(), 10);
    store.put("/t/3", b"new".to_vec(), None).await.unwrap();
    store.put("/elsewhere", b"v".to_vec(), None).await.unwrap();
    store.delete("/t/4").await.unwrap();
    let last = store.put("/t/x", b"v".to_vec(), None).await.unwrap();
    assert!(view.wait_for(last, PATIENCE).await);
    assert_eq!(shown(&view, ""), store.list("/t/").await.unwrap().entries);
    assert_eq!(view.read(|state| (state.len(), state.get("/t/4").is_none())), (10, true));
    let short = Duration::from_millis(20);
    assert!(!view.wait_for(last + 1_000_000, short).await);
}

async fn a_view_tells_of_changes_in_order(store: Store) {
    let view = View::start(store.clone(), vec!["/t/".into()], ViewConfig::default());
    ready(&view).await;
    let mut events = view.events();
    assert_eq!(events.recv().await, Some(Change::Reset));
    store.put("/t/a", b"1".to_vec(), None).await.unwrap();
    let put = store.get("/t/a").await.unwrap().unwrap();
    store.delete("/t/a").await.unwrap();
    let revision = put.mod_revision + 1;
    assert_eq!(events.recv().await, Some(Change::Put(put)));
    let deleted = Change::Delete { key: "/t/a".into(), revision };
    assert_eq!(events.recv().await, Some(deleted));
}

async fn a_view_of_several_prefixes_shows_transactions_whole(store: Store) {
    let prefixes = vec!["/t/a/".into(), "/t/b/".into()];
    let view = View::start(store.clone(), prefixes, ViewConfig::default());
    ready(&view).await;
    let mut changed = view.changed();
    for round in 0..50 {
        let value = round.to_string();
        let writes = vec![put("/t/a/1", &value), put("/t/b/1", &value), put("/t/c/1", &value)];
        let revision = written(store.commit(guarded(vec![], writes)).await);
        while *changed.borrow_and_update() < revision {
            changed.changed().await.unwrap();
            let seen = texts(&view, "/t/");
            let [a, b] = seen.as_slice() else { panic!("{seen:?}") };
            assert_eq!((a.0.as_str(), b.0.as_str(), &a.1), ("/t/a/1", "/t/b/1", &b.1));
        }
    }
}

async fn a_view_of_one_watch_per_prefix_shows_them_all(store: Store) {
    store.put("/t/a/1", b"1".to_vec(), None).await.unwrap();
    let prefixes = vec!["/t/a/".into(), "/t/b/".into()];
    let view = View::start(store.clone(), prefixes, ViewConfig::per_prefix());
    ready(&view).await;
    store.put("/t/b/1", b"1".to_vec(), None).await.unwrap();
    store.delete("/t/a/1").await.unwrap();
    store.put("/t/a/2", b"1".to_vec(), None).await.unwrap();
    store.put("/t/c/1", b"1".to_vec(), None).await.unwrap();
    let expected = [("/t/a/2", "1"), ("/t/b/1", "1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    evenkeel_testkit::wait_for("both prefixes", PATIENCE, || async {
        texts(&view, "") == expected
    })
    .await;
}

/// Larger than one message, so that etcd sends it in fragments.
async fn a_large_transaction_reaches_the_view(store: Store) {
    let view = View::start(store.clone(), vec!["/t/".into()], ViewConfig::default());
    ready(&view).await;
    let entries = (0..12).map(|i| (format!("/t/{i:02}"), vec![i; 1_000_000])).collect();
    store.put_all(entries, None).await.unwrap();
    level(&view, &store, "/t/").await;
    assert_eq!(shown(&view, "/t/").len(), 12);
}

/// Test plan: revisions that touch no key of the view, or only one of its prefixes, bring no
/// event to (all of) its watches; the view must be found level all the same.
async fn a_view_is_known_to_be_level_without_an_event(store: Store) {
    for config in [ViewConfig::default(), ViewConfig::per_prefix()] {
        let prefixes = vec!["/t/a/".into(), "/t/b/".into()];
        let view = View::start(store.clone(), prefixes, config);
        ready(&view).await;
        let elsewhere = store.put("/u", b"v".to_vec(), None).await.unwrap();
        assert!(view.wait_for(elsewhere, PATIENCE).await);
        store.put("/t/a/1", b"1".to_vec(), None).await.unwrap();
        store.delete_prefix("/t/a/").await.unwrap();
        let last = store.put("/t/a/2", b"1".to_vec(), None).await.unwrap();
        assert!(view.wait_for(last, PATIENCE).await);
        assert_eq!(texts(&view, "/t/"), [("/t/a/2".to_owned(), "1".to_owned())]);
        assert!(!view.wait_for(last + 1, Duration::from_millis(300)).await, "it is to come");
    }
}

/// By a second session on the same lease id there is no way; so by the plain client.
async fn revoke(store: &Store, id: i64) {
    let url = store.endpoints();
    let mut client = etcd_client::Client::connect([url], None).await.unwrap();
    client.lease_revoke(id).await.unwrap();
}
