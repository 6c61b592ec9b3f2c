//! Plans for people.

use serde_json::Value;

use crate::output::{cell, cells, table};

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
pub(super) fn steps(d: &Value) -> String {
    let fields = ["pass", "shard", "step", "from", "to", "reason"];
    let end = match d["stable"].as_bool() {
        Some(true) => "at rest",
        _ => "not at rest yet",
    };
    format!(
        "{}\n\n{} writes, {} moves in {} passes; {end}, {} waiting",
        table(fields, cells(&d["steps"], fields)),
        cell(&d["writes"]),
        cell(&d["moves"]),
        cell(&d["passes"]),
        cell(&d["waiting"])
    )
}
