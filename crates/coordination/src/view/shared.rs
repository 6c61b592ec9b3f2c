//! What a view's handles and its watches share: the map, its revision, its subscribers.

use std::sync::{Mutex, PoisonError, RwLock};

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::state::{Change, ViewState};
use crate::{Listing, Revision};

/// Changes that a subscriber may be behind before it gets a reset instead.
const BACKLOG: usize = 8192;

pub(super) struct Shared {
    /// Locked before `subscribers`, so that changes are sent in the order they are applied.
    state: RwLock<ViewState>,
    subscribers: Mutex<Vec<Subscriber>>,
    heard: Mutex<Vec<Instant>>,
    pub(super) revision: watch::Sender<Revision>,
}

struct Subscriber {
    changes: mpsc::Sender<Change>,
    lagging: bool,
}

impl Subscriber {
    /// The last free place is kept for the reset that stands for whatever does not fit.
    /// `false` if nobody listens any more.
    fn send(&mut self, change: &Change) -> bool {
        let sent = match self.changes.capacity() {
            0 => return !self.changes.is_closed(),
            1 if self.lagging => return !self.changes.is_closed(),
            1 => {
                self.lagging = true;
                self.changes.try_send(Change::Reset)
            }
            _ => {
                self.lagging = false;
                self.changes.try_send(change.clone())
            }
        };
        sent.is_ok()
    }
}

impl Shared {
    pub(super) fn new(feeds: usize, remembered_changes: usize) -> Self {
        Self {
            state: RwLock::new(ViewState::new(feeds, remembered_changes)),
            subscribers: Mutex::default(),
            heard: Mutex::new(vec![Instant::now(); feeds]),
            revision: watch::Sender::new(0),
        }
    }

    pub(super) fn read<T>(&self, look: impl FnOnce(&ViewState) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn subscribe(&self) -> mpsc::Receiver<Change> {
        self.subscribe_with_backlog(BACKLOG)
    }

    pub(super) fn subscribe_with_backlog(&self, backlog: usize) -> mpsc::Receiver<Change> {
        let (changes, receiver) = mpsc::channel(backlog);
        // Under the map's lock: what is applied later is sent, what was before is read.
        self.read(|_| {
            let mut subscriber = Subscriber { changes, lagging: false };
            subscriber.send(&Change::Reset);
            self.lock_subscribers().push(subscriber);
        });
        receiver
    }

    pub(super) fn heard(&self, feed: usize) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)[feed] = Instant::now();
    }

    pub(super) fn heard_at(&self) -> Instant {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.iter().copied().min().unwrap_or_else(Instant::now)
    }

    /// Applies events that bring a watch to `revision`.
    pub(super) fn apply(&self, feed: usize, changes: Vec<Change>, revision: Revision) {
        self.change(|state| state.apply(feed, changes, revision));
    }

    /// Makes part of the map what the listings say. Returns how many keys were not as the watch
    /// should have left them.
    pub(super) fn replace(
        &self,
        feed: usize,
        prefixes: &[String],
        listings: Vec<Listing>,
        same_store: bool,
    ) -> usize {
        let Some(revision) = listings.first().map(|listing| listing.revision) else { return 0 };
        let mut drifted = 0;
        self.change(|state| {
            let difference = state.replace(feed, prefixes, listings);
            state.reach(feed, revision);
            drifted = difference.drifted;
            if same_store {
                difference.changes
            } else {
                // Revisions of the old store mean nothing in the new one.
                std::iter::once(Change::Reset).chain(difference.changes).collect()
            }
        });
        if same_store { drifted } else { 0 }
    }

    fn change(&self, apply: impl FnOnce(&mut ViewState) -> Vec<Change>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let before = state.revision();
        let changes = apply(&mut state);
        let revision = state.revision();
        if !changes.is_empty() {
            let mut subscribers = self.lock_subscribers();
            for change in &changes {
                subscribers.retain_mut(|subscriber| subscriber.send(change));
            }
        }
        drop(state);
        if revision != before || !changes.is_empty() {
            self.revision.send_replace(revision);
        }
    }

    fn lock_subscribers(&self) -> std::sync::MutexGuard<'_, Vec<Subscriber>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delete(revision: Revision) -> Change {
        Change::Delete { key: "k".into(), revision }
    }

    #[test]
    fn a_subscriber_that_falls_behind_gets_a_reset_for_what_it_missed() {
        let shared = Shared::new(1, 0);
        let mut receiver = shared.subscribe_with_backlog(4);
        let send = |revision| shared.change(|_| vec![delete(revision)]);
        // The reset of the beginning takes a place too.
        (1..=6).for_each(send);
        let mut received = Vec::new();
        while let Ok(change) = receiver.try_recv() {
            received.push(change);
        }
        assert_eq!(received, vec![Change::Reset, delete(1), delete(2), Change::Reset]);
        send(7);
        assert_eq!(receiver.try_recv(), Ok(delete(7)));
    }

    #[test]
    fn a_reset_that_still_waits_covers_what_does_not_fit_behind_it() {
        let shared = Shared::new(1, 0);
        let mut receiver = shared.subscribe_with_backlog(4);
        let send = |revision| shared.change(|_| vec![delete(revision)]);
        (1..=4).for_each(send);
        assert_eq!(receiver.try_recv(), Ok(Change::Reset));
        // One place is free, and it is not the time for a second reset.
        send(5);
        assert_eq!(receiver.try_recv(), Ok(delete(1)));
        send(6);
        let rest: Vec<_> = std::iter::from_fn(|| receiver.try_recv().ok()).collect();
        assert_eq!(rest, vec![delete(2), Change::Reset, delete(6)]);
    }

    #[test]
    fn subscribers_that_are_gone_are_forgotten() {
        let shared = Shared::new(1, 0);
        drop(shared.subscribe_with_backlog(4));
        shared.change(|_| vec![delete(1)]);
        assert_eq!(shared.lock_subscribers().len(), 0);
    }
}
