//! `keelctl plan -o kafka-reassignment`: a plan as Kafka's own tool takes it.

use evenkeel_model::Snapshot;
use evenkeel_planner::{self as planner, Plan};

use crate::Failure;
use crate::failure::input;
use crate::kafka::reassignment;
use crate::output::{note, print_text};

/// What a pass leads to once everything that it starts has come to its end. Nothing else is started
/// on the way: placement is paused.
pub(super) fn once_done(snapshot: &Snapshot, plan: &Plan) -> Snapshot {
    let mut next = snapshot.clone();
    for decision in &plan.decisions {
        planner::apply(&mut next, decision);
    }
    planner::settle(&mut next);
    next.paused = true;
    planner::until_stable(next, planner::DEFAULT_PASSES).snapshot
}

/// Prints the partitions whose replicas differ.
pub(super) fn print(before: &Snapshot, after: &Snapshot) -> Result<(), Failure> {
    let document = reassignment::between(before, after).map_err(input)?;
    if document.partitions.is_empty() {
        note("nothing is to be reassigned; Kafka's tool takes no empty list");
    }
    let text = serde_json::to_string(&document)
        .map_err(|e| Failure::Input(format!("cannot write the reassignment: {e}")))?;
    print_text(&text)
}
