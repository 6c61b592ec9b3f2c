//! Replicas here that cannot go on, and why: a page for people.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::routing::get;
use axum::{Json, Router};
use evenkeel_model::{ShardKey, ShardReport};

/// The halted replicas. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Halted(Arc<Mutex<BTreeMap<ShardKey, String>>>);

impl Halted {
    fn reasons(&self) -> MutexGuard<'_, BTreeMap<ShardKey, String>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The host reports an edge.
    pub(crate) fn reported(&self, report: &ShardReport) {
        match &report.halted {
            Some(reason) => self.reasons().insert(report.shard.clone(), reason.clone()),
            None => self.reasons().remove(&report.shard),
        };
    }

    /// Only these shards are held.
    pub(crate) fn keep(&self, is_held: impl Fn(&ShardKey) -> bool) {
        self.reasons().retain(|shard, _| is_held(shard));
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.reasons().len()
    }

    /// `/replication/halted`: each halted shard with its reason, as a JSON object.
    pub(crate) fn page(&self) -> Router {
        let halted = self.clone();
        let answer = move || {
            let reasons: BTreeMap<String, String> =
                halted.reasons().iter().map(|(s, r)| (s.to_string(), r.clone())).collect();
            async move { Json(reasons) }
        };
        Router::new().route("/replication/halted", get(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_listed_while_it_is_halted_and_held() {
        let halted = Halted::default();
        let shard: ShardKey = "stream/d/s/0".parse().unwrap();
        let report = |reason: Option<&str>| ShardReport {
            broker: "b1".parse().unwrap(),
            shard: shard.clone(),
            generation: 1,
            phase: None,
            caught_up: false,
            lag_records: None,
            drained: false,
            halted: reason.map(str::to_owned),
            log_end: None,
            declined: false,
        };
        halted.reported(&report(Some("bad checksum")));
        assert_eq!(halted.count(), 1);
        halted.reported(&report(None));
        assert_eq!(halted.count(), 0);
        halted.reported(&report(Some("bad checksum")));
        halted.keep(|_| false);
        assert_eq!(halted.count(), 0);
    }
}
