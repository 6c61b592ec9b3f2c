//! What each kind of message makes a view do.

use super::cursor::{Cursor, Message, Relist, Reopen, Verdict};
use super::state::Change;
use crate::{Entry, Revision};

const CLUSTER: u64 = 77;

/// After a listing at revision 10.
fn cursor() -> Cursor {
    Cursor::after(CLUSTER, 10)
}

fn message(revision: Revision) -> Message {
    Message { cluster_id: CLUSTER, revision, ..Message::default() }
}

fn created(revision: Revision) -> Message {
    Message { created: true, ..message(revision) }
}

fn put(revision: Revision, key: &str) -> (Revision, Change) {
    let entry = Entry {
        key: key.to_owned(),
        value: Vec::new(),
        create_revision: revision,
        mod_revision: revision,
        lease: None,
    };
    (revision, Change::Put(entry))
}

fn events(events: &[(Revision, Change)]) -> Message {
    let revision = events.last().map_or(0, |(revision, _)| *revision);
    Message { events: events.to_vec(), ..message(revision) }
}

fn apply(events: &[(Revision, Change)], revision: Revision) -> Verdict {
    Verdict::Apply { changes: events.iter().map(|(_, c)| c.clone()).collect(), revision }
}

#[test]
fn events_are_applied_and_resumed_from_inclusively() {
    let mut cursor = cursor();
    assert_eq!(cursor.accept(created(10)), Verdict::Alive);
    let both = [put(11, "a"), put(12, "b")];
    assert_eq!(cursor.accept(events(&both)), apply(&both, 12));
    assert_eq!(cursor.next, 12);
    // More of the last revision can still come.
    let more = [put(12, "c")];
    assert_eq!(cursor.accept(events(&more)), apply(&more, 12));
    // What lies before it was seen.
    let old = [put(11, "a"), put(12, "b")];
    assert_eq!(cursor.accept(events(&old)), apply(&old[1..], 12));
}

#[test]
fn fragments_are_applied_together() {
    let mut cursor = cursor();
    let first = [put(11, "a")];
    let rest = [put(11, "b")];
    let fragment = Message { fragment: true, ..events(&first) };
    assert_eq!(cursor.accept(fragment.clone()), Verdict::Alive);
    assert_eq!(cursor.next, 11);
    let whole = [put(11, "a"), put(11, "b")];
    assert_eq!(cursor.accept(events(&rest)), apply(&whole, 11));
    // A watch that breaks in between sends everything again.
    let mut broken = self::cursor();
    broken.accept(fragment.clone());
    broken.reopened();
    broken.accept(fragment);
    assert_eq!(broken.accept(events(&rest)), apply(&whole, 11));
}

#[test]
fn only_progress_that_etcd_reports_by_itself_moves_the_cursor() {
    let mut cursor = cursor();
    let asked_for = Message { watch_id: -1, ..message(40) };
    assert_eq!(cursor.accept(asked_for), Verdict::Alive);
    assert_eq!(cursor.next, 11);
    assert_eq!(cursor.accept(message(40)), apply(&[], 40));
    assert_eq!(cursor.next, 41);
    assert_eq!(cursor.accept(message(40)), Verdict::Alive);
    // The creation of a watch says where the store is, not what was sent.
    assert_eq!(cursor.accept(created(50)), Verdict::Alive);
    assert_eq!(cursor.next, 41);
}

#[test]
fn what_cannot_be_resumed_is_listed_again() {
    let compacted =
        Message { canceled: true, compact_revision: 30, revision: 0, cluster_id: 0, ..created(0) };
    assert_eq!(cursor().accept(compacted), Verdict::Relist(Relist::Compacted));
    let canceled = Message { canceled: true, ..message(0) };
    assert_eq!(cursor().accept(canceled), Verdict::Relist(Relist::Canceled));
    let replaced = Message { cluster_id: 78, ..created(40) };
    assert_eq!(cursor().accept(replaced), Verdict::Relist(Relist::StoreReplaced));
    assert_eq!(cursor().accept(created(9)), Verdict::Relist(Relist::Regressed));
    assert_eq!(cursor().accept(created(10)), Verdict::Alive);
}

#[test]
fn an_expired_login_is_no_reason_to_list() {
    for reason in [
        "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
        "rpc error: code = PermissionDenied desc = etcdserver: permission denied",
        "etcdserver: revision of auth store is old",
    ] {
        let refused = Message { canceled: true, cancel_reason: reason.to_owned(), ..created(10) };
        assert_eq!(cursor().accept(refused), Verdict::Reopen(Reopen::Auth), "{reason}");
    }
}
