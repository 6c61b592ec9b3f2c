//! Sees every change of assignments and reports in a real etcd, and checks the invariants on it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_coordination::{Change, Store, StoreConfig, View, ViewConfig};
use evenkeel_model::BrokerId;
use evenkeel_model::keys::Keys;
use evenkeel_simulator::Breach;
use evenkeel_simulator::invariants::Invariants;

/// What is seen, and what was wrong with it.
#[derive(Debug, Clone)]
pub struct Witness {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug)]
struct Seen {
    invariants: Invariants,
    breaches: Vec<Breach>,
}

impl Witness {
    /// Watches from before anything is placed.
    pub async fn start(url: &str, moves_max_concurrent: u32) -> anyhow::Result<Self> {
        let store = Store::open(StoreConfig::urls([url]))?;
        let keys = Keys::default();
        let prefixes = vec![keys.assignments(), keys.reports()];
        let view = View::start(store, prefixes, ViewConfig::default());
        let mut changes = view.events();
        view.ready().await;
        let invariants = Invariants::new(keys, moves_max_concurrent).of_single_keys();
        let seen = Arc::new(Mutex::new(Seen { invariants, breaches: Vec::new() }));
        let witness = Self { seen: seen.clone() };
        tokio::spawn(async move {
            // Held here: the view ends with its last handle.
            let _view = view;
            while let Some(change) = changes.recv().await {
                seen.lock().unwrap_or_else(PoisonError::into_inner).take(change);
            }
        });
        Ok(witness)
    }

    /// What broke so far.
    pub fn breaches(&self) -> Vec<Breach> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).breaches.clone()
    }

    /// What is not whole, served and even on these brokers.
    pub fn unsettled(
        &self,
        shards: usize,
        factor: usize,
        live: &BTreeSet<BrokerId>,
    ) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = seen.invariants.unsettled(shards, factor, live);
        let (stream, total) = seen.invariants.spread(live);
        if stream > 1 || total > 1 {
            left.push(format!("leaders differ by {stream} within a stream, {total} in total"));
        }
        left
    }
}

impl Seen {
    fn take(&mut self, change: Change) {
        let change = match change {
            Change::Put(entry) => evenkeel_embedded_etcd::Change {
                revision: entry.mod_revision,
                key: entry.key,
                value: Some(entry.value),
            },
            Change::Delete { key, revision } => {
                evenkeel_embedded_etcd::Change { revision, key, value: None }
            }
            Change::Reset => return,
        };
        let found = self.invariants.check(0, &[change]);
        self.breaches.extend(found);
    }
}
