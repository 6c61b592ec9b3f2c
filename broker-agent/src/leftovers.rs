//! Bytes of shards that this broker holds no more.
//!
//! **Invariant:** they are erased only when others are known to hold the shard: its leader reports
//! that it serves the very generation of an assignment in which this broker has no part. It has then
//! committed the start of that generation, so that a majority of its set has on disk all that was
//! committed before. A leader that was only named may find its own bytes damaged, and these may be
//! the last good ones. What is not known erases nothing: no assignment, as in a store that was lost
//! or restored, no report, no answer of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_coordination::{Store, StoreError};
use evenkeel_model::keys::Keys;
use evenkeel_model::{
    Assignment, BrokerId, Phase, ReportRecord, ShardKey, ShardReport, ShardState, decode,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::host::ShardHost;
use crate::routes::Routes;

/// How often stored shards are compared with assignments.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Longest pause before the leader's report about one shard is asked for again.
const ASK_EVERY: Duration = Duration::from_secs(60);

/// What erases them.
pub(crate) struct Leftovers {
    pub(crate) me: BrokerId,
    pub(crate) host: Arc<dyn ShardHost>,
    pub(crate) routes: Routes,
    pub(crate) store: Store,
    pub(crate) keys: Keys,
    pub(crate) held: watch::Receiver<BTreeSet<ShardKey>>,
    /// For so long they are kept at least.
    pub(crate) after: Duration,
}

/// A shard that is left over.
struct Left {
    since: Instant,
    /// When its leader's report is asked for next, and the pause after that.
    ask_at: Instant,
    pause: Duration,
}

impl Leftovers {
    /// Erases what is left over once it has been so for a time. Runs for ever.
    pub(crate) async fn run(self) {
        let look_every = LOOK_EVERY.min(self.after.max(Duration::from_millis(100)));
        let mut left: BTreeMap<ShardKey, Left> = BTreeMap::new();
        loop {
            let elsewhere = self.elsewhere();
            left.retain(|shard, _| elsewhere.contains_key(shard));
            for (shard, assignment) in elsewhere {
                let now = Instant::now();
                let known = left.entry(shard.clone()).or_insert(Left {
                    since: now,
                    ask_at: now + self.after,
                    pause: look_every,
                });
                if now < known.ask_at {
                    continue;
                }
                known.ask_at = now + known.pause;
                known.pause = (known.pause * 2).min(ASK_EVERY);
                match self.is_held_by_others(&assignment).await {
                    Ok(true) => {
                        let kept = known.since.elapsed();
                        tracing::info!(%shard, ?kept, "giving up the bytes of a shard that others hold");
                        self.host.erase(&shard).await;
                    }
                    Ok(false) => tracing::debug!(%shard, "kept: its leader is not known to serve"),
                    Err(error) => {
                        tracing::debug!(%shard, %error, "kept: the store does not answer");
                        break;
                    }
                }
            }
            tokio::time::sleep(look_every).await;
        }
    }

    /// Shards with bytes here that belong to others by their assignments.
    fn elsewhere(&self) -> BTreeMap<ShardKey, Arc<Assignment>> {
        let held = self.held.borrow().clone();
        let stored = self.host.stored().into_iter().filter(|shard| !held.contains(shard));
        let assigned = stored.filter_map(|shard| {
            let assignment = self.routes.assignment(&shard)?;
            Some((shard, assignment)).filter(|(_, a)| is_elsewhere(a, &self.me))
        });
        assigned.collect()
    }

    async fn is_held_by_others(&self, assignment: &Assignment) -> Result<bool, StoreError> {
        let shard = &assignment.shard;
        let Some(leader) = &assignment.leader else { return Ok(false) };
        let Some(entry) = self.store.get(&self.keys.report(leader, shard)).await? else {
            return Ok(false);
        };
        let report = match decode::<ReportRecord>(&entry.key, &entry.value) {
            Ok(record) => record.report,
            Err(error) => {
                tracing::warn!(%shard, %error, "kept: the leader's report cannot be read");
                return Ok(false);
            }
        };
        match self.host.handed_over(shard).await {
            Ok(end) => Ok(serves(assignment, &report, end)),
            Err(error) => {
                tracing::warn!(%shard, %error, "kept: what this broker did with it is not known");
                Ok(false)
            }
        }
    }
}

/// Others are to hold the shard in full, and nothing is under way.
fn is_elsewhere(assignment: &Assignment, me: &BrokerId) -> bool {
    assignment.leader.is_some()
        && assignment.state != ShardState::Draining
        && assignment.role_of(me).is_none()
        && assignment.leaving.as_ref() != Some(me)
}

/// Whether the leader serves the generation of its assignment, with all that this broker held when
/// it handed the shard over, if it did. A leader on an emptied disk may serve, too.
fn serves(assignment: &Assignment, report: &ShardReport, handed_over: Option<u64>) -> bool {
    report.generation == assignment.generation
        && report.phase == Some(Phase::Serving)
        && report.halted_because().is_none()
        && handed_over.is_none_or(|end| report.log_end.is_some_and(|at| at >= end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> BrokerId {
        name.parse().unwrap()
    }

    fn elsewhere() -> Assignment {
        Assignment::new("stream/d/s/0".parse().unwrap(), id("b2"), vec![id("b3")])
    }

    #[test]
    fn only_a_shard_that_others_hold_is_left_over() {
        let me = id("b1");
        let mut assignment = elsewhere();
        assert!(is_elsewhere(&assignment, &me));
        assignment.joining = Some(me.clone());
        assert!(!is_elsewhere(&assignment, &me));
        assignment.joining = None;
        assignment.leader = None;
        assert!(!is_elsewhere(&assignment, &me), "its bytes may be needed");
    }

    #[test]
    fn it_goes_when_the_leader_serves_that_generation_with_what_was_handed_over() {
        let assignment = Assignment { generation: 4, ..elsewhere() };
        let serving = ShardReport {
            broker: id("b2"),
            shard: assignment.shard.clone(),
            generation: 4,
            phase: Some(Phase::Serving),
            caught_up: false,
            lag_records: None,
            drained: false,
            halted: None,
            log_end: Some(101),
        };
        let says = |report: ShardReport| serves(&assignment, &report, Some(100));
        assert!(says(serving.clone()));
        assert!(!says(ShardReport { generation: 3, ..serving.clone() }), "it is not known to open");
        assert!(!says(ShardReport { phase: Some(Phase::Opening), ..serving.clone() }));
        assert!(!says(ShardReport { phase: Some(Phase::Halted), ..serving.clone() }));
        assert!(!says(ShardReport { halted: Some("damaged".to_owned()), ..serving.clone() }));
        let empty = ShardReport { log_end: Some(1), ..serving.clone() };
        assert!(!says(empty.clone()), "its disk was emptied");
        assert!(!says(ShardReport { log_end: None, ..serving }));
        assert!(serves(&assignment, &empty, None), "this broker handed nothing over");
    }
}
