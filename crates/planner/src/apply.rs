//! Applying decisions to a snapshot, and running passes until nothing is written any more.

use evenkeel_model::{BrokerId, ShardKey, Snapshot};
use serde::Serialize;

use crate::decision::{Decision, Reason, ShardDecision, Step, Write};
use crate::rehearsal::Rehearsal;

/// Puts a decision's write into the snapshot: the assignment, the marker it removes, the history
/// entry it makes. Waits and refusals change nothing.
pub fn apply(snapshot: &mut Snapshot, decision: &ShardDecision) {
    let Decision::Write(write) = &decision.decision else { return };
    if write.clears_marker {
        snapshot.unassigned.remove(&decision.shard);
    }
    if let Some(entry) = &write.history {
        snapshot.history.push(entry.clone());
    }
    snapshot.assignments.insert(decision.shard.clone(), write.next.clone());
}

/// One write on the way to rest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StableStep {
    /// The pass that made it, from 1.
    pub pass: u32,
    /// The shard.
    pub shard: ShardKey,
    /// The step.
    pub step: Step,
    /// Old leader, or replaced follower.
    pub from: Option<BrokerId>,
    /// New leader, or joiner.
    pub to: Option<BrokerId>,
    /// Why.
    pub reason: Reason,
}

impl StableStep {
    pub(crate) fn new(pass: u32, write: &Write) -> Self {
        Self {
            pass,
            shard: write.next.shard.clone(),
            step: write.step,
            from: write.from.clone(),
            to: write.to.clone(),
            reason: write.reason,
        }
    }
}

/// Where a snapshot comes to rest.
#[derive(Debug, Clone, PartialEq)]
pub struct Stable {
    /// Passes planned, the last one included.
    pub passes: u32,
    /// Every write, in order.
    pub steps: Vec<StableStep>,
    /// Cut-overs that changed the leader.
    pub moves: u32,
    /// Whether the last pass wrote nothing.
    pub stable: bool,
    /// What still waited in the last pass.
    pub waiting: u32,
    /// The snapshot at the end.
    pub snapshot: Snapshot,
}

/// Passes that [`until_stable`] plans when nobody sets a limit.
pub const DEFAULT_PASSES: u32 = 10_000;

/// Plans and applies until a pass writes nothing, or for `max_passes`. Between passes every copy is
/// caught up, every fence drained, every opened shard active, and time goes on by one interval.
pub fn until_stable(snapshot: Snapshot, max_passes: u32) -> Stable {
    let mut rehearsal = Rehearsal::new(snapshot);
    let mut steps = Vec::new();
    let mut moves = 0;
    let mut waiting = 0;
    let mut passes = 0;
    let mut stable = false;
    while passes < max_passes && !stable {
        passes += 1;
        let plan = rehearsal.plan();
        waiting = plan.report.waits();
        stable = plan.report.written() == 0;
        if stable {
            break;
        }
        for decision in &plan.decisions {
            let Some(write) = decision.decision.write() else { continue };
            moves += u32::from(write.step == Step::CutOver && write.from != write.to);
            steps.push(StableStep::new(passes, write));
            rehearsal.write(decision);
        }
        rehearsal.settle();
    }
    Stable { passes, steps, moves, stable, waiting, snapshot: rehearsal.into_snapshot() }
}
