//! The plan of one pass.

use std::collections::BTreeMap;

use evenkeel_model::{Millis, Policy, Snapshot};
use serde::Serialize;

use crate::decision::{Decision, RefusedBecause, ShardDecision, Step, WaitingOn};
use crate::pass::{Pass, Switches};
use crate::phases::{advance, drain, failover, place, rebalance, relief, repair, spread};

/// What one pass decided, in order of shard. Shards with nothing to say are not listed, and none is
/// listed twice.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[must_use]
pub struct Plan {
    /// The time it was reckoned with.
    pub as_of_ms: Millis,
    /// The decisions.
    pub decisions: Vec<ShardDecision>,
    /// Counts for metrics and logs.
    #[serde(skip)]
    pub report: PlanReport,
}

/// Counts of one pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanReport {
    /// Writes by step.
    pub steps: BTreeMap<Step, u32>,
    /// Waits by what they wait for.
    pub waiting: BTreeMap<WaitingOn, u32>,
    /// Refusals by what stands in the way.
    pub refused: BTreeMap<RefusedBecause, u32>,
    /// Moves against the cluster's limit once the plan is written.
    pub moves_in_flight: u32,
    /// Urgent repairs once the plan is written.
    pub repairs_in_flight: u32,
    /// Why repairs are held although many brokers are missing, if they are.
    pub mass_loss: Option<String>,
    /// Placed shards with fewer copies on serving brokers than their replication factor.
    pub under_replicated: u32,
    /// The copies that those shards lack.
    pub replicas_missing: u32,
    /// Shards whose leader is lost.
    pub leaderless: u32,
}

impl PlanReport {
    /// All writes.
    pub fn written(&self) -> u32 {
        self.steps.values().sum()
    }

    /// All waits.
    pub fn waits(&self) -> u32 {
        self.waiting.values().sum()
    }

    /// All refusals.
    pub fn refusals(&self) -> u32 {
        self.refused.values().sum()
    }
}

/// Plans one pass with the snapshot's own policy.
pub fn plan(snapshot: &Snapshot) -> Plan {
    plan_with(snapshot, &snapshot.policy)
}

/// Plans one pass with another policy.
pub fn plan_with(snapshot: &Snapshot, policy: &Policy) -> Plan {
    run(snapshot, policy, Switches { stream_tiers: true })
}

/// Plans as if streams were not told apart, to show in tests what telling them apart is for.
#[doc(hidden)]
pub fn plan_without_stream_tiers(snapshot: &Snapshot) -> Plan {
    run(snapshot, &snapshot.policy, Switches { stream_tiers: false })
}

fn run(snapshot: &Snapshot, policy: &Policy, switches: Switches) -> Plan {
    run_pass(Pass::new(snapshot, policy, switches))
}

/// Every phase of a pass, in order.
pub(crate) fn run_pass(mut pass: Pass<'_>) -> Plan {
    // Moves in flight finish, and give their slots back, before new ones start.
    advance::run(&mut pass);
    // Nothing is served without a leader: these ask for no slot and ignore a pause.
    failover::run(&mut pass);
    place::run(&mut pass);
    place::followers(&mut pass);
    // Lost copies before anything that only makes the cluster nicer.
    repair::run(&mut pass);
    drain::run(&mut pass);
    spread::run(&mut pass);
    // Costs no bytes, and comes before evenness, which must not bring back what has to leave.
    relief::run(&mut pass);
    rebalance::run(&mut pass);
    finish(pass)
}

fn finish(pass: Pass<'_>) -> Plan {
    let mut report = PlanReport {
        moves_in_flight: pass.slots.moves(),
        repairs_in_flight: pass.slots.repairs(),
        mass_loss: pass.loss.held.clone(),
        leaderless: pass.lists.leaderless.len() as u32,
        ..PlanReport::default()
    };
    let world = &pass.world;
    for shard in pass.lists.short.iter().chain(&pass.lists.leaderless) {
        let missing = world.stream_of(*shard).factor().saturating_sub(world.live_replicas(*shard));
        report.under_replicated += u32::from(missing > 0);
        report.replicas_missing = report.replicas_missing.saturating_add(missing as u32);
    }
    let mut decisions = Vec::with_capacity(pass.decisions.len());
    for (shard, decision) in pass.decisions {
        match &decision {
            Decision::Write(write) => *report.steps.entry(write.step).or_default() += 1,
            Decision::Wait(waiting) => *report.waiting.entry(waiting.on).or_default() += 1,
            Decision::Refuse(refusal) => *report.refused.entry(refusal.because).or_default() += 1,
        }
        decisions.push(ShardDecision { shard: pass.world.key(shard), decision });
    }
    Plan { as_of_ms: pass.world.now, decisions, report }
}
