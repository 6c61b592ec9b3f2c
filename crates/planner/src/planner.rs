//! A planner that keeps its facts from pass to pass.

use evenkeel_model::{
    Assignment, BrokerId, BrokerView, CopyPauseRecord, HistoryEntry, LoadReport, Marker, Millis,
    Policy, ShardKey, ShardReport, Snapshot,
};

use crate::balance::{Balance, balance_of, overview};
use crate::decision::{Decision, ShardDecision};
use crate::facts::{Facts, HeldFacts};
use crate::pass::{Pass, Switches};
use crate::plan::{Plan, run_pass};
use crate::world::World;

/// What holds for the whole cluster at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// The time that the next pass reckons with.
    pub as_of_ms: Millis,
    /// When the cluster's first broker registered.
    pub first_registered_ms: Millis,
    /// When the present load manager was elected.
    pub elected_at_ms: Millis,
    /// An operator paused placement.
    pub paused: bool,
    /// Placement policy.
    pub policy: Policy,
    /// Operators' pauses of copies, those that ended lately as well.
    pub copy_pauses: Vec<CopyPauseRecord>,
}

/// A snapshot with the facts that every pass needs. A change costs what changed, and so does the
/// next pass: it plans exactly what [`crate::plan`] would plan for the same snapshot.
pub struct Planner {
    snapshot: Snapshot,
    facts: Facts,
}

impl Planner {
    /// Takes a snapshot in.
    pub fn new(snapshot: Snapshot) -> Self {
        let facts = Facts::new(&snapshot);
        Self { snapshot, facts }
    }

    /// The snapshot as it is now.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Gives the snapshot back.
    pub fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }

    /// Plans one pass.
    pub fn plan(&self) -> Plan {
        run_pass(Pass::of(self.world(), Switches { stream_tiers: true }))
    }

    /// How even the cluster is.
    pub fn balance(&self) -> Balance {
        balance_of(&self.world())
    }

    /// How even the cluster is, without a row for each stream: on large clusters those are many.
    pub fn overview(&self) -> Balance {
        overview(&self.world())
    }

    fn world(&self) -> World<'_> {
        World::of(HeldFacts::Kept(&self.facts), &self.snapshot, &self.snapshot.policy)
    }

    /// The time that the next pass reckons with.
    pub fn set_time(&mut self, as_of_ms: Millis) {
        self.snapshot.as_of_ms = as_of_ms;
    }

    /// What holds for the whole cluster.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.snapshot.as_of_ms = conditions.as_of_ms;
        self.snapshot.first_registered_ms = conditions.first_registered_ms;
        self.snapshot.elected_at_ms = conditions.elected_at_ms;
        self.snapshot.paused = conditions.paused;
        self.snapshot.policy = conditions.policy;
        self.snapshot.copy_pauses = conditions.copy_pauses;
    }

    /// Finished moves, oldest first.
    pub fn set_history(&mut self, history: Vec<HistoryEntry>) {
        self.snapshot.history = history;
    }

    /// A broker is now as `view` says, its load report included. A broker that was not listed costs
    /// as much as a new planner.
    pub fn set_broker(&mut self, broker: &BrokerId, view: BrokerView) {
        let listed = self.snapshot.brokers.contains_key(broker);
        let at = self.facts.broker_named(broker).filter(|_| listed);
        match at {
            Some(at) => {
                self.facts.report_load(at, view.load.as_ref());
                self.snapshot.brokers.insert(broker.clone(), view);
            }
            None => self.alter(|snapshot| {
                snapshot.brokers.insert(broker.clone(), view);
            }),
        }
    }

    /// A broker's registration was last seen then. An unknown broker is passed over.
    pub fn set_last_seen(&mut self, broker: &BrokerId, last_seen_ms: Millis) {
        if let Some(view) = self.snapshot.brokers.get_mut(broker) {
            view.last_seen_ms = last_seen_ms;
        }
    }

    /// A shard is now held as `next` says, or by nobody. A shard of no stream is passed over.
    pub fn set_assignment(&mut self, shard: &ShardKey, next: Option<Assignment>) {
        let Some(at) = self.facts.shard_named(shard) else { return };
        self.facts.assign(at, next.as_ref());
        match next {
            Some(next) => self.snapshot.assignments.insert(shard.clone(), next),
            None => self.snapshot.assignments.remove(shard),
        };
    }

    /// What brokers say about a shard. A shard of no stream is passed over.
    pub fn set_reports(&mut self, shard: &ShardKey, reports: Vec<ShardReport>) {
        let Some(at) = self.facts.shard_named(shard) else { return };
        self.facts.report_shard(at, &reports);
        if reports.is_empty() {
            self.snapshot.reports.remove(shard);
        } else {
            self.snapshot.reports.insert(shard.clone(), reports);
        }
    }

    /// A broker's load report, or that it has none. An unknown broker is passed over.
    pub fn set_load(&mut self, broker: &BrokerId, report: Option<LoadReport>) {
        let Some(at) = self.facts.broker_named(broker) else { return };
        let Some(view) = self.snapshot.brokers.get_mut(broker) else { return };
        self.facts.report_load(at, report.as_ref());
        view.load = report;
    }

    /// Why a shard waits to be placed, or that it does not.
    pub fn set_marker(&mut self, shard: &ShardKey, marker: Option<Marker>) {
        match marker {
            Some(marker) => self.snapshot.unassigned.insert(shard.clone(), marker),
            None => self.snapshot.unassigned.remove(shard),
        };
    }

    /// Puts a decision's write in, as [`crate::apply`] does.
    pub fn apply(&mut self, decision: &ShardDecision) {
        let Decision::Write(write) = &decision.decision else { return };
        if write.clears_marker {
            self.snapshot.unassigned.remove(&decision.shard);
        }
        if let Some(entry) = &write.history {
            self.snapshot.history.push(entry.clone());
        }
        self.set_assignment(&decision.shard, Some(write.next.clone()));
    }

    /// A change of times only: of the snapshot, of brokers, of their reports.
    pub(crate) fn refresh(&mut self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.snapshot);
    }

    /// Any other change. It costs as much as a new planner.
    pub fn alter(&mut self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.snapshot);
        self.facts = Facts::new(&self.snapshot);
    }
}
