//! `keelctl rank`: brokers by load, live or on a snapshot file.

use clap::{Args, ValueEnum};
use evenkeel_model::Strategy;
use evenkeel_proto::admin::RankRequest;
use serde_json::{Value, json};

use crate::cli::Global;
use crate::output::{cell, cells, emit, table};
use crate::{Failure, input as files};

/// Of what, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A snapshot file instead of the live cluster; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<String>,
    /// How brokers are scored; the policy's way if not given.
    #[arg(long, value_enum)]
    strategy: Option<StrategyName>,
}

/// How brokers are scored.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum StrategyName {
    /// Shards led.
    Fair,
    /// Topic load, CPU and memory.
    Balanced,
    /// The four system metrics, the bottleneck at half the weight.
    WeightedLoad,
}

impl From<StrategyName> for Strategy {
    fn from(name: StrategyName) -> Self {
        match name {
            StrategyName::Fair => Self::Fair,
            StrategyName::Balanced => Self::Balanced,
            StrategyName::WeightedLoad => Self::WeightedLoad,
        }
    }
}

/// Ranks and prints.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    let strategy = options.strategy.map(Strategy::from);
    let document = match &options.snapshot {
        Some(file) => {
            let snapshot = files::snapshot(file)?;
            let strategy = strategy.unwrap_or(snapshot.policy.assignment_strategy);
            json!(evenkeel_planner::rank(&snapshot, strategy))
        }
        None => {
            let word = strategy.and_then(|s| json!(s).as_str().map(str::to_owned));
            let request = RankRequest { strategy: word };
            let admin = global.admin()?;
            admin
                .document("rank brokers", |mut c| {
                    let request = request.clone();
                    async move { c.rank(request).await }
                })
                .await?
        }
    };
    emit(global.output, &document, screen)
}

fn screen(d: &Value) -> String {
    let fields = ["broker", "score", "known"];
    format!("{}\n\nstrategy {}", table(fields, cells(&d["rankings"], fields)), cell(&d["strategy"]))
}
