//! The way to rest: every pass, every write, every copy, and the waits that only time ends.

use std::collections::BTreeMap;

use evenkeel_model::{BrokerId, Millis, ShardKey, Snapshot};
use serde::Serialize;

use super::Effort;
use super::outlook::Unresolved;
use crate::apply::StableStep;
use crate::decision::{Decision, Step, WaitingOn, Write};
use crate::plan::Plan;
use crate::rehearsal::Rehearsal;

/// Rests in a row after which nothing is expected of time any more: enough for an hourly limit.
const RESTS: u32 = 100;

/// How far the clock is put on for a rest whose end no setting tells.
const REST_MS: Millis = 60_000;

/// One write on the way, and the copy that it starts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Movement {
    /// The write.
    #[serde(flatten)]
    pub write: StableStep,
    /// Whether it starts a copy to its `to`.
    pub copies: bool,
    /// Whom the bytes come from.
    pub source: Option<BrokerId>,
    /// The bytes, if a leader reports the shard's size.
    pub bytes: Option<u64>,
}

/// A snapshot on its way to rest.
pub(super) struct Course {
    pub(super) passes: u32,
    pub(super) stable: bool,
    pub(super) steps: Vec<Movement>,
    pub(super) unresolved: Vec<Unresolved>,
    /// Waits that nothing but time ended.
    pub(super) delays_ms: Millis,
    /// Where it comes to rest.
    pub(super) snapshot: Snapshot,
}

impl Course {
    /// Plans and applies until nothing is written any more. What was under way at the start ends
    /// first, where everything waits for it. Where only a delay stands in the way, the clock is put
    /// on by that delay.
    pub(super) fn run(snapshot: Snapshot, max_passes: u32) -> Self {
        let sizes = sizes(&snapshot);
        let mut rehearsal = Rehearsal::new(snapshot);
        let mut course = Self {
            passes: 0,
            stable: false,
            steps: Vec::new(),
            unresolved: Vec::new(),
            delays_ms: 0,
            snapshot: Snapshot::empty(0),
        };
        let mut rests = 0;
        let mut settled = false;
        while course.passes < max_passes {
            course.passes += 1;
            let plan = rehearsal.plan();
            course.unresolved = Unresolved::of(&plan);
            if plan.report.written() > 0 {
                rests = 0;
                settled = true;
                course.write(&mut rehearsal, &plan, &sizes);
                rehearsal.settle();
                continue;
            }
            if !settled && is_under_way(&plan) {
                settled = true;
                rehearsal.settle();
                continue;
            }
            let Some(delay) = delay(rehearsal.snapshot(), &plan).filter(|_| rests < RESTS) else {
                course.stable = true;
                break;
            };
            rests += 1;
            // Past a limit, since equal still waits.
            let delay = delay.saturating_add(1);
            rehearsal.put_on(delay);
            course.delays_ms = course.delays_ms.saturating_add(delay);
        }
        course.snapshot = rehearsal.into_snapshot();
        course
    }

    fn write(&mut self, rehearsal: &mut Rehearsal, plan: &Plan, sizes: &BTreeMap<ShardKey, u64>) {
        for decision in &plan.decisions {
            let Decision::Write(write) = &decision.decision else { continue };
            let copies = copies(rehearsal.snapshot(), write);
            self.steps.push(Movement {
                write: StableStep::new(self.passes, write),
                copies,
                source: write.next.leader.clone().filter(|_| copies),
                bytes: sizes.get(&decision.shard).copied().filter(|_| copies),
            });
            rehearsal.write(decision);
        }
    }

    pub(super) fn effort(&self) -> Effort {
        let count = |of: &dyn Fn(&Movement) -> bool| {
            u32::try_from(self.steps.iter().filter(|m| of(m)).count()).unwrap_or(u32::MAX)
        };
        let bytes = self.steps.iter().filter_map(|m| m.bytes);
        Effort {
            leader_moves: count(&|m| m.write.step == Step::CutOver && m.write.from != m.write.to),
            copies: count(&|m| m.copies),
            bytes_copied: bytes.fold(0, u64::saturating_add),
            copies_of_unknown_size: count(&|m| m.copies && m.bytes.is_none()),
            placed: count(&|m| m.write.step == Step::Place),
            promoted: count(&|m| m.write.step == Step::Promote),
            stable: self.stable,
        }
    }
}

/// Whether a copy or a fence of before is waited for.
fn is_under_way(plan: &Plan) -> bool {
    let waits = |on| plan.report.waiting.contains_key(&on);
    waits(WaitingOn::CopyBehind) || waits(WaitingOn::LeaderStopping)
}

/// How long only time stands in the way, if it does.
fn delay(snapshot: &Snapshot, plan: &Plan) -> Option<Millis> {
    let policy = &snapshot.policy;
    let waits = |on| plan.report.waiting.contains_key(&on);
    let rest = match policy.rebalancing.enabled {
        true => policy.rebalancing.check_interval_ms().max(1),
        false => REST_MS,
    };
    [
        (waits(WaitingOn::Settling), policy.settle_ms),
        (waits(WaitingOn::RestoreDelay), policy.restore_after_ms),
        (waits(WaitingOn::Cooldown), rest),
    ]
    .into_iter()
    .filter_map(|(waits, delay)| waits.then_some(delay))
    .min()
}

/// Whether a write starts a copy: it names somebody who has none of the shard yet. A new shard has
/// nothing to copy.
fn copies(before: &Snapshot, write: &Write) -> bool {
    let old = before.assignments.get(&write.next.shard);
    let new = |id: &BrokerId| old.is_some_and(|a| a.role_of(id).is_none());
    match write.step {
        Step::Stage => write.next.successor.as_ref().is_some_and(new),
        Step::Restore | Step::Reseat => write.next.joining.as_ref().is_some_and(new),
        _ => false,
    }
}

/// What leaders report of their shards' sizes. Nothing tells an empty shard from one whose size is
/// left out: 0 is not known.
fn sizes(snapshot: &Snapshot) -> BTreeMap<ShardKey, u64> {
    let rows = snapshot.brokers.values().filter_map(|b| b.load.as_ref()).flat_map(|l| &l.shards);
    let mut sizes = BTreeMap::new();
    for row in rows.filter(|row| row.size_bytes > 0) {
        let size = sizes.entry(row.shard.clone()).or_insert(0);
        *size = row.size_bytes.max(*size);
    }
    sizes
}
