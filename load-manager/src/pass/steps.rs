//! Writing the steps of a plan.

use std::time::Duration;

use evenkeel_coordination::{Guarded, Outcome, Revision};
use evenkeel_model::BrokerId;

use super::commits::{WRITES_MAX, commit_all, ends};
use super::{Memory, PassEnd, PassReport};
use crate::cluster::Cluster;
use crate::metrics;
use crate::step::Prepared;

/// Steps that share one transaction, at most.
const BATCH_MAX: usize = 16;

/// Writes of one transaction; etcd takes 128.
const BATCH_WRITES_MAX: usize = 120;

/// Bytes of one transaction; etcd takes 1.5 MiB.
const BATCH_BYTES_MAX: usize = 512 * 1024;

/// A plan counts a slot as free that a move of the same plan gives back. So moves start only when
/// everything else of the plan has been written; otherwise limits could be passed.
pub(super) async fn write_in_order(
    cluster: &Cluster,
    steps: Vec<Prepared>,
    memory: &mut Memory,
    report: &mut PassReport,
    progress: &(dyn Fn() + Sync),
) -> Option<Revision> {
    let (starts, rest): (Vec<Prepared>, Vec<Prepared>) =
        steps.into_iter().partition(Prepared::starts_a_move);
    let mut newest = None;
    for steps in [rest, starts] {
        if report.end != PassEnd::Complete || report.stale > 0 {
            break;
        }
        let mut writing = Writing { cluster, memory, report, progress, newest, apart: Vec::new() };
        writing.write(batches(steps)).await;
        let apart = match writing.report.end {
            PassEnd::Complete => std::mem::take(&mut writing.apart),
            PassEnd::Deposed | PassEnd::Unknown => Vec::new(),
        };
        writing.write(apart.into_iter().map(|step| vec![step]).collect()).await;
        newest = writing.newest;
    }
    newest
}

/// Steps of different shards have nothing in common but the token, so they can share a transaction.
/// That is done only when there are more of them than may be in flight: alone, a step is not held
/// up by another's guard.
fn batches(steps: Vec<Prepared>) -> Vec<Vec<Prepared>> {
    let size = steps.len().div_ceil(WRITES_MAX).clamp(1, BATCH_MAX);
    let mut batches: Vec<Vec<Prepared>> = Vec::new();
    let (mut writes, mut bytes) = (0, 0);
    for step in steps {
        let (more_writes, more_bytes) = (step.txn.writes.len(), step.bytes());
        match batches.last_mut() {
            Some(batch)
                if batch.len() < size
                    && writes + more_writes <= BATCH_WRITES_MAX
                    && bytes + more_bytes <= BATCH_BYTES_MAX =>
            {
                batch.push(step);
                (writes, bytes) = (writes + more_writes, bytes + more_bytes);
            }
            _ => {
                batches.push(vec![step]);
                (writes, bytes) = (more_writes, more_bytes);
            }
        }
    }
    batches
}

fn together(batch: &[Prepared]) -> Guarded {
    Guarded {
        token: batch.first().and_then(|step| step.txn.token.clone()),
        guards: batch.iter().flat_map(|step| step.txn.guards.iter().cloned()).collect(),
        writes: batch.iter().flat_map(|step| step.txn.writes.iter().cloned()).collect(),
    }
}

struct Writing<'a> {
    cluster: &'a Cluster,
    memory: &'a mut Memory,
    report: &'a mut PassReport,
    progress: &'a (dyn Fn() + Sync),
    newest: Option<Revision>,
    /// Steps that were not written because of another one in their transaction.
    apart: Vec<Prepared>,
}

impl Writing<'_> {
    async fn write(&mut self, batches: Vec<Vec<Prepared>>) {
        let txns = batches.into_iter().map(|batch| (together(&batch), batch)).collect();
        commit_all(self.cluster, txns, |outcome, batch, took| self.take(outcome, batch, took))
            .await;
    }

    /// Takes one outcome in; whether it ends the pass.
    fn take(&mut self, outcome: Outcome, batch: Vec<Prepared>, took: Duration) -> bool {
        (self.progress)();
        match &outcome {
            Outcome::Written { revision } => {
                self.newest = self.newest.max(Some(*revision));
                let now_ms = self.cluster.clock.now_ms();
                for step in batch {
                    wrote(&step, now_ms, took);
                    self.report.written.push((step.shard, step.write.step));
                }
            }
            Outcome::Stale { .. } if batch.len() > 1 => self.apart.extend(batch),
            Outcome::Stale { .. } => {
                for step in batch {
                    metrics::write_conflict();
                    let word = step.write.step.as_str();
                    tracing::debug!(shard = %step.shard, step = word, "shard had changed, step not written");
                    self.report.stale += 1;
                }
            }
            Outcome::Unknown(_) => self.memory.doubtful.extend(batch),
            Outcome::Deposed => {}
        }
        ends(&outcome, self.report)
    }
}

/// Counts and logs a step that was written.
pub(crate) fn wrote(step: &Prepared, now_ms: i64, took: Duration) {
    metrics::write_took(took);
    metrics::step_written(&step.write, step.before.as_ref(), now_ms);
    let name =
        |b: &Option<BrokerId>| b.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    tracing::info!(
        shard = %step.shard,
        step = step.write.step.as_str(),
        generation = step.write.next.generation,
        from = %name(&step.write.from),
        to = %name(&step.write.to),
        reason = step.write.reason.as_str(),
        "step written"
    );
}

#[cfg(test)]
mod tests {
    use evenkeel_coordination::{Guard, Token, Write};
    use evenkeel_model::{Assignment, MarkerReason};
    use evenkeel_planner::{Reason, Step};

    use super::*;

    fn step(number: u32, writes: usize) -> Prepared {
        let shard = format!("stream/d/s/{number}").parse().unwrap();
        let next = Assignment::new(
            format!("stream/d/s/{number}").parse().unwrap(),
            "b".parse().unwrap(),
            vec![],
        );
        let write = evenkeel_planner::Write {
            step: Step::Place,
            reason: Reason::Marker(MarkerReason::New),
            from: None,
            to: None,
            next,
            clears_marker: false,
            history: None,
            detail: String::new(),
        };
        let put = |i| Write::Put { key: format!("/{number}/{i}"), value: vec![0; 10], lease: None };
        let txn = Guarded {
            token: Some(Token { key: "/leader".to_owned(), create_revision: 1 }),
            guards: vec![Guard::Absent { key: format!("/{number}") }],
            writes: (0..writes).map(put).collect(),
        };
        Prepared { shard, write, before: None, operation: String::new(), txn }
    }

    #[test]
    fn steps_share_a_transaction_only_when_there_are_many_and_never_past_the_limits() {
        let sizes = |count: u32, writes: usize| -> Vec<usize> {
            batches((0..count).map(|n| step(n, writes)).collect()).iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(0, 4), Vec::<usize>::new());
        assert_eq!(sizes(32, 4), vec![1; 32]);
        assert_eq!(sizes(64, 4), vec![2; 32]);
        assert_eq!(sizes(1000, 4), [vec![16; 62], vec![8]].concat());
        // Ten writes each: twelve steps fill a transaction.
        assert_eq!(sizes(1000, 10)[..2], [12, 12]);
        let batch: Vec<Prepared> = (0..3).map(|n| step(n, 4)).collect();
        let txn = together(&batch);
        assert_eq!((txn.guards.len(), txn.writes.len()), (3, 12));
        assert!(txn.token.is_some());
    }
}
