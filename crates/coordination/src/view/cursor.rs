//! What each message of a watch means for the view that reads it.

use etcd_client::{EventType, WatchResponse};

use super::state::Change;
use crate::{Entry, Revision};

/// One message of a watch, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Message {
    pub(super) cluster_id: u64,
    /// The store's revision when the message was made.
    pub(super) revision: Revision,
    pub(super) watch_id: i64,
    pub(super) created: bool,
    pub(super) canceled: bool,
    pub(super) compact_revision: Revision,
    pub(super) cancel_reason: String,
    /// More of the same message follows.
    pub(super) fragment: bool,
    pub(super) events: Vec<(Revision, Change)>,
}

impl Message {
    pub(super) fn from_etcd(answer: &WatchResponse) -> Self {
        let header = answer.header();
        Self {
            cluster_id: header.map_or(0, |h| h.cluster_id()),
            revision: header.map_or(0, |h| h.revision()),
            watch_id: answer.watch_id(),
            created: answer.created(),
            canceled: answer.canceled(),
            compact_revision: answer.compact_revision(),
            cancel_reason: answer.cancel_reason().to_owned(),
            fragment: answer.0.fragment,
            events: answer.events().iter().filter_map(event).collect(),
        }
    }
}

fn event(event: &etcd_client::Event) -> Option<(Revision, Change)> {
    let kv = event.kv()?;
    let entry = Entry::from_etcd(kv)?;
    let revision = kv.mod_revision();
    let change = match event.event_type() {
        EventType::Put => Change::Put(entry),
        EventType::Delete => Change::Delete { key: entry.key, revision },
    };
    Some((revision, change))
}

/// Why everything is listed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relist {
    Start,
    Compacted,
    Canceled,
    StoreReplaced,
    Regressed,
    Periodic,
}

impl Relist {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Compacted => "compacted",
            Self::Canceled => "canceled",
            Self::StoreReplaced => "store_replaced",
            Self::Regressed => "regressed",
            Self::Periodic => "periodic",
        }
    }
}

/// Why the watch is opened again from where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reopen {
    Error,
    Closed,
    Silent,
    Auth,
}

impl Reopen {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Closed => "closed",
            Self::Silent => "silent",
            Self::Auth => "auth",
        }
    }
}

/// What to do with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It only shows that the watch is alive.
    Alive,
    /// Apply these; the watch has then come to `revision`.
    Apply {
        changes: Vec<Change>,
        revision: Revision,
    },
    Relist(Relist),
    Reopen(Reopen),
}

/// Where a view is in the store's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) cluster_id: u64,
    /// The watch resumes here. It is the last applied revision itself, not the one after, until
    /// something newer shows that all events of that revision were sent.
    pub(super) next: Revision,
    /// Fragments wait for the rest, so that a transaction is seen whole.
    pending: Vec<(Revision, Change)>,
}

impl Cursor {
    /// After a listing at `revision`.
    pub(super) fn after(cluster_id: u64, revision: Revision) -> Self {
        Self { cluster_id, next: revision + 1, pending: Vec::new() }
    }

    /// A new watch sends the rest of an interrupted message again, from its beginning.
    pub(super) fn reopened(&mut self) {
        self.pending.clear();
    }

    pub(super) fn accept(&mut self, message: Message) -> Verdict {
        // A cancelled watch can come with an empty header, so this is looked at first.
        if message.compact_revision > 0 {
            return Verdict::Relist(Relist::Compacted);
        }
        if message.canceled {
            return if refused(&message.cancel_reason) {
                Verdict::Reopen(Reopen::Auth)
            } else {
                Verdict::Relist(Relist::Canceled)
            };
        }
        if message.cluster_id != self.cluster_id {
            return Verdict::Relist(Relist::StoreReplaced);
        }
        if message.revision + 1 < self.next {
            return Verdict::Relist(Relist::Regressed);
        }
        let next = self.next;
        self.pending.extend(message.events.into_iter().filter(|(revision, _)| *revision >= next));
        if message.fragment {
            return Verdict::Alive;
        }
        if let Some((last, _)) = self.pending.last() {
            let revision = *last;
            self.next = revision;
            let changes = self.pending.drain(..).map(|(_, change)| change).collect();
            return Verdict::Apply { changes, revision };
        }
        // The answer to a request for progress (watch id -1) may be ahead of events that are
        // still to be sent; the progress etcd reports by itself is not.
        if message.watch_id >= 0 && !message.created && message.revision >= self.next {
            self.next = message.revision + 1;
            return Verdict::Apply { changes: Vec::new(), revision: message.revision };
        }
        Verdict::Alive
    }
}

/// An expired login cancels a new watch in its first message; some versions call it a lack of
/// permission.
fn refused(reason: &str) -> bool {
    ["invalid auth token", "permission denied", "revision of auth store is old", "Unauthenticated"]
        .iter()
        .any(|text| reason.contains(text))
}
