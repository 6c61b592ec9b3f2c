//! Applying decisions to a snapshot, and running passes until nothing is written any more.

use evenkeel_model::{
    Assignment, BrokerId, Lifecycle, Phase, ShardKey, ShardReport, ShardState, Snapshot,
};
use serde::Serialize;

use crate::decision::{Decision, Reason, ShardDecision, Step, Write};
use crate::plan::plan;

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
pub fn until_stable(mut snapshot: Snapshot, max_passes: u32) -> Stable {
    let mut steps = Vec::new();
    let mut moves = 0;
    let mut waiting = 0;
    let mut passes = 0;
    let mut stable = false;
    while passes < max_passes && !stable {
        passes += 1;
        let plan = plan(&snapshot);
        waiting = plan.report.waits();
        stable = plan.report.written() == 0;
        if stable {
            break;
        }
        for decision in &plan.decisions {
            let Some(write) = decision.decision.write() else { continue };
            moves += u32::from(write.step == Step::CutOver && write.from != write.to);
            steps.push(StableStep {
                pass: passes,
                shard: decision.shard.clone(),
                step: write.step,
                from: write.from.clone(),
                to: write.to.clone(),
                reason: write.reason,
            });
            move_load_row(&mut snapshot, write);
            apply(&mut snapshot, decision);
        }
        settle(&mut snapshot);
    }
    Stable { passes, steps, moves, stable, waiting, snapshot }
}

/// A shard's row of the load report goes with its leader.
pub(crate) fn move_load_row(snapshot: &mut Snapshot, write: &Write) {
    let shard = &write.next.shard;
    let before = snapshot.assignments.get(shard).and_then(|a| a.leader.clone());
    let (Some(before), Some(after)) = (before, write.next.leader.clone()) else { return };
    if before == after {
        return;
    }
    let Some(report) = snapshot.brokers.get_mut(&before).and_then(|b| b.load.as_mut()) else {
        return;
    };
    let Some(at) = report.shards.iter().position(|row| row.shard == *shard) else { return };
    let row = report.shards.remove(at);
    if let Some(report) = snapshot.brokers.get_mut(&after).and_then(|b| b.load.as_mut()) {
        report.shards.push(row);
    }
}

/// Lets what is under way happen: copies catch up, fences drain, leaders open; time goes on.
pub fn settle(snapshot: &mut Snapshot) {
    let interval = snapshot.policy.reconcile_interval_ms;
    snapshot.as_of_ms = snapshot.as_of_ms.saturating_add(interval);
    let now = snapshot.as_of_ms;
    let old = now.saturating_sub(interval);
    for broker in snapshot.brokers.values_mut() {
        if broker.registered && broker.lifecycle != Lifecycle::Left {
            broker.last_seen_ms = broker.last_seen_ms.max(old);
        }
        // A report that was fresh stays so: agents go on reporting.
        if let Some(load) = &mut broker.load
            && old.saturating_sub(load.reported_at_ms) <= snapshot.policy.load_stale_after_ms
        {
            load.reported_at_ms = load.reported_at_ms.saturating_add(interval);
        }
    }
    let serving: Vec<(ShardKey, Vec<ShardReport>, ShardState)> = snapshot
        .assignments
        .values()
        .filter(|a| needs_reports(snapshot, a))
        .filter_map(|a| settled_reports(snapshot, a))
        .collect();
    for (shard, reports, state) in serving {
        if let Some(assignment) = snapshot.assignments.get_mut(&shard) {
            assignment.state = state;
        }
        snapshot.reports.insert(shard, reports);
    }
}

/// Whether something is under way for the shard, a follower is behind, or its reports speak of
/// another generation.
fn needs_reports(snapshot: &Snapshot, a: &Assignment) -> bool {
    let current = |r: &ShardReport| r.generation == a.generation;
    let behind = |r: &ShardReport| current(r) && !r.caught_up && a.followers.contains(&r.broker);
    a.is_moving()
        || a.state == ShardState::Assigning
        || snapshot
            .reports
            .get(&a.shard)
            .is_some_and(|reports| !reports.iter().any(current) || reports.iter().any(behind))
}

fn settled_reports(
    snapshot: &Snapshot,
    a: &Assignment,
) -> Option<(ShardKey, Vec<ShardReport>, ShardState)> {
    let serves = |id: &BrokerId| snapshot.brokers.get(id).is_some_and(|b| b.is_serving());
    let leader = a.leader.as_ref().filter(|l| serves(l))?;
    let fenced = a.state == ShardState::Draining;
    let before = snapshot.reports.get(&a.shard);
    let end = before.and_then(|reports| {
        reports.iter().filter(|r| r.broker == *leader).filter_map(|r| r.log_end).max()
    });
    let report = |broker: &BrokerId, phase: Phase| ShardReport {
        broker: broker.clone(),
        shard: a.shard.clone(),
        generation: a.generation,
        phase: Some(phase),
        caught_up: true,
        lag_records: Some(0),
        drained: phase == Phase::Drained,
        halted: None,
        log_end: end,
    };
    let phase = if fenced { Phase::Drained } else { Phase::Serving };
    let mut reports = vec![report(leader, phase)];
    let followers = a.followers.iter().map(|b| (b, Phase::Following));
    let copies = a.successor.iter().chain(&a.joining).map(|b| (b, Phase::Copying));
    for (broker, phase) in followers.chain(copies) {
        if serves(broker) && !reports.iter().any(|r| r.broker == *broker) {
            reports.push(report(broker, phase));
        }
    }
    let state = if fenced { ShardState::Draining } else { ShardState::Active };
    Some((a.shard.clone(), reports, state))
}
