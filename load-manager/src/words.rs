//! A decision in two words: what kind it is, and the step, waiting word or refusal word.

use std::collections::BTreeMap;

use evenkeel_model::ShardKey;
use evenkeel_planner::{Decision, Plan};

/// The kind of a decision, and its word.
pub(crate) fn of(decision: &Decision) -> (&'static str, &'static str) {
    match decision {
        Decision::Write(write) => ("write", write.step.as_str()),
        Decision::Wait(waiting) => ("wait", waiting.on.as_str()),
        Decision::Refuse(refusal) => ("refuse", refusal.because.as_str()),
    }
}

/// The sentence that goes with it.
pub(crate) fn detail(decision: &Decision) -> &str {
    match decision {
        Decision::Write(write) => &write.detail,
        Decision::Wait(waiting) => &waiting.detail,
        Decision::Refuse(refusal) => &refusal.detail,
    }
}

/// The decisions of a plan by shard.
pub(crate) fn by_shard(plan: &Plan) -> BTreeMap<&ShardKey, &Decision> {
    plan.decisions.iter().map(|d| (&d.shard, &d.decision)).collect()
}
