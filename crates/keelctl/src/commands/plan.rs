//! `keelctl plan`: what the planner would do, live or on a snapshot file.

mod objective;
mod reassign;
mod tables;

use clap::Args;
use evenkeel_model::{Millis, Snapshot};
use evenkeel_planner::{self as planner, Balance, ShardDecision, StableStep};
use evenkeel_proto::admin::{PlanRequest, SnapshotRequest};
use serde::Serialize;
use serde_json::json;

use crate::cli::Global;
use crate::failure::input;
use crate::output::{Format, emit, emit_large, emit_whole};
use crate::{Failure, input as files};

use objective::{Objective, tolerance};

/// On what, and how far.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A snapshot file instead of the live cluster; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<String>,
    /// A JSON file of policy settings, laid over the snapshot's.
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    /// Plan and apply until a pass writes nothing, on paper.
    #[arg(long)]
    until_stable: bool,
    /// End after so many passes.
    #[arg(
        long,
        value_name = "N",
        requires = "until_stable",
        default_value_t = planner::DEFAULT_PASSES
    )]
    max_passes: u32,
    /// The whole set of moves, at once, that reaches this aim.
    #[arg(long, value_enum, conflicts_with = "until_stable", requires = "tolerance")]
    objective: Option<Objective>,
    /// How far from the mean load a broker may be, percent of the mean.
    #[arg(long, value_name = "PERCENT", requires = "objective", value_parser = tolerance,
        allow_negative_numbers = true)]
    tolerance: Option<f64>,
    /// As few moves as can be: no broker above the tolerance, and brokers that were empty up to it.
    #[arg(long, requires = "objective")]
    fewest_moves: bool,
}

impl Options {
    /// Whether the load manager's own plan of one pass is no answer.
    fn is_made_here(&self, format: Format) -> bool {
        self.policy.is_some()
            || self.until_stable
            || self.objective.is_some()
            || format == Format::KafkaReassignment
    }
}

/// Plans and prints. A live cluster's plan is its load manager's own; anything beyond one pass with
/// its own policy is planned here, on a snapshot of it.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    let mut snapshot = match &options.snapshot {
        Some(file) => files::snapshot(file)?,
        None if options.is_made_here(global.output) => live_snapshot(global).await?,
        None => {
            let admin = global.admin()?;
            let document =
                admin.document("plan", |mut c| async move { c.plan(PlanRequest {}).await }).await?;
            return emit(global.output, &document, tables::decisions);
        }
    };
    if let Some(file) = &options.policy {
        if options.snapshot.as_deref() == Some("-") && file == "-" {
            return Err(Failure::Input("--snapshot and --policy cannot both be stdin".to_owned()));
        }
        snapshot.policy = files::policy_over(&snapshot.policy, file)?;
    }
    let reassign = global.output == Format::KafkaReassignment;
    if let (Some(Objective::Load), Some(tolerance)) = (options.objective, options.tolerance) {
        let before = reassign.then(|| snapshot.clone());
        let evening = objective::plan(&mut snapshot, tolerance, options.fewest_moves);
        return match before {
            Some(before) => reassign::print(&before, &snapshot),
            None => evening.print(global.output, &snapshot),
        };
    }
    if options.until_stable {
        return until_stable(global, snapshot, options.max_passes);
    }
    let plan = planner::plan(&snapshot);
    if reassign {
        return reassign::print(&snapshot, &reassign::once_done(&snapshot, &plan));
    }
    let document = OnePass {
        as_of_ms: plan.as_of_ms,
        decisions: &plan.decisions,
        balance: planner::balance(&snapshot),
    };
    let screen = || tables::decisions(&json!({ "decisions": plan.decisions }));
    emit_whole(global.output, &document, screen)
}

#[derive(Serialize)]
struct OnePass<'a> {
    as_of_ms: Millis,
    decisions: &'a [ShardDecision],
    balance: Balance,
}

/// The live cluster's snapshot, for what is planned here.
pub(crate) async fn live_snapshot(global: &Global) -> Result<Snapshot, Failure> {
    let admin = global.admin()?;
    let document = admin
        .document("take a snapshot", |mut c| async move { c.snapshot(SnapshotRequest {}).await })
        .await?;
    Snapshot::parse(document.to_string().as_bytes())
        .map_err(|e| input(format!("the cluster's snapshot: {e}")))
}

fn until_stable(global: &Global, snapshot: Snapshot, max_passes: u32) -> Result<(), Failure> {
    if global.output == Format::KafkaReassignment {
        let stable = planner::until_stable(snapshot.clone(), max_passes);
        return reassign::print(&snapshot, &stable.snapshot);
    }
    let stable = planner::until_stable(snapshot, max_passes);
    let document = AtRest {
        passes: stable.passes,
        writes: stable.steps.len(),
        moves: stable.moves,
        steps: &stable.steps,
        stable: stable.stable,
        waiting: stable.waiting,
        at_end: &stable.snapshot,
        balance: planner::balance(&stable.snapshot),
    };
    emit_large(global.output, &document, || tables::steps(&stable))
}

#[derive(Serialize)]
struct AtRest<'a> {
    passes: u32,
    writes: usize,
    moves: u32,
    steps: &'a [StableStep],
    stable: bool,
    waiting: u32,
    #[serde(rename = "final")]
    at_end: &'a Snapshot,
    balance: Balance,
}
