//! What was acknowledged: for each shard the offset and a hash of every record.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel_model::ShardKey;
use tokio::time::Instant;
use xxhash_rust::xxh64::xxh64;

/// No acknowledgement for so long means that there is nothing to acknowledge.
const QUIET: Duration = Duration::from_secs(2);

/// One acknowledged record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Acknowledged {
    pub(crate) offset: u64,
    pub(crate) hash: u64,
}

/// The hash that a record is known by.
pub(crate) fn hash(payload: &[u8]) -> u64 {
    xxh64(payload, 0)
}

/// The longest time that a batch took from the first attempt to its acknowledgement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) longest: Duration,
    /// What went on in the demo when it ended.
    pub(crate) during: String,
    pub(crate) shard: String,
}

/// Shared by all producers.
#[derive(Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    shards: BTreeMap<ShardKey, Vec<Acknowledged>>,
    bytes: u64,
    records: u64,
    retried: u64,
    stall: Stall,
    step: String,
    last: Option<Instant>,
}

/// How far publishing has come.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    /// Batches that took more than one attempt.
    pub(crate) retried: u64,
}

impl Ledger {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names what goes on now.
    pub(crate) fn step(&self, step: &str) {
        step.clone_into(&mut self.state().step);
    }

    /// A batch was acknowledged.
    pub(crate) fn acknowledge(
        &self,
        shard: &ShardKey,
        batch: &Batch,
        took: Duration,
        attempts: u32,
    ) {
        let mut state = self.state();
        state.last = Some(Instant::now());
        state.bytes += batch.bytes;
        state.records += batch.records.len() as u64;
        state.retried += u64::from(attempts > 1);
        if took > state.stall.longest {
            let during = state.step.clone();
            state.stall = Stall { longest: took, during, shard: shard.to_string() };
        }
        state.shards.entry(shard.clone()).or_default().extend(&batch.records);
    }

    /// How far publishing has come.
    pub(crate) fn progress(&self) -> Progress {
        let state = self.state();
        Progress { bytes: state.bytes, records: state.records, retried: state.retried }
    }

    /// Whether nothing was acknowledged for a while: there may be nothing more to publish.
    pub(crate) fn is_quiet(&self) -> bool {
        let last = self.state().last;
        last.is_some_and(|last| last.elapsed() > QUIET)
    }

    /// The longest write stall.
    pub(crate) fn stall(&self) -> Stall {
        self.state().stall.clone()
    }

    /// Everything acknowledged, by offset; takes it out.
    pub(crate) fn take(&self) -> BTreeMap<ShardKey, Vec<Acknowledged>> {
        let mut shards = std::mem::take(&mut self.state().shards);
        for records in shards.values_mut() {
            records.sort_unstable();
        }
        shards
    }
}

/// A batch as it was acknowledged.
pub(crate) struct Batch {
    pub(crate) records: Vec<Acknowledged>,
    pub(crate) bytes: u64,
}
