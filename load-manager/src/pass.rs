//! One pass: lifecycles, then a plan from one look at the records, then its guarded writes.
//!
//! A pass takes no input: what woke it does not matter, it reads everything anew. None of its
//! outcomes is an error; the next pass is the retry.

mod commits;
mod memory;
mod steps;

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_coordination::{Guard, Guarded, Outcome, Revision, Write};
use evenkeel_model::{Millis, ShardKey, Snapshot};
use evenkeel_planner::{Plan, Step};
use tokio::time::Instant;

pub(crate) use memory::Memory;
pub(crate) use steps::wrote;

use commits::{commit_all, ends};

use crate::cluster::{Cluster, Leading};
use crate::exposure::Exposed;
use crate::lifecycle::NodeWrite;
use crate::records::Records;
use crate::step::{self, Authority, Prepared};
use crate::{figures, hygiene, metrics};

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassEnd {
    /// Everything planned was tried.
    Complete,
    /// Another instance leads; nothing more was written.
    Deposed,
    /// It is not known whether a write was made; the rest was left to the next pass.
    Unknown,
}

impl PassEnd {
    /// The word used in logs and as a metric label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Deposed => "deposed",
            Self::Unknown => "unknown",
        }
    }
}

/// What a pass did.
#[must_use]
#[derive(Debug)]
pub(crate) struct PassReport {
    /// The steps written.
    pub(crate) written: Vec<(ShardKey, Step)>,
    /// Steps not written because the shard had changed.
    pub(crate) stale: usize,
    /// Steps not written because they broke a law.
    pub(crate) refused: usize,
    /// Lifecycles written.
    pub(crate) lifecycles: usize,
    /// How it ended.
    pub(crate) end: PassEnd,
    /// When something becomes due though nothing changes.
    pub(crate) wake_at_ms: Option<Millis>,
    /// Time spent on reading and planning.
    pub(crate) planning: Duration,
    /// The records that were planned from; 0 if the pass did not come to that.
    pub(crate) planned_version: u64,
}

impl PassReport {
    fn new() -> Self {
        Self {
            written: Vec::new(),
            stale: 0,
            refused: 0,
            lifecycles: 0,
            end: PassEnd::Complete,
            wake_at_ms: None,
            planning: Duration::ZERO,
            planned_version: 0,
        }
    }

    /// Whether the store changed.
    pub(crate) fn wrote(&self) -> bool {
        !self.written.is_empty() || self.lifecycles > 0
    }
}

/// Runs one pass under `leading`. `progress` is called as it gets on, so that a pass that hangs
/// costs the leadership.
pub(crate) async fn run(
    cluster: &Cluster,
    leading: &Leading,
    memory: &mut Memory,
    progress: &(dyn Fn() + Sync),
) -> PassReport {
    let started = Instant::now();
    let mut report = PassReport::new();
    let _placing = cluster.placing.lock().await;
    recognise(cluster, memory);
    let newest = write_lifecycles(cluster, leading, memory, &mut report).await;
    if report.end == PassEnd::Complete {
        if let Some(revision) = newest {
            cluster.seen(revision).await;
        }
        progress();
        let gauges = memory.gauges_due(started);
        let planned = plan(cluster, leading, gauges, &mut report);
        memory.exposure.look(started, planned.exposed);
        let newest =
            steps::write_in_order(cluster, planned.steps, memory, &mut report, progress).await;
        if let Some(revision) = newest {
            cluster.seen(revision).await;
        }
    }
    if report.end == PassEnd::Unknown {
        // What was written in doubt must be visible, or certainly absent, before the next plan.
        if let Err(error) = cluster.catch_up().await {
            tracing::warn!(%error, "cannot read the store after a write of unknown outcome");
        }
    }
    metrics::passed(&report.end, started.elapsed());
    if report.wrote() {
        tracing::debug!(
            steps = report.written.len(),
            lifecycles = report.lifecycles,
            stale = report.stale,
            planning = ?report.planning,
            took = ?started.elapsed(),
            "pass wrote"
        );
    }
    report
}

/// What a look at the records led to.
struct Planned {
    exposed: Exposed,
    steps: Vec<Prepared>,
}

