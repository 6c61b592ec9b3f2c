//! Views across everything that makes a watch go silent, break, or miss something.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use std::time::Duration;

use evenkeel_coordination::{Change, Store, StoreConfig, View, ViewConfig};
use evenkeel_testkit::{EtcdCluster, EtcdVersion, Proxy};
use support::{PATIENCE, SECOND, Server, etcd, level, open, ready, shown};
use tokio::time::timeout;

/// Quick to notice silence, so that the tests are quick too.
fn alert() -> ViewConfig {
    ViewConfig {
        silence: Duration::from_millis(300),
        answer_timeout: Duration::from_millis(300),
        relist_every: None,
        ..ViewConfig::default()
    }
}

async fn view_of(store: &Store, config: ViewConfig) -> View {
    let view = View::start(store.clone(), vec!["/t/".into()], config);
    ready(&view).await;
    view
}

async fn fill(store: &Store) {
    let entries = (0..10).map(|i| (format!("/t/{i}"), b"v".to_vec())).collect();
    store.put_all(entries, None).await.unwrap();
}

#[tokio::test]
async fn a_view_goes_on_after_crashes_of_etcd() {
    let Some(mut etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let store = open(&etcd.url());
    fill(&store).await;
    let view = view_of(&store, ViewConfig::default()).await;
    for round in 0..3 {
        etcd.kill9();
        etcd.restart().await.unwrap();
        store.delete(&format!("/t/{round}")).await.unwrap();
        store.put("/t/x", round.to_string().into_bytes(), None).await.unwrap();
        level(&view, &store, "/t/").await;
    }
    assert_eq!(shown(&view, "/t/").len(), 8);
}

#[tokio::test]
async fn a_view_goes_on_after_a_silence() {
    let Some(etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let proxy = Proxy::start(etcd.address()).await.unwrap();
    let (near, far) = (open(&etcd.url()), open(&proxy.url()));
    fill(&near).await;
    let view = view_of(&far, alert()).await;
    let before = view.heard_at();
    proxy.cut();
    near.delete("/t/3").await.unwrap();
    near.put("/t/x", b"v".to_vec(), None).await.unwrap();
    // Heard nothing for longer than it takes to give the watch up.
    tokio::time::sleep(SECOND).await;
    assert_eq!(shown(&view, "/t/").len(), 10);
    assert!(view.heard_at() < before + SECOND);
    proxy.heal();
    level(&view, &near, "/t/").await;
    assert!(view.heard_at() > before);
}

/// etcd is silent but not gone: the process is stopped, then goes on.
#[tokio::test]
async fn a_view_survives_a_stopped_etcd() {
    let Some(etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let store = open(&etcd.url());
    fill(&store).await;
    let view = view_of(&store, alert()).await;
    etcd.stop().unwrap();
    tokio::time::sleep(SECOND).await;
    etcd.cont().unwrap();
    store.delete("/t/3").await.unwrap();
    level(&view, &store, "/t/").await;
}

#[tokio::test]
async fn a_view_leaves_a_member_that_is_silent() {
    if EtcdVersion::V3_4.find().is_none() {
        eprintln!("skipped: no {} here", EtcdVersion::V3_4);
        return;
    }
    let cluster = EtcdCluster::start(EtcdVersion::V3_4, 3).await.unwrap();
    for (at, member) in cluster.members.iter().enumerate() {
        // The same seed begins at the same place, so that each member's turn comes.
        let mut urls = cluster.urls();
        urls.rotate_left(at);
        let store = Store::open(StoreConfig::urls(urls)).unwrap();
        store.probe(PATIENCE).await.unwrap();
        let view = view_of(&store, alert()).await;
        member.stop().unwrap();
        let other = open(&cluster.members[(at + 1) % 3].url());
        let revision = other.put("/t/a", at.to_string().into_bytes(), None).await.unwrap();
        assert!(view.wait_for(revision, PATIENCE).await);
        member.cont().unwrap();
    }
}

/// Test plan: cut the view off, delete a key, compact so that the deletion is in no history any
/// more, and let the view back in: the deletion must be a change like any other.
#[tokio::test]
async fn a_deletion_that_was_compacted_away_is_not_missed() {
    for version in [None, Some(EtcdVersion::V3_4), Some(EtcdVersion::V3_5)] {
        let server = match version {
            None => Server::embedded().await,
            Some(version) => match Server::real(version).await {
                Some(server) => server,
                None => continue,
            },
        };
        let target = server.url().trim_start_matches("http://").to_owned();
        let proxy = Proxy::start(target).await.unwrap();
        let (near, far) = (server.store(), open(&proxy.url()));
        fill(&near).await;
        let view = view_of(&far, alert()).await;
        let mut events = view.events();
        assert_eq!(events.recv().await, Some(Change::Reset));
        proxy.cut();
        near.delete("/t/3").await.unwrap();
        let revision = near.put("/t/4", b"new".to_vec(), None).await.unwrap();
        near.compact(revision).await.unwrap();
        // Only a new watch is told of the compaction; the old one may have the events on its way.
        proxy.reset();
        proxy.heal();
        level(&view, &near, "/t/").await;
        let mut changes = Vec::new();
        while changes.len() < 2 {
            changes.push(timeout(PATIENCE, events.recv()).await.unwrap().unwrap());
        }
        let deleted =
            |change: &Change| matches!(change, Change::Delete { key, .. } if key == "/t/3");
        let put = |change: &Change| matches!(change, Change::Put(entry) if entry.key == "/t/4");
        assert!(changes.iter().any(deleted) && changes.iter().any(put), "{changes:?}");
    }
}

#[tokio::test]
async fn a_replaced_store_is_read_anew() {
    let server = Server::embedded().await;
    let Server::Embedded { server: etcd, .. } = &server else { unreachable!() };
    let store = server.store();
    fill(&store).await;
    let view = view_of(&store, alert()).await;
    let mut events = view.events();
    assert_eq!(events.recv().await, Some(Change::Reset));
    etcd.wipe(2);
    store.put("/t/new", b"v".to_vec(), None).await.unwrap();
    level(&view, &store, "/t/").await;
    assert_eq!(shown(&view, "/t/").len(), 1);
    // What was known by revision is void, and the keys that are gone are told of.
    assert_eq!(events.recv().await, Some(Change::Reset));
    let mut gone = 0;
    while gone < 10 {
        if let Some(Change::Delete { .. }) = timeout(PATIENCE, events.recv()).await.unwrap() {
            gone += 1;
        }
    }
    store.put("/t/more", b"v".to_vec(), None).await.unwrap();
    level(&view, &store, "/t/").await;
}

/// A real etcd keeps its cluster's identity when its data is wiped: only revisions tell.
#[tokio::test]
async fn a_wiped_etcd_is_read_anew() {
    let Some(mut etcd) = etcd(EtcdVersion::V3_4, &[]).await else { return };
    let store = open(&etcd.url());
    fill(&store).await;
    for _ in 0..5 {
        store.put("/t/x", b"v".to_vec(), None).await.unwrap();
    }
    let view = view_of(&store, alert()).await;
    etcd.wipe_and_restart().await.unwrap();
    store.put("/t/new", b"v".to_vec(), None).await.unwrap();
    level(&view, &store, "/t/").await;
    store.put("/t/more", b"v".to_vec(), None).await.unwrap();
    level(&view, &store, "/t/").await;
    assert_eq!(shown(&view, "/t/").len(), 2);
}

/// The comparison must neither lose nor repeat what happens while it lists.
#[tokio::test]
async fn comparing_while_the_store_changes_tells_each_change_once() {
    for real in [false, true] {
        let server = match real {
            false => Server::embedded().await,
            true => match Server::real(EtcdVersion::V3_4).await {
                Some(server) => server,
                None => continue,
            },
        };
        let store = server.store();
        let often = Some(Duration::from_millis(5));
        let view = view_of(&store, ViewConfig { relist_every: often, ..alert() }).await;
        let mut events = view.events();
        assert_eq!(events.recv().await, Some(Change::Reset));
        let mut last = 0;
        for round in 0..300 {
            last = store.put("/t/a", round.to_string().into_bytes(), None).await.unwrap();
        }
        assert!(view.wait_for(last, PATIENCE).await);
        let mut seen = 0;
        while seen < last {
            let change = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
            let Change::Put(entry) = change else { panic!("{change:?}") };
            assert!(entry.mod_revision > seen, "told again");
            seen = entry.mod_revision;
        }
    }
}

/// Test plan: with a login that expires within a second, every new watch begins with a refusal
/// unless the login is renewed first.
#[tokio::test]
async fn a_view_renews_its_login_before_it_watches_again() {
    let Some(etcd) = etcd(EtcdVersion::V3_4, &["--auth-token-ttl", "1"]).await else { return };
    let mut root = etcd_client::Client::connect([etcd.url()], None).await.unwrap();
    root.user_add("root", "root", None).await.unwrap();
    root.role_add("root").await.unwrap();
    root.user_grant_role("root", "root").await.unwrap();
    root.auth_enable().await.unwrap();
    let proxy = Proxy::start(etcd.address()).await.unwrap();
    let user = Some(("root".to_owned(), "root".to_owned()));
    let login = |url: String| StoreConfig { user: user.clone(), ..StoreConfig::urls([url]) };
    let (near, far) =
        (Store::open(login(etcd.url())).unwrap(), Store::open(login(proxy.url())).unwrap());
    let view = view_of(&far, alert()).await;
    for round in 0..3 {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        proxy.reset();
        near.put("/t/a", round.to_string().into_bytes(), None).await.unwrap();
        level(&view, &near, "/t/").await;
    }
}
