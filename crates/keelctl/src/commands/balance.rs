//! `keelctl balance`: how even the cluster is, live or on a snapshot file.

use clap::Args;
use evenkeel_proto::admin::BalanceRequest;
use serde_json::{Value, json};

use crate::cli::Global;
use crate::output::{cell, cells, emit, table};
use crate::{Failure, input as files};

/// Of what.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A snapshot file instead of the live cluster; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<String>,
}

/// Reckons and prints.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    let document = match &options.snapshot {
        Some(file) => json!(evenkeel_planner::balance(&files::snapshot(file)?)),
        None => {
            let admin = global.admin()?;
            admin
                .document(
                    "show the balance",
                    |mut c| async move { c.balance(BalanceRequest {}).await },
                )
                .await?
        }
    };
    emit(global.output, &document, screen)
}

fn screen(d: &Value) -> String {
    let fields = ["broker", "score", "class", "leaders", "replicas"];
    let brokers = table(fields, cells(&d["brokers"], fields));
    let fields = ["stream", "level", "leaders"];
    let streams = table(fields, cells(&d["streams"], fields));
    format!(
        "{brokers}\n\n{streams}\n\n{}: CV {} %, mean {}, deviation {}\n\
         {} shards under-replicated ({} replicas missing), {} crowded, {} limited by zones",
        cell(&d["status"]),
        cell(&d["cv_percent"]),
        cell(&d["mean"]),
        cell(&d["std_dev"]),
        cell(&d["under_replicated"]),
        cell(&d["replicas_missing"]),
        cell(&d["crowded"]),
        cell(&d["zone_limited"])
    )
}
