//! What happened, in a short table.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::cluster::Leaders;
use super::exposure::Exposure;
use super::verification::Verdict;
use crate::output::{bytes, table};

/// The whole demo in numbers.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// Whether nothing acknowledged was lost, changed, doubled or reordered.
    pub(crate) ok: bool,
    /// How long it took.
    pub(crate) seconds: f64,
    pub(crate) bytes: u64,
    /// Leaders by stream and broker before anything happened, and at the end.
    pub(crate) leaders_before: Leaders,
    pub(crate) leaders_after: Leaders,
    /// Finished moves by reason.
    pub(crate) moves: BTreeMap<String, u64>,
    /// Moves that were given up.
    pub(crate) moves_given_up: u64,
    /// Replicas restored.
    pub(crate) repairs: u64,
    pub(crate) exposure: Exposure,
    pub(crate) longest_write_stall_seconds: f64,
    pub(crate) longest_write_stall_during: String,
    /// Batches that took more than one attempt.
    pub(crate) batches_retried: u64,
    pub(crate) records: Verdict,
}

impl Report {
    /// Counts the history of a snapshot.
    pub(crate) fn count_history(&mut self, snapshot: &Value) {
        let entries = snapshot["history"].as_array().map(Vec::as_slice).unwrap_or_default();
        for entry in entries {
            let reason = entry["reason"].as_str().unwrap_or_default();
            match (entry["outcome"].as_str(), reason) {
                (Some("cut_over"), "restore") => self.repairs += 1,
                (Some("cut_over"), reason) => {
                    *self.moves.entry(reason.to_owned()).or_default() += 1
                }
                _ => self.moves_given_up += 1,
            }
        }
    }

    /// For people.
    pub(crate) fn screen(&self) -> String {
        let moves: u64 = self.moves.values().sum();
        let by_reason: Vec<String> =
            self.moves.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        let e = &self.exposure;
        let r = &self.records;
        let rows = vec![
            ["moves".into(), format!("{moves} ({})", by_reason.join(", "))],
            ["moves given up".into(), self.moves_given_up.to_string()],
            ["repairs".into(), self.repairs.to_string()],
            [
                "exposure".into(),
                format!(
                    "{:.1} s with a shard short of replicas, {:.1} shard seconds, {:.1} s longest",
                    e.seconds, e.shard_seconds, e.longest_seconds
                ),
            ],
            ["without leader".into(), format!("{:.1} s longest", e.longest_leaderless_seconds)],
            [
                "write stall".into(),
                format!(
                    "{:.1} s longest, during: {}",
                    self.longest_write_stall_seconds, self.longest_write_stall_during
                ),
            ],
            ["batches retried".into(), self.batches_retried.to_string()],
            [
                "published".into(),
                format!("{} in {} records", bytes(self.bytes as f64), r.acknowledged),
            ],
            ["acknowledged".into(), r.acknowledged.to_string()],
            ["read back".into(), r.read.to_string()],
            ["lost".into(), r.lost.to_string()],
            ["changed".into(), r.changed.to_string()],
            ["duplicated".into(), r.duplicated.to_string()],
            ["out of order".into(), r.out_of_order.to_string()],
            ["took".into(), format!("{:.1} s", self.seconds)],
        ];
        let verdict = if self.ok {
            "ok: everything acknowledged is there, once, unchanged, in order"
        } else {
            "NOT ok: see the counts above"
        };
        format!(
            "leaders before\n{}\n\nleaders after\n{}\n\n{}\n\n{verdict}",
            leaders_table(&self.leaders_before),
            leaders_table(&self.leaders_after),
            table(["what", "result"], rows),
        )
    }
}

/// One row for each stream, one column for each broker.
pub(crate) fn leaders_table(leaders: &Leaders) -> String {
    let brokers: std::collections::BTreeSet<&String> =
        leaders.values().flat_map(|by_broker| by_broker.keys()).collect();
    let width = leaders.keys().map(String::len).max().unwrap_or_default().max(6);
    let mut lines = vec![format!("{:width$}", "")];
    for broker in &brokers {
        lines[0].push_str(&format!("  {broker:>4}"));
    }
    for (stream, by_broker) in leaders {
        let mut line = format!("{stream:width$}");
        for broker in &brokers {
            let count = by_broker.get(*broker).map_or("-".to_owned(), u32::to_string);
            let column = broker.len().max(4);
            line.push_str(&format!("  {count:>column$}"));
        }
        lines.push(line);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaders_are_a_grid_of_streams_and_brokers() {
        let row = |pairs: &[(&str, u32)]| {
            pairs.iter().map(|(b, n)| ((*b).to_owned(), *n)).collect::<BTreeMap<_, _>>()
        };
        let leaders = Leaders::from([
            ("stream/demo/lines".to_owned(), row(&[("b1", 4), ("b2", 8)])),
            ("stream/demo/x".to_owned(), row(&[("b1", 1)])),
        ]);
        let expected = "                     b1    b2
stream/demo/lines     4     8
stream/demo/x         1     -";
        assert_eq!(leaders_table(&leaders), expected);
    }
}
