//! Writes the records of copies: the newest of each, many in one transaction, under the leader's
//! token and lease.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_coordination::{Guarded, Outcome, Session, Store, Token, Write};
use evenkeel_model::keys::Keys;
use evenkeel_model::{CopyRecord, ShardKey};
use tokio::sync::mpsc;

use crate::metrics;

/// Records in one transaction; etcd takes 128 operations.
const BATCH: usize = 100;

/// After a failed write.
const PAUSE: Duration = Duration::from_secs(1);

/// What becomes of a record.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Write it.
    Write(CopyRecord),
    /// Remove it.
    Remove(ShardKey),
}

/// Keeps the latest change of each record until it is made.
pub struct Writer {
    /// Where they are kept.
    pub store: Store,
    /// Whose lease they are on.
    pub session: Session,
    /// Proof of leadership.
    pub token: Token,
    /// Key paths.
    pub keys: Keys,
}

impl Writer {
    /// Makes changes until their sender is gone or the leadership is over.
    pub async fn run(self, mut changes: mpsc::UnboundedReceiver<Change>) {
        let mut pending = self.leftovers().await;
        loop {
            if pending.is_empty() {
                let Some(change) = changes.recv().await else { return };
                self.note(&mut pending, change);
            }
            while let Ok(change) = changes.try_recv() {
                self.note(&mut pending, change);
            }
            match self.write_some(&mut pending).await {
                Written::Yes => {}
                Written::Not => tokio::time::sleep(PAUSE).await,
                Written::Deposed => return,
            }
        }
    }

    /// Records of an earlier leadership under the same lease: removed unless written again.
    async fn leftovers(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        match self.store.list(&self.keys.copies()).await {
            Ok(listing) => listing.entries.into_iter().map(|entry| (entry.key, None)).collect(),
            Err(error) => {
                tracing::warn!(%error, "cannot list the records of earlier copies");
                BTreeMap::new()
            }
        }
    }

    fn note(&self, pending: &mut BTreeMap<String, Option<Vec<u8>>>, change: Change) {
        let (key, value) = match change {
            Change::Write(record) => {
                (self.keys.copy(&record.shard), Some(evenkeel_model::encode(&record)))
            }
            Change::Remove(shard) => (self.keys.copy(&shard), None),
        };
        pending.insert(key, value);
    }

    async fn write_some(&self, pending: &mut BTreeMap<String, Option<Vec<u8>>>) -> Written {
        let Some(lease) = self.session.lease() else { return Written::Not };
        let batch: Vec<(String, Option<Vec<u8>>)> =
            pending.iter().take(BATCH).map(|(key, value)| (key.clone(), value.clone())).collect();
        let writes = batch
            .iter()
            .cloned()
            .map(|(key, value)| match value {
                Some(value) => Write::Put { key, value, lease: Some(lease.id) },
                None => Write::Delete { key },
            })
            .collect();
        let txn = Guarded { token: Some(self.token.clone()), guards: Vec::new(), writes };
        match self.store.commit(txn).await {
            Outcome::Written { .. } => {
                for (key, _) in batch {
                    pending.remove(&key);
                }
                Written::Yes
            }
            Outcome::Deposed => Written::Deposed,
            // Nothing else is guarded, and repeating a put of the same value is harmless.
            Outcome::Stale { .. } => Written::Not,
            Outcome::Unknown(error) => {
                metrics::write_failed();
                tracing::warn!(%error, records = pending.len(), "cannot write copy records");
                Written::Not
            }
        }
    }
}

enum Written {
    Yes,
    Not,
    Deposed,
}
