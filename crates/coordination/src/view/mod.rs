//! The keys under some prefixes, as one map that follows the store for ever.

mod cursor;
#[cfg(test)]
mod cursor_tests;
mod feed;
mod journal;
mod level;
mod shared;
mod state;
#[cfg(test)]
mod state_tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

pub use journal::Mark;
pub use state::{Change, ViewState};

use crate::{Revision, Store};
use shared::Shared;

/// How many watches a view opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// One, over the longest prefix that all have in common: all prefixes are seen at one
    /// revision, and a transaction that touches several is seen whole. The price is that other
    /// keys under the common prefix are sent too. For the processes that look at nearly all.
    Joint,
    /// One for each prefix: nothing else is sent, but each prefix is at its own revision, and the
    /// view's revision is the lowest, which stands still while a prefix is quiet. For the many
    /// processes that look at little.
    PerPrefix,
}

/// Settings of a [`View`].
#[derive(Debug, Clone)]
pub struct ViewConfig {
    /// How many watches are opened. [`Streams::Joint`].
    pub streams: Streams,
    /// A watch that says nothing for this long is asked whether it is alive. 5 s.
    pub silence: Duration,
    /// A watch that does not answer that for this long is replaced. 2 s.
    pub answer_timeout: Duration,
    /// Everything is listed and compared this often, because etcd can skip events of a slow
    /// watch; never if none. 5 min.
    pub relist_every: Option<Duration>,
    /// How many changes are remembered for [`ViewState::changed_since`]; for the process that looks
    /// at very many keys very often. None.
    pub remembered_changes: usize,
}

impl Default for ViewConfig {
    fn default() -> Self {
        Self {
            streams: Streams::Joint,
            silence: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(2),
            relist_every: Some(Duration::from_secs(300)),
            remembered_changes: 0,
        }
    }
}

impl ViewConfig {
    /// The defaults, with one watch for each prefix.
    pub fn per_prefix() -> Self {
        Self { streams: Streams::PerPrefix, ..Self::default() }
    }
}

/// A map of the keys under some prefixes: listed page by page at one revision, then watched from
/// the next. It survives everything the store does: after a gap it goes on from the last revision
/// that it has applied, and if that is impossible (compaction, a replaced store) it lists again
/// and turns the difference into changes, so that no deletion is missed.
///
/// Clones share the map. Dropping the last one ends its watches.
#[derive(Clone)]
pub struct View {
    store: Store,
    shared: Arc<Shared>,
    feeds: Arc<Feeds>,
}

struct Feeds {
    running: Vec<AbortHandle>,
    /// The prefixes of each.
    groups: Vec<Vec<String>>,
}

impl Drop for Feeds {
    fn drop(&mut self) {
        for feed in &self.running {
            feed.abort();
        }
    }
}

/// How long events are waited for before the store is asked; twice as long each time.
const EVENT_PATIENCE: Duration = Duration::from_millis(50);
const EVENT_PATIENCE_MAX: Duration = Duration::from_secs(1);

impl View {
    /// Starts to list and watch; must be called inside a runtime.
    pub fn start(store: Store, prefixes: Vec<String>, config: ViewConfig) -> Self {
        let groups: Vec<Vec<String>> = match config.streams {
            Streams::Joint => vec![prefixes],
            Streams::PerPrefix => prefixes.into_iter().map(|prefix| vec![prefix]).collect(),
        };
        let shared = Arc::new(Shared::new(groups.len(), config.remembered_changes));
        let running = groups
            .iter()
            .cloned()
            .enumerate()
            .map(|(index, prefixes)| {
                let feed = feed::Feed::new(
                    store.clone(),
                    shared.clone(),
                    config.clone(),
                    feed::Scope { index, prefixes },
                );
                tokio::spawn(feed.run()).abort_handle()
            })
            .collect();
        Self { store, shared, feeds: Arc::new(Feeds { running, groups }) }
    }

    /// Waits until every prefix was listed.
    pub async fn ready(&self) {
        let mut revision = self.changed();
        // The sender lives in what `self` holds, so this cannot fail.
        let _ = revision.wait_for(|revision| *revision > 0).await;
    }

    /// Whether every prefix was listed.
    pub fn is_ready(&self) -> bool {
        *self.shared.revision.borrow() > 0
    }

    /// Looks at the map. It cannot change meanwhile, so do not stay long.
    pub fn read<T>(&self, look: impl FnOnce(&ViewState) -> T) -> T {
        self.shared.read(look)
    }

    /// The revision that the map shows, as it changes; 0 before [`View::ready`]. It also tells of
    /// changes after which the revision is the same or, if the store was replaced, lower.
    pub fn changed(&self) -> watch::Receiver<Revision> {
        self.shared.revision.subscribe()
    }

    /// Waits until the map shows everything up to `revision`, such as that of a write. `false`
    /// if it does not within `limit`.
    ///
    /// Events tell soon if the revision touched the map's keys; if it did not, the store is asked
    /// whether it holds anything that the map does not show.
    pub async fn wait_for(&self, revision: Revision, limit: Duration) -> bool {
        timeout(limit, self.shows(revision)).await.is_ok()
    }

    async fn shows(&self, revision: Revision) {
        let mut shown = self.changed();
        let mut patience = EVENT_PATIENCE;
        while *shown.borrow_and_update() < revision {
            // The sender lives in what `self` holds, so this fails only by being late.
            if timeout(patience, shown.changed()).await.is_ok() {
                continue;
            }
            let level = level::shows(&self.store, &self.shared, &self.feeds.groups, revision);
            if level.await.unwrap_or(false) {
                return;
            }
            patience = (patience * 2).min(EVENT_PATIENCE_MAX);
        }
    }

    /// Every change from now on, in the order it is applied. The first is always
    /// [`Change::Reset`]: read the whole map then. A receiver that falls thousands of changes
    /// behind gets another reset in place of what it missed.
    pub fn events(&self) -> mpsc::Receiver<Change> {
        self.shared.subscribe()
    }

    /// When the store was last heard of by the watch that has been silent for longest. While it
    /// is long ago the map may be out of date.
    pub fn heard_at(&self) -> Instant {
        self.shared.heard_at()
    }
}
