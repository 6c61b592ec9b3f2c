//! `keelctl plan`: what the planner would do, live or on a snapshot file.

use clap::Args;
use evenkeel_model::Snapshot;
use evenkeel_planner as planner;
use evenkeel_proto::admin::{PlanRequest, SnapshotRequest};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::failure::input;
use crate::output::{cell, cells, emit, table};
use crate::{Failure, input as files};

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
}

/// Plans and prints. A live cluster's plan is its load manager's own; with a policy or until
/// stable, it is made here on a snapshot of it.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    let elsewhere = options.policy.is_some() || options.until_stable;
    let mut snapshot = match &options.snapshot {
        Some(file) => files::snapshot(file)?,
        None if elsewhere => live_snapshot(global).await?,
        None => {
            let admin = global.admin()?;
            let document =
                admin.document("plan", |mut c| async move { c.plan(PlanRequest {}).await }).await?;
            return emit(global.output, &document, decisions_table);
        }
    };
    if let Some(file) = &options.policy {
        if options.snapshot.as_deref() == Some("-") && file == "-" {
            return Err(Failure::Input("--snapshot and --policy cannot both be stdin".to_owned()));
        }
        snapshot.policy = files::policy_over(&snapshot.policy, file)?;
    }
    if options.until_stable {
        let document = until_stable(snapshot, options.max_passes);
        return emit(global.output, &document, steps_table);
    }
    let plan = planner::plan(&snapshot);
    let document = json!({
        "as_of_ms": plan.as_of_ms,
        "decisions": plan.decisions,
        "balance": planner::balance(&snapshot),
    });
    emit(global.output, &document, decisions_table)
}

/// The live cluster's snapshot, for what is planned here.
async fn live_snapshot(global: &Global) -> Result<Snapshot, Failure> {
    let admin = global.admin()?;
    let document = admin
        .document("take a snapshot", |mut c| async move { c.snapshot(SnapshotRequest {}).await })
        .await?;
    Snapshot::parse(document.to_string().as_bytes())
        .map_err(|e| input(format!("the cluster's snapshot: {e}")))
}

fn until_stable(snapshot: Snapshot, max_passes: u32) -> Value {
    let stable = planner::until_stable(snapshot, max_passes);
    json!({
        "passes": stable.passes,
        "writes": stable.steps.len(),
        "moves": stable.moves,
        "steps": stable.steps,
        "stable": stable.stable,
        "waiting": stable.waiting,
        "final": stable.snapshot.to_json(),
        "balance": planner::balance(&stable.snapshot),
    })
}

fn decisions_table(d: &Value) -> String {
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

fn steps_table(d: &Value) -> String {
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
