//! Shards that this broker handed over and offers to lead again.
//!
//! A leader that declined its generation will never serve it. Then who handed the shard over says
//! again that it had drained, so that it can be named anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_model::{Assignment, BrokerId, Phase, ShardKey, ShardReport};
use tokio::sync::watch;

use crate::host::HandedOver;

/// What this broker reports of shards that it does not hold.
pub(crate) struct Offers {
    me: BrokerId,
    reports: watch::Sender<BTreeMap<ShardKey, ShardReport>>,
}

impl Offers {
    /// None yet, and where they are read.
    pub(crate) fn new(me: BrokerId) -> (Self, watch::Receiver<BTreeMap<ShardKey, ShardReport>>) {
        let (reports, told) = watch::channel(BTreeMap::new());
        (Self { me, reports }, told)
    }

    /// Says again that this broker drained. The leader of `assignment` declined.
    pub(crate) fn put(&self, assignment: &Assignment, handed_over: HandedOver) {
        let report = ShardReport {
            broker: self.me.clone(),
            shard: assignment.shard.clone(),
            generation: handed_over.generation,
            phase: Some(Phase::Drained),
            caught_up: false,
            lag_records: None,
            drained: true,
            halted: None,
            log_end: Some(handed_over.log_end),
            declined: false,
        };
        self.reports.send_if_modified(|offers| {
            let is_new = offers.insert(report.shard.clone(), report.clone()).is_none();
            if is_new {
                let shard = &report.shard;
                tracing::warn!(%shard, "its new leader cannot serve; this broker still holds it all");
            }
            is_new
        });
    }

    /// An offer ends with the generation that was declined. `elsewhere` are the assignments of the
    /// shards that others hold.
    pub(crate) fn keep(&self, elsewhere: &BTreeMap<ShardKey, Arc<Assignment>>) {
        self.reports.send_if_modified(|offers| {
            let before = offers.len();
            offers.retain(|shard, report| {
                elsewhere.get(shard).is_some_and(|a| a.generation == report.generation + 1)
            });
            offers.len() < before
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_news_once_and_lasts_as_long_as_the_generation_that_was_declined() {
        let (offers, mut told) = Offers::new("b1".parse().unwrap());
        let shard: ShardKey = "stream/d/s/0".parse().unwrap();
        let mut assignment = Assignment::new(shard.clone(), "b2".parse().unwrap(), vec![]);
        assignment.generation = 4;
        let drained = HandedOver { generation: 3, log_end: 100 };
        offers.put(&assignment, drained);
        assert!(told.has_changed().unwrap());
        let report = told.borrow_and_update()[&shard].clone();
        assert!(report.drained && report.generation == 3 && report.log_end == Some(100));
        offers.put(&assignment, drained);
        offers.keep(&BTreeMap::from([(shard.clone(), Arc::new(assignment.clone()))]));
        assert!(!told.has_changed().unwrap());
        assignment.generation = 5;
        offers.keep(&BTreeMap::from([(shard, Arc::new(assignment))]));
        assert!(told.has_changed().unwrap() && told.borrow_and_update().is_empty());
    }
}