/// Plans, and shows the cluster in the gauges if they are due.
fn plan(cluster: &Cluster, leading: &Leading, gauges: bool, report: &mut PassReport) -> Planned {
    let started = Instant::now();
    let now_ms = cluster.clock.now_ms();
    let authority = Authority { token: leading.token.clone(), now_ms };
    let planned = cluster.plan_with(|records, planner| {
        report.planned_version = records.placement_version;
        let plan = planner.plan();
        metrics::planned(&plan, started.elapsed());
        let barred = barred(records, planner.snapshot(), &plan, report);
        let writes = plan.decisions.iter().filter_map(|d| Some((&d.shard, d.decision.write()?)));
        let mut steps: Vec<Prepared> = writes
            .filter(|(shard, _)| !barred.contains(shard))
            .map(|(shard, write)| {
                let operation = cluster.next_operation(&leading.token);
                step::prepare(records, shard, write.clone(), &authority, operation)
            })
            .collect();
        // What keeps shards served goes first, when there are more writes than may be in flight.
        steps.sort_by_key(|p| urgency(p.write.step));
        if gauges {
            figures::publish(records, planner, &plan);
        }
        // Nothing is looked for where the plan found nothing.
        let any = plan.report.under_replicated > 0;
        let exposed = if any { Exposed::of(planner.snapshot()) } else { Exposed::default() };
        Planned { exposed, steps }
    });
    report.planning = started.elapsed();
    planned
}

/// Shards that must not be written: a record that cannot be read, or a step that breaks a law.
fn barred(
    records: &Records,
    snapshot: &Snapshot,
    plan: &Plan,
    report: &mut PassReport,
) -> BTreeSet<ShardKey> {
    let mut barred = records.opaque_shards();
    for violation in evenkeel_planner::check(snapshot, plan) {
        metrics::violation(if violation.shard.is_some() { "step" } else { "plan" });
        tracing::error!(%violation, "the plan breaks a rule, what it concerns is not written");
        report.refused += 1;
        match violation.shard {
            Some(shard) => {
                barred.insert(shard);
            }
            None => barred.extend(plan.decisions.iter().map(|d| d.shard.clone())),
        }
    }
    barred
}

fn urgency(step: Step) -> u8 {
    match step {
        Step::Promote | Step::CutOver | Step::Retake => 0,
        Step::Place | Step::Fence | Step::Seat => 1,
        Step::Abandon | Step::TimedOut | Step::Stalled | Step::Cancel => 2,
        Step::Restore | Step::Stage | Step::Reseat | Step::Drop => 3,
    }
}

async fn write_lifecycles(
    cluster: &Cluster,
    leading: &Leading,
    memory: &mut Memory,
    report: &mut PassReport,
) -> Option<Revision> {
    let now_ms = cluster.clock.now_ms();
    let (output, chores, lifts_at) = cluster.read(|records| {
        let output = memory.lifecycles.observe(now_ms, records);
        let lifts_at = records.pause.get(&()).and_then(|p| p.value.until_ms);
        (output, hygiene::chores(records, now_ms), lifts_at.filter(|at| now_ms < *at))
    });
    report.wake_at_ms = [output.wake_at_ms, lifts_at].into_iter().flatten().min();
    let nodes = output.writes.into_iter().map(|w| (node_txn(cluster, leading, &w), Some(w)));
    let chores = chores.into_iter().map(|chore| (hygiene::txn(leading, chore), None));
    let mut newest = None;
    commit_all(cluster, nodes.chain(chores).collect(), |outcome, write: Option<NodeWrite>, _| {
        if let Outcome::Written { revision } = &outcome {
            newest = newest.max(Some(*revision));
            if let Some(write) = write {
                report.lifecycles += 1;
                tracing::info!(
                    broker = %write.next.broker,
                    lifecycle = write.next.lifecycle.as_str(),
                    incarnation = write.next.incarnation,
                    cause = write.cause.as_str(),
                    "lifecycle written"
                );
            }
        }
        ends(&outcome, report)
    })
    .await;
    newest
}

/// The transaction of a lifecycle change.
pub(crate) fn node_txn(cluster: &Cluster, leading: &Leading, write: &NodeWrite) -> Guarded {
    let key = cluster.keys.node(&write.next.broker);
    Guarded {
        token: Some(leading.token.clone()),
        guards: vec![Guard::ModRevision { key: key.clone(), revision: write.revision }],
        writes: vec![Write::Put { key, value: evenkeel_model::encode(&write.next), lease: None }],
    }
}

/// Counts the writes of unknown outcome that turn out to have been made.
fn recognise(cluster: &Cluster, memory: &mut Memory) {
    if memory.doubtful.is_empty() {
        return;
    }
    let now_ms = cluster.clock.now_ms();
    cluster.read(|records| {
        for step in std::mem::take(&mut memory.doubtful) {
            let stored = records.assignments.get(&step.shard);
            if stored.is_some_and(|s| s.value.operation == step.operation) {
                wrote(&step, now_ms, Duration::ZERO);
            }
        }
    });
}
