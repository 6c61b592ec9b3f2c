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

use crate::host::{HandedOver, ShardHost};
use crate::offers::Offers;
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
    /// Shards that this broker handed over and can lead again.
    pub(crate) offers: Offers,
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
            self.offers.keep(&elsewhere);
            for (shard, assignment) in elsewhere {
                let now = Instant::now();
                let known = left.entry(shard.clone()).or_insert(Left {
                    since: now,
                    ask_at: now + look_every,
                    pause: look_every,
                });
                if now < known.ask_at {
                    continue;
                }
                known.ask_at = now + known.pause;
                known.pause = (known.pause * 2).min(ASK_EVERY);
                match self.ask(&assignment).await {
                    Ok(Leader::Serves) if known.since.elapsed() < self.after => {
                        known.ask_at = known.since + self.after;
                    }
                    Ok(Leader::Serves) => {
                        tracing::info!(%shard, "giving up the bytes of a shard that others hold");
                        self.host.erase(&shard).await;
                    }
                    Ok(Leader::Declined(handed_over)) => self.offers.put(&assignment, handed_over),
                    Ok(Leader::Unknown) => {
                        tracing::debug!(%shard, "kept: its leader is not known to serve");
                    }
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

    /// What is known of the leader that the shard has now.
    async fn ask(&self, assignment: &Assignment) -> Result<Leader, StoreError> {
        let shard = &assignment.shard;
        let Some(leader) = &assignment.leader else { return Ok(Leader::Unknown) };
        let Some(entry) = self.store.get(&self.keys.report(leader, shard)).await? else {
            return Ok(Leader::Unknown);
        };
        let report = match decode::<ReportRecord>(&entry.key, &entry.value) {
            Ok(record) => record.report,
            Err(error) => {
                tracing::warn!(%shard, %error, "kept: the leader's report cannot be read");
                return Ok(Leader::Unknown);
            }
        };
        match self.host.handed_over(shard).await {
            Ok(handed_over) => Ok(Leader::of(assignment, &report, handed_over)),
            Err(error) => {
                tracing::warn!(%shard, %error, "kept: what this broker did with it is not known");
                Ok(Leader::Unknown)
            }
        }
    }
}

/// What a report of the leader that a shard has now means for the bytes that were left over.
#[derive(Debug, PartialEq, Eq)]
enum Leader {
    /// It serves the present generation, with no less than was handed over.
    Serves,
    /// It was handed the shard by this broker, and will never serve.
    Declined(HandedOver),
    Unknown,
}

impl Leader {
    fn of(assignment: &Assignment, report: &ShardReport, handed_over: Option<HandedOver>) -> Self {
        if report.generation != assignment.generation {
            return Self::Unknown;
        }
        if let Some(handed_over) = handed_over
            && report.declined
            && handed_over.generation + 1 == assignment.generation
        {
            return Self::Declined(handed_over);
        }
        // A leader on a disk that was emptied may serve, too.
        let has = |end: u64| report.log_end.is_some_and(|at| at >= end);
        let serves = report.phase == Some(Phase::Serving) && report.halted_because().is_none();
        if serves && handed_over.is_none_or(|h| has(h.log_end)) {
            Self::Serves
        } else {
            Self::Unknown
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
            declined: false,
        };
        let drained = HandedOver { generation: 3, log_end: 100 };
        let says = |report: &ShardReport| Leader::of(&assignment, report, Some(drained));
        let with = |change: fn(&mut ShardReport)| {
            let mut report = serving.clone();
            change(&mut report);
            says(&report)
        };
        assert_eq!(says(&serving), Leader::Serves);
        assert_eq!(with(|r| r.generation = 3), Leader::Unknown, "it is not known to open");
        assert_eq!(with(|r| r.phase = Some(Phase::Opening)), Leader::Unknown);
        assert_eq!(with(|r| r.phase = Some(Phase::Halted)), Leader::Unknown);
        assert_eq!(with(|r| r.halted = Some("damaged".to_owned())), Leader::Unknown);
        assert_eq!(with(|r| r.log_end = Some(1)), Leader::Unknown, "its disk was emptied");
        assert_eq!(with(|r| r.log_end = None), Leader::Unknown);
        assert_eq!(with(|r| r.declined = true), Leader::Declined(drained));

        let empty = ShardReport { log_end: Some(1), ..serving.clone() };
        let says = |report: &ShardReport, drained| Leader::of(&assignment, report, drained);
        assert_eq!(says(&empty, None), Leader::Serves, "this broker handed nothing over");
        let declined = ShardReport { declined: true, ..serving };
        assert_eq!(says(&declined, None), Leader::Unknown);
        let earlier = HandedOver { generation: 2, log_end: 100 };
        assert_eq!(says(&declined, Some(earlier)), Leader::Unknown, "others led since");
    }
}
