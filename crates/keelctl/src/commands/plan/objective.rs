//! `keelctl plan --objective`: the whole set of moves that reaches an aim, at once.

use clap::ValueEnum;
use evenkeel_model::Snapshot;
use evenkeel_planner::{LoadAim, LoadMove, LoadPlan, apply_load_plan, even_load};
use serde::Serialize;
use tokio::time::Instant;

use crate::Failure;
use crate::output::{Format, bytes, emit_large, note, table};

/// What the moves are to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Objective {
    /// Every broker near the mean load.
    Load,
}

/// A percentage of the mean.
pub(super) fn tolerance(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "expected a percentage, 0 to 100".to_owned())?;
    if (0.0..=100.0).contains(&percent) {
        return Ok(percent);
    }
    Err("expected a percentage, 0 to 100".to_owned())
}

/// The moves, and how long finding them took.
pub(super) struct Evening {
    plan: LoadPlan,
    planning_ms: f64,
}

/// Evens out the load of `snapshot`, which the moves are done on.
pub(super) fn plan(snapshot: &mut Snapshot, tolerance: f64, fewest_moves: bool) -> Evening {
    let aim = if fewest_moves { LoadAim::FewestMoves } else { LoadAim::BothSides };
    let began = Instant::now();
    let plan = even_load(snapshot, tolerance, aim);
    apply_load_plan(snapshot, &plan);
    let evening = Evening { plan, planning_ms: began.elapsed().as_secs_f64() * 1000.0 };
    if let Some(short) = evening.falls_short(snapshot, tolerance, aim) {
        note(short);
    }
    evening
}

#[derive(Serialize)]
struct Document<'a> {
    moves: &'a [LoadMove],
    load_moved: f64,
    max_over_mean: f64,
    min_over_mean: f64,
    planning_ms: f64,
    #[serde(rename = "final")]
    at_end: &'a Snapshot,
}

impl Evening {
    /// Why the moves, or none, are not all that was asked for.
    fn falls_short(&self, snapshot: &Snapshot, tolerance: f64, aim: LoadAim) -> Option<String> {
        let reports = snapshot.brokers.values().filter_map(|b| b.load.as_ref());
        if !reports.flat_map(|report| &report.shards).any(|row| row.bytes_per_second > 0.0) {
            return Some("no shard's load is known, so there is nothing to even out".to_owned());
        }
        let LoadPlan { max_over_mean: max, min_over_mean: min, .. } = self.plan;
        let part = tolerance / 100.0 + 1e-9;
        let low = aim == LoadAim::BothSides && min < 1.0 - part;
        (max > 1.0 + part || low).then(|| {
            format!(
                "{tolerance} % is not reached with these shards, zones and limits: the most \
                 loaded broker is at {max:.3} of the mean and the least loaded at {min:.3}"
            )
        })
    }

    /// Writes it to stdout. People are shown the moves, and not the snapshot they lead to.
    pub(super) fn print(&self, format: Format, at_end: &Snapshot) -> Result<(), Failure> {
        let plan = &self.plan;
        let document = Document {
            moves: &plan.moves,
            load_moved: plan.load_moved,
            max_over_mean: plan.max_over_mean,
            min_over_mean: plan.min_over_mean,
            planning_ms: self.planning_ms,
            at_end,
        };
        emit_large(format, &document, || self.screen())
    }

    fn screen(&self) -> String {
        let plan = &self.plan;
        let row = |m: &LoadMove| {
            [
                m.shard.to_string(),
                m.role.as_str().to_owned(),
                m.from.to_string(),
                m.to.to_string(),
                format!("{}/s", bytes(m.load)),
            ]
        };
        let summary = format!(
            "{} moves carrying {}/s; then the most loaded broker is at {:.3} of the mean and the \
             least loaded at {:.3}; planned in {:.1} ms",
            plan.moves.len(),
            bytes(plan.load_moved),
            plan.max_over_mean,
            plan.min_over_mean,
            self.planning_ms
        );
        if plan.moves.is_empty() {
            return summary;
        }
        let header = ["shard", "role", "from", "to", "load"];
        format!("{}\n\n{summary}", table(header, plan.moves.iter().map(row).collect()))
    }
}
