//! How listings and events change the map, and which changes are told of.

use super::state::{Change, Difference, ViewState};
use crate::{Entry, Listing, Revision};

fn entry(key: &str, revision: Revision) -> Entry {
    Entry {
        key: key.to_owned(),
        value: vec![1],
        create_revision: revision,
        mod_revision: revision,
        lease: None,
    }
}

fn put(key: &str, revision: Revision) -> Change {
    Change::Put(entry(key, revision))
}

fn delete(key: &str, revision: Revision) -> Change {
    Change::Delete { key: key.to_owned(), revision }
}

fn listing(revision: Revision, entries: &[(&str, Revision)]) -> Listing {
    let entries = entries.iter().map(|(key, revision)| entry(key, *revision)).collect();
    Listing { revision, cluster_id: 1, entries }
}

/// Lists `/a/` and `/b/` together.
fn list(state: &mut ViewState, a: Listing, b: Listing) -> Difference {
    let revision = a.revision;
    let prefixes = ["/a/".to_owned(), "/b/".to_owned()];
    let difference = state.replace(0, &prefixes, vec![a, b]);
    state.reach(0, revision);
    difference
}

fn keys(state: &ViewState, prefix: &str) -> Vec<String> {
    state.range(prefix).map(|entry| entry.key.clone()).collect()
}

#[test]
fn events_sent_again_change_nothing() {
    let mut state = ViewState::new(1, 0);
    let first = vec![put("/a/1", 5), put("/a/2", 6), delete("/a/1", 7)];
    assert_eq!(state.apply(0, first.clone(), 7), first);
    assert_eq!(state.apply(0, vec![put("/a/2", 6)], 7), vec![]);
    assert_eq!(state.apply(0, vec![delete("/a/1", 7)], 7), vec![]);
    assert_eq!(state.apply(0, vec![delete("/a/2", 6)], 7), vec![], "older than the entry");
    assert_eq!((state.revision(), keys(&state, "/a/")), (7, vec!["/a/2".to_owned()]));
}

#[test]
fn a_listing_turns_into_the_changes_that_were_missed() {
    let mut state = ViewState::new(1, 0);
    list(&mut state, listing(9, &[("/a/1", 3), ("/a/2", 4)]), listing(9, &[("/b/1", 5)]));
    let difference =
        list(&mut state, listing(20, &[("/a/2", 15), ("/a/3", 16)]), listing(20, &[("/b/1", 5)]));
    let changes = vec![put("/a/2", 15), put("/a/3", 16), delete("/a/1", 20)];
    assert_eq!(difference, Difference { changes, drifted: 0 });
    assert_eq!(keys(&state, "/"), ["/a/2", "/a/3", "/b/1"]);
    assert_eq!(state.revision(), 20);
}

#[test]
fn what_the_watch_should_have_seen_counts_as_drift() {
    let mut state = ViewState::new(1, 0);
    list(&mut state, listing(9, &[]), listing(9, &[]));
    let difference = list(&mut state, listing(12, &[("/a/1", 8)]), listing(12, &[("/b/1", 11)]));
    assert_eq!(difference.drifted, 1);
}

#[test]
fn a_replaced_store_may_have_lower_revisions() {
    let mut state = ViewState::new(1, 0);
    list(&mut state, listing(900, &[("/a/1", 800)]), listing(900, &[]));
    let difference = list(&mut state, listing(3, &[("/a/1", 2)]), listing(3, &[]));
    assert_eq!(difference.changes, vec![put("/a/1", 2)]);
    assert_eq!((state.revision(), state.get("/a/1")), (3, Some(&entry("/a/1", 2))));
}

#[test]
fn a_listing_leaves_other_prefixes_alone() {
    let mut state = ViewState::new(2, 0);
    state.apply(1, vec![put("/A", 1), put("/a", 1), put("/a0", 1), put("/é", 1)], 1);
    state.replace(0, &["/a/".to_owned()], vec![listing(5, &[("/a/1", 4)])]);
    assert_eq!(keys(&state, ""), ["/A", "/a", "/a/1", "/a0", "/é"]);
    state.replace(0, &["/a/".to_owned()], vec![listing(6, &[])]);
    assert_eq!(keys(&state, ""), ["/A", "/a", "/a0", "/é"]);
}

#[test]
fn the_views_revision_is_that_of_the_slowest_watch() {
    let mut state = ViewState::new(2, 0);
    state.reach(0, 9);
    assert_eq!(state.revision(), 0);
    state.reach(1, 5);
    assert_eq!(state.revision(), 5);
    assert_eq!(ViewState::new(0, 0).revision(), 0);
}
