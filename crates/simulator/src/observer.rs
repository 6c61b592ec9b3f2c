//! Follows everything that is written to the store: the trace, and what the invariants look at.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_embedded_etcd::{Change, EmbeddedEtcd};
use evenkeel_model::hash;
use evenkeel_runtime::Clock;

use crate::Breach;
use crate::invariants::Invariants;

/// What has been seen so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) revisions: u64,
    pub(crate) trace: u64,
    /// How often each family of keys was written.
    pub(crate) writes: BTreeMap<String, u64>,
    pub(crate) breaches: Vec<Breach>,
    pub(crate) invariants: Invariants,
}

/// Shared with the task that follows the store.
#[derive(Debug, Clone)]
pub(crate) struct Observer(Arc<Mutex<Seen>>);

impl Observer {
    /// Starts to follow; call before anything is written.
    pub(crate) fn start(etcd: &EmbeddedEtcd, clock: Clock, invariants: Invariants) -> Self {
        let seen = Seen { invariants, ..Seen::default() };
        let observer = Self(Arc::new(Mutex::new(seen)));
        let mut revisions = etcd.observe();
        let following = observer.clone();
        tokio::spawn(async move {
            while let Some(changes) = revisions.recv().await {
                following.seen().take(clock.now_ms(), &changes);
            }
        });
        observer
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn take(&mut self, now_ms: i64, changes: &[Change]) {
        self.revisions += 1;
        for change in changes {
            let family = change.key.split('/').take(3).collect::<Vec<_>>().join("/");
            *self.writes.entry(family).or_default() += 1;
            let value = change.value.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            let line = format!("{now_ms} {} {} {value}", change.revision, change.key);
            self.trace = hash::combine(self.trace, hash::hash64(&line));
        }
        self.breaches.extend(self.invariants.check(now_ms, changes));
    }
}
