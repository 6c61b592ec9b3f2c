//! Keeping the store small: old history is removed, and revisions that nobody needs are compacted.

use std::time::Duration;

use evenkeel_coordination::{Guarded, Outcome, Revision, Write};
use evenkeel_model::Millis;
use tokio::time::Instant;

use crate::cluster::{Cluster, Leading};
use crate::metrics;
use crate::records::{HistoryId, Records};

/// Between two looks at the history.
const TRIM_EVERY: Duration = Duration::from_secs(30);

/// Deletes in one transaction.
const TRIM_BATCH: usize = 100;

/// How the store is kept small.
#[derive(Debug, Clone)]
pub(crate) struct UpkeepConfig {
    /// History older than this is removed; 0 keeps it by number alone.
    pub(crate) history_keep_ms: Millis,
    /// At most this many history entries are kept.
    pub(crate) history_max_entries: usize,
    /// Between two compactions; 0 leaves compaction to etcd.
    pub(crate) compaction_interval: Duration,
}

/// When what was last done.
#[derive(Debug)]
pub(crate) struct Upkeep {
    config: UpkeepConfig,
    trimmed_at: Option<Instant>,
    compaction: Option<(Instant, Revision)>,
}

impl Upkeep {
    /// At an election.
    pub(crate) fn new(config: UpkeepConfig) -> Self {
        Self { config, trimmed_at: None, compaction: None }
    }

    /// Does what is due. Trouble is logged and tried again later.
    pub(crate) async fn run(&mut self, cluster: &Cluster, leading: &Leading) {
        let now = Instant::now();
        if self.trimmed_at.is_none_or(|at| now - at >= TRIM_EVERY) {
            self.trimmed_at = Some(now);
            self.trim(cluster, leading).await;
        }
        self.compact(cluster, now).await;
    }

    async fn trim(&self, cluster: &Cluster, leading: &Leading) {
        let now_ms = cluster.clock.now_ms();
        let superfluous = cluster.read(|records| superfluous(records, now_ms, &self.config));
        for batch in superfluous.chunks(TRIM_BATCH) {
            let delete = |id: &HistoryId| Write::Delete {
                key: cluster.keys.history_entry(id.at_ms, &id.shard),
            };
            let txn = Guarded {
                token: Some(leading.token.clone()),
                guards: Vec::new(),
                writes: batch.iter().map(delete).collect(),
            };
            match cluster.store.commit(txn).await {
                Outcome::Written { .. } => metrics::history_trimmed(batch.len()),
                Outcome::Unknown(error) => {
                    tracing::warn!(%error, "history was not trimmed");
                    return;
                }
                Outcome::Stale { .. } | Outcome::Deposed => return,
            }
        }
    }

    /// Compacts at the revision of the last time, so that a watch or a listing that is a little
    /// behind never meets a compacted revision.
    async fn compact(&mut self, cluster: &Cluster, now: Instant) {
        let interval = self.config.compaction_interval;
        if interval.is_zero() {
            return;
        }
        let revision = cluster.read(|records| records.revision);
        let Some((at, lagging)) = self.compaction else {
            self.compaction = Some((now, revision));
            return;
        };
        if now - at < interval {
            return;
        }
        self.compaction = Some((now, revision));
        match cluster.store.compact(lagging).await {
            Ok(()) => tracing::debug!(revision = lagging, "store compacted"),
            Err(error) => tracing::warn!(%error, revision = lagging, "store was not compacted"),
        }
    }
}

/// What the limits on moves and the operators no longer need, oldest first.
fn superfluous(records: &Records, now_ms: Millis, config: &UpkeepConfig) -> Vec<HistoryId> {
    let count = records.history.count();
    let surplus = count.saturating_sub(config.history_max_entries);
    let horizon = now_ms.saturating_sub(config.history_keep_ms);
    let old = |at_ms: Millis| config.history_keep_ms > 0 && at_ms < horizon;
    let entries = records.history.iter().enumerate();
    entries.filter(|(i, e)| *i < surplus || old(e.id.at_ms)).map(|(_, e)| e.id.clone()).collect()
}
