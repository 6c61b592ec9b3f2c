//! Benches of copies over real processes, disks and loopback: what the throttle costs, how exactly
//! it holds, what a repair does to requests, and what faults cost.
//! `cargo bench -p evenkeel-e2e --bench copies`, with `-- --only repair,resume` for some parts and
//! `-- --json` or `-- --rows` for another form. Needs etcd 3.4 in PATH or named by
//! `EVENKEEL_ETCD_34`.

mod classes;
mod corruption;
mod drain;
mod ends;
mod fencing;
mod flipper;
mod limits;
mod overhead;
mod pair;
mod rates;
mod readback;
mod repair;
mod resume;
mod stage;
mod storm;
mod takeover;

use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use evenkeel_e2e::bench::figures::Figures;
use evenkeel_e2e::bench::machine::Machine;
use evenkeel_testkit::EtcdVersion;

/// All parts together end before this.
const LIMIT: Duration = Duration::from_secs(900);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Cost of the bucket, and of the protocol over raw TCP with checksums.
    Overhead,
    /// How exactly a bucket holds its rate, and how fast it takes a new one.
    Rates,
    /// The same of a real copy under an operator's cap.
    Limits,
    /// Both ends' limits at three copies into one broker and out of one.
    Ends,
    /// Requests during and after a repair; its time over the flow bound; granted bytes used.
    Repair,
    /// The storm: a broker dies at 80 % of the maximum.
    Storm,
    /// Pre-emption by a repair, and fairness among equal copies.
    Classes,
    /// A drain under repairs that never stop; two minutes, so only when it is asked for.
    Drain,
    /// kill -9 of destination, source and migrator.
    Resume,
    /// Gap of bytes when the active migrator is killed.
    Takeover,
    /// One flipped bit; stale attempts.
    Corruption,
}

const PARTS: [Part; 11] = [
    Part::Overhead,
    Part::Rates,
    Part::Limits,
    Part::Ends,
    Part::Repair,
    Part::Storm,
    Part::Classes,
    Part::Drain,
    Part::Resume,
    Part::Takeover,
    Part::Corruption,
];

/// Measures copies.
#[derive(Debug, Parser)]
struct Args {
    /// Prints JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Prints the Markdown table alone.
    #[arg(long)]
    rows: bool,
    /// Only these.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Of every choice made at random: points of kills, places of flipped bits.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Size of a copy whose speed is measured, MiB.
    #[arg(long, default_value_t = 512)]
    mib: u64,
    /// Runs of each side whose medians are compared.
    #[arg(long, default_value_t = 7)]
    runs: u32,
    /// How long a rate is measured, seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Link of every broker, MB/s: low, so that the throttle is measured and not the processor.
    #[arg(long, default_value_t = 40)]
    link: u64,
    /// Size of a shard whose copy is throttled, MiB.
    #[arg(long, default_value_t = 24)]
    shard_mib: u64,
    /// Size of each shard that is repaired under requests, MiB; there are 64.
    #[arg(long, default_value_t = 6)]
    repair_mib: u64,
    /// How long requests are measured before and after the repair, seconds.
    #[arg(long, default_value_t = 20)]
    quiet: u64,
    /// The p99 that brokers hold their requests to beside copies, milliseconds: about twice what it
    /// is on a quiet machine.
    #[arg(long, default_value_t = 20.0)]
    target: f64,
    /// Kills of each kind.
    #[arg(long, default_value_t = 4)]
    kills: u32,
    /// Copies with one flipped bit each.
    #[arg(long, default_value_t = 40)]
    flips: u32,
    /// The program that the services are started from.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_evenkeel-under-test"))]
    program: String,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    fn wants(&self, part: Part) -> bool {
        let unasked = self.only.is_empty() && part != Part::Drain;
        unasked || self.only.contains(&part)
    }

    fn link_bytes(&self) -> u64 {
        self.link * 1_000_000
    }
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
        let mut json = figures.json(&machine);
        json["seed"] = args.seed.into();
        json["driver_is_optimised"] = (!cfg!(debug_assertions)).into();
        println!("{json:#}");
    } else if args.rows {
        println!("{}", figures.rows());
    } else {
        println!("seed {}\n{}", args.seed, figures.table(&machine));
    }
    if cfg!(debug_assertions) {
        eprintln!("the driver is not optimised: overhead, rates and corruption run in it");
    }
    result
}

/// One part after the other; one that fails does not keep the others from being measured.
async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for part in PARTS.into_iter().filter(|part| args.wants(*part)) {
        let name = part.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
        eprintln!("{name}");
        if let Err(error) = one(part, args, figures).await {
            eprintln!("{name}: {error:#}");
            failed.push(name);
        }
    }
    anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

async fn one(part: Part, args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    match part {
        Part::Overhead => overhead::run(args, figures).await,
        Part::Rates => rates::run(args, figures).await,
        Part::Limits => limits::run(args, figures).await,
        Part::Ends => ends::run(args, figures).await,
        Part::Repair => repair::run(args, figures).await,
        Part::Storm => storm::run(args, figures).await,
        Part::Classes => classes::run(args, figures).await,
        Part::Drain => drain::run(args, figures).await,
        Part::Resume => resume::run(args, figures).await,
        Part::Takeover => takeover::run(args, figures).await,
        Part::Corruption => {
            corruption::run(args, figures).await?;
            fencing::run(args, figures).await
        }
    }
}
