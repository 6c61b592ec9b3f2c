//! `keelctl explain`: why a shard is where it is, what a broker still holds; live or on a file.

use std::fmt;

use clap::Args;
use evenkeel_model::{BrokerId, ShardKey, Snapshot};
use evenkeel_proto::admin::ExplainRequest;
use serde_json::{Value, json};

use super::shards::parse_shard;
use crate::cli::Global;
use crate::failure::input;
use crate::output::{cell, emit};
use crate::{Failure, input as files};

/// What to explain.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A shard as kind/namespace/name/number, namespace/name/number or name/number; or a broker.
    subject: String,
    /// A snapshot file instead of the live cluster; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<String>,
}

/// Explains and prints.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    let subject = Subject::parse(&options.subject)?;
    let document = match &options.snapshot {
        Some(file) => subject.explained(&files::snapshot(file)?).ok_or_else(|| {
            let name = files::name(file);
            Failure::Input(match &subject {
                Subject::Shard(shard) => format!(
                    "{name}: there is no shard {shard}: expected one of the streams it lists"
                ),
                Subject::Broker(broker) => {
                    format!("{name}: there is no broker {broker}: expected one that it lists")
                }
            })
        })?,
        None => {
            let subject = subject.to_string();
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

/// What is to be explained.
enum Subject {
    Shard(ShardKey),
    Broker(BrokerId),
}

impl Subject {
    fn parse(text: &str) -> Result<Self, Failure> {
        if text.contains('/') {
            return parse_shard(text).map(Self::Shard).map_err(Failure::Input);
        }
        text.parse().map(Self::Broker).map_err(input)
    }

    /// None if the snapshot does not know it.
    fn explained(&self, snapshot: &Snapshot) -> Option<Value> {
        match self {
            Self::Shard(shard) => evenkeel_planner::explain(snapshot, shard).map(|e| json!(e)),
            Self::Broker(id) => evenkeel_planner::explain_broker(snapshot, id).map(|e| json!(e)),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shard(shard) => shard.fmt(f),
            Self::Broker(broker) => broker.fmt(f),
        }
    }
}
