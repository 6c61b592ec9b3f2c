//! Plans for people.

use evenkeel_model::BrokerId;
use evenkeel_planner::{Stable, StableStep};
use serde_json::Value;

use crate::output::{cell, table};

/// The decisions of one pass.
pub(super) fn decisions(d: &Value) -> String {
    let decisions = d["decisions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if decisions.is_empty() {
        return "nothing to do".to_owned();
    }
    let rows = decisions.iter().map(|d| {
        let word = ["step", "waiting", "refusal"].into_iter().find(|f| d[f].is_string());
        [
            cell(&d["shard"]),
            cell(&d["decision"]),
            word.map_or("-".to_owned(), |field| cell(&d[field])),
            cell(&d["from"]),
            cell(&d["to"]),
            cell(&d["reason"]),
            cell(&d["detail"]),
        ]
    });
    let header = ["shard", "decision", "what", "from", "to", "reason", "detail"];
    table(header, rows.collect())
}

/// Every write on the way to rest.
pub(super) fn steps(stable: &Stable) -> String {
    let name = |b: &Option<BrokerId>| b.as_ref().map_or("-".to_owned(), ToString::to_string);
    let row = |s: &StableStep| {
        [
            s.pass.to_string(),
            s.shard.to_string(),
            s.step.to_string(),
            name(&s.from),
            name(&s.to),
            s.reason.to_string(),
        ]
    };
    let header = ["pass", "shard", "step", "from", "to", "reason"];
    let end = if stable.stable { "at rest" } else { "not at rest yet" };
    format!(
        "{}\n\n{} writes, {} moves in {} passes; {end}, {} waiting",
        table(header, stable.steps.iter().map(row).collect()),
        stable.steps.len(),
        stable.moves,
        stable.passes,
        stable.waiting
    )
}
