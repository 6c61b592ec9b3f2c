//! `keelctl explain`: why a shard is where it is, live or on a snapshot file.

use clap::Args;
use evenkeel_model::ShardKey;
use evenkeel_proto::admin::ExplainRequest;
use serde_json::{Value, json};

use super::shards::parse_shard;
use crate::cli::Global;
use crate::output::{cell, emit};
use crate::{Failure, input as files};

/// What to explain.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A shard as kind/namespace/name/number or namespace/name/number; of the live cluster also a
    /// broker.
    subject: String,
    /// A snapshot file instead of the live cluster; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<String>,
}

/// Explains and prints.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    let document = match &options.snapshot {
        Some(file) => {
            let shard: ShardKey = parse_shard(&options.subject).map_err(Failure::Input)?;
            let snapshot = files::snapshot(file)?;
            let explanation = evenkeel_planner::explain(&snapshot, &shard).ok_or_else(|| {
                Failure::Input(format!(
                    "{}: there is no shard {shard}: expected one of the streams it lists",
                    files::name(file)
                ))
            })?;
            json!(explanation)
        }
        None => {
            let subject = match options.subject.contains('/') {
                true => parse_shard(&options.subject).map_err(Failure::Input)?.to_string(),
                false => options.subject,
            };
            let request = ExplainRequest { subject: subject.clone() };
            let admin = global.admin()?;
            admin
                .document(&format!("explain {subject}"), |mut c| {
                    let request = request.clone();
                    async move { c.explain(request).await }
                })
                .await?
        }
    };
    emit(global.output, &document, |d: &Value| cell(&d["text"]))
}
