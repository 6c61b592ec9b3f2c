//! How long a shard stands still while it is handed over to this broker: from hearing of the fence
//! to serving.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use evenkeel_model::{Assignment, BrokerId, Phase, ShardKey, ShardReport, ShardState};
use tokio::time::Instant;

/// Hand-overs to this broker under way. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Switchovers(Arc<Mutex<BTreeMap<ShardKey, Instant>>>);

impl Switchovers {
    fn fenced(&self) -> MutexGuard<'_, BTreeMap<ShardKey, Instant>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// This broker was told an assignment.
    pub(crate) fn told(&self, me: &BrokerId, assignment: &Assignment) {
        let mut fenced = self.fenced();
        if assignment.state == ShardState::Draining && assignment.successor.as_ref() == Some(me) {
            fenced.entry(assignment.shard.clone()).or_insert_with(Instant::now);
        } else if assignment.leader.as_ref() != Some(me) {
            fenced.remove(&assignment.shard);
        }
    }

    /// The host reports an edge; how long the hand-over took if it ends with it.
    pub(crate) fn reported(&self, report: &ShardReport) -> Option<Duration> {
        if report.phase != Some(Phase::Serving) {
            return None;
        }
        self.fenced().remove(&report.shard).map(|since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_lasts_from_the_fence_to_serving() {
        let me: BrokerId = "b2".parse().unwrap();
        let shard: ShardKey = "stream/d/s/0".parse().unwrap();
        let mut assignment = Assignment::new(shard.clone(), "b1".parse().unwrap(), vec![]);
        let report = |phase| ShardReport {
            broker: me.clone(),
            shard: shard.clone(),
            generation: 1,
            phase: Some(phase),
            caught_up: false,
            lag_records: None,
            drained: false,
            halted: None,
            log_end: None,
            declined: false,
        };
        let switchovers = Switchovers::default();
        assignment.successor = Some(me.clone());
        switchovers.told(&me, &assignment);
        assert_eq!(switchovers.reported(&report(Phase::Serving)), None, "not fenced yet");

        assignment.state = ShardState::Draining;
        switchovers.told(&me, &assignment);
        tokio::time::advance(Duration::from_millis(20)).await;
        assignment.leader = Some(me.clone());
        assignment.state = ShardState::Assigning;
        assignment.successor = None;
        switchovers.told(&me, &assignment);
        assert_eq!(switchovers.reported(&report(Phase::Opening)), None);
        let took = switchovers.reported(&report(Phase::Serving));
        assert_eq!(took, Some(Duration::from_millis(20)));
        assert_eq!(switchovers.reported(&report(Phase::Serving)), None);
    }
}
