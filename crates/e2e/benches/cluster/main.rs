//! Benches over real processes and a real etcd: `cargo bench -p evenkeel-e2e --bench cluster`,
//! with `-- --json` for JSON and `-- --only moves,kills` for some of them. Needs etcd 3.4 in PATH
//! or named by `EVENKEEL_ETCD_34`. `--program FILE` measures another build.

mod kills;
mod moves;
mod publish;
mod steps;

use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use evenkeel_e2e::bench::figures::Figures;
use evenkeel_e2e::bench::machine::Machine;
use evenkeel_e2e::bench::publishers;
use evenkeel_e2e::bench::records::Records;
use evenkeel_e2e::{Cluster, Size};
use evenkeel_model::StreamKey;
use evenkeel_proto::admin::Stream;
use evenkeel_testkit::EtcdVersion;
use serde_json::json;

const STREAM: &str = "stream/bench/load";
const FACTOR: u32 = 3;

/// Of the stream that is published to and moved.
const SHARDS: u32 = 16;

/// Its cluster: with one broker more than replicas, moves go to members and to newcomers.
const SIZE: Size = Size { load_managers: 1, migrators: 1, brokers: 4 };

/// All benches together end before this.
const LIMIT: Duration = Duration::from_secs(240);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Steps,
    Publish,
    Moves,
    Kills,
}

/// Measures a cluster of real processes.
#[derive(Debug, Parser)]
struct Args {
    /// Prints JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Only these.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Steps of each of three rounds.
    #[arg(long, default_value_t = 1000)]
    steps: u32,
    /// Length of each measurement of publishing, seconds.
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Moves.
    #[arg(long, default_value_t = 100)]
    moves: u32,
    /// Kills, each in a cluster of its own.
    #[arg(long, default_value_t = 3)]
    kills: u32,
    /// Shards led by the broker that is killed, at least.
    #[arg(long, default_value_t = 300)]
    led: u32,
    /// The program that the services are started from.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_evenkeel-under-test"))]
    program: String,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

fn stream_key() -> anyhow::Result<StreamKey> {
    Ok(STREAM.parse()?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut machine = Machine::look(EtcdVersion::V3_4);
    let mut figures = Figures::default();
    let all = tokio::time::timeout(LIMIT, run(&args, &mut figures)).await;
    let result = all.with_context(|| format!("not done after {LIMIT:?}")).flatten();
    machine.finished();
    // What was measured before something failed is still worth printing.
    if args.json {
        println!("{:#}", figures.json(&machine));
    } else {
        println!("{}", figures.table(&machine));
    }
    result
}

async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    if args.wants(Part::Steps) {
        eprintln!("guarded steps");
        steps::run(args, figures).await.context("guarded steps")?;
    }
    if args.wants(Part::Publish) || args.wants(Part::Moves) {
        let cluster = Cluster::start(&args.program, EtcdVersion::V3_4, SIZE).await?;
        let measured = load(args, &cluster, figures).await;
        measured.with_context(|| cluster.logs())?;
    }
    if args.wants(Part::Kills) {
        eprintln!("kills");
        kills::run(args, figures).await.context("kills")?;
    }
    Ok(())
}

/// What is measured on one cluster with one stream.
async fn load(args: &Args, cluster: &Cluster, figures: &mut Figures) -> anyhow::Result<()> {
    // Nothing may move but what the bench moves.
    cluster.set_policy(&json!({ "rebalancing": { "leaders": false } })).await?;
    let records = Records::watch(cluster).await?;
    let stream = Stream {
        stream: STREAM.to_owned(),
        shards: SHARDS,
        replication_factor: FACTOR,
        durable: true,
        ..Stream::default()
    };
    records.stream_served(cluster, stream, SIZE.brokers).await?;
    let client = publishers::client(cluster)?;
    if args.wants(Part::Publish) {
        eprintln!("publishing");
        publish::run(args, &client, figures).await.context("publishing")?;
    }
    if args.wants(Part::Moves) {
        eprintln!("moves");
        moves::run(args, cluster, &client, &records, figures).await.context("moves")?;
    }
    Ok(())
}
