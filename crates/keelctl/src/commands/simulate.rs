//! `keelctl simulate`: what copies would do to a cluster, on paper.

use clap::Args;
use evenkeel_storm::{Scenario, draw, simulate, table};

use crate::cli::Global;
use crate::failure::input;
use crate::output::{emit_whole, note};
use crate::{Failure, input as files};

/// Which scenario.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The scenario; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    scenario: String,
    /// Writes a picture of the runs: an SVG document.
    #[arg(long, value_name = "FILE")]
    svg: Option<String>,
    /// What the noise of measured latencies is made from; the same seed gives the same bytes.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// A cluster of a tenth, a fifth and so on of the nodes, shards and bytes, which is faster.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    smaller: u32,
}

/// Runs the variants and prints them side by side.
pub(crate) fn run(global: &Global, options: &Options) -> Result<(), Failure> {
    let name = files::name(&options.scenario);
    let at = |error| input(format!("{name}:{error}"));
    let lines = files::read_lines(&options.scenario)?;
    let scenario = Scenario::parse(&lines.join("\n")).map_err(at)?;
    let scenario = scenario.smaller(options.smaller).map_err(at)?;
    let storm = simulate(&scenario, options.seed).map_err(at)?;
    if let Some(file) = &options.svg {
        std::fs::write(file, draw(&storm))
            .map_err(|e| Failure::Input(format!("cannot write {file}: {e}")))?;
        note(format!("wrote {file}"));
    }
    emit_whole(global.output, &storm, || table(&storm))
}
