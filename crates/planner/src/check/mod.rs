//! What must hold of every plan, whatever the snapshot. Tests, the simulator and a running load
//! manager ask, and the latter does not write what breaks a rule. It is reckoned from the snapshot
//! and the writes alone. Work grows with the decisions; where a limit needs to know all that is
//! under way, assignments are looked through and never copied.

mod cluster;
mod evenness;
mod limits;
mod steps;

use std::fmt;

use evenkeel_model::{Assignment, BrokerId, MoveReason, ShardKey, Snapshot};

use crate::decision::{Reason, Step, Write};
use crate::plan::Plan;
use cluster::Cluster;

/// A plan that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The shard whose decision is wrong; none if the plan as a whole is.
    pub shard: Option<ShardKey>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shard {
            Some(shard) => write!(f, "{shard}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// Every rule that `plan`, made from `snapshot` under its own policy, breaks.
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Vec<Violation> {
    let mut found = Findings::default();
    for pair in plan.decisions.windows(2) {
        if pair[0].shard >= pair[1].shard {
            found.say(&pair[1].shard, "is listed twice or out of order".to_owned());
        }
    }
    let writes: Vec<Change<'_>> = plan
        .decisions
        .iter()
        .filter_map(|d| d.decision.write())
        .map(|write| Change { write, old: snapshot.assignments.get(&write.next.shard) })
        .collect();
    if writes.is_empty() {
        return found.violations;
    }
    let cluster = Cluster::new(snapshot);
    for change in &writes {
        steps::check(&cluster, change, &mut found);
    }
    limits::check(&cluster, &writes, &mut found);
    evenness::check(&cluster, &writes, &mut found);
    found.violations
}

#[derive(Default)]
struct Findings {
    violations: Vec<Violation>,
}

impl Findings {
    fn say(&mut self, shard: &ShardKey, what: String) {
        self.violations.push(Violation { shard: Some(shard.clone()), what });
    }
}

/// One write and what it replaces.
struct Change<'a> {
    write: &'a Write,
    old: Option<&'a Assignment>,
}

impl<'a> Change<'a> {
    fn next(&self) -> &'a Assignment {
        &self.write.next
    }

    fn shard(&self) -> &'a ShardKey {
        &self.write.next.shard
    }

    /// Whether it starts a move or a copy.
    fn starts(&self) -> bool {
        let starts = [Step::Stage, Step::Fence, Step::Restore, Step::Reseat];
        starts.contains(&self.write.step) && self.old.is_some_and(|old| !old.is_moving())
    }

    /// Whether it starts a move for balance.
    fn balances(&self) -> bool {
        let reasons = [MoveReason::StreamBalance, MoveReason::TotalBalance, MoveReason::Load];
        self.starts() && reasons.iter().any(|r| self.is_for(*r))
    }

    fn is_for(&self, reason: MoveReason) -> bool {
        self.write.reason == Reason::Move(reason)
    }
}

/// The broker that receives the bytes of what is under way; none of a transfer.
fn copy_of(a: &Assignment) -> Option<&BrokerId> {
    let copy = a.successor.as_ref().or(a.joining.as_ref());
    copy.filter(|c| !a.voters().any(|v| v == *c))
}
