//! `keelctl import`: other systems' descriptions as snapshots.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use evenkeel_model::{Millis, Snapshot};
use evenkeel_runtime::Clock;

use crate::cli::Global;
use crate::failure::input;
use crate::kafka::traffic::Traffic;
use crate::kafka::{Fault, describe, racks, reassignment};
use crate::output::{Format, emit_large, note};
use crate::{Failure, input as files};

/// What to import.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// The text of 'kafka-topics --describe', a reassignment file, or both.
    Kafka(Kafka),
}

/// Where Kafka's descriptions are.
#[derive(Debug, Args)]
pub(crate) struct Kafka {
    /// What 'kafka-topics --describe' printed, all of it; `-` is stdin.
    #[arg(value_name = "FILE", required_unless_present = "reassignment")]
    describe: Option<String>,
    /// A reassignment as 'kafka-reassign-partitions' takes it: laid over FILE as it will be when it
    /// is done, or read alone.
    #[arg(long, value_name = "FILE")]
    reassignment: Option<String>,
    /// Lines of BROKER RACK; brokers that hold nothing are known from here.
    #[arg(long, value_name = "FILE")]
    racks: Option<String>,
    /// What 'kafka-log-dirs --describe' printed: the sizes of partitions, and brokers that hold
    /// nothing.
    #[arg(long, value_name = "FILE")]
    log_dirs: Option<String>,
    /// Lines of TOPIC PARTITION BYTES_PER_SECOND, for plans by load.
    #[arg(long, value_name = "FILE")]
    rates: Option<String>,
    /// The time of the snapshot, milliseconds since 1970; now if not given.
    #[arg(long, value_name = "MS")]
    as_of_ms: Option<Millis>,
}

/// Reads and prints. A snapshot is a document, so the form for people is JSON too.
pub(crate) fn run(global: &Global, verb: Verb) -> Result<(), Failure> {
    let Verb::Kafka(options) = verb;
    let snapshot = kafka(&options)?;
    let format = if global.output == Format::Table { Format::Json } else { global.output };
    emit_large(format, &snapshot, String::new)
}

fn kafka(options: &Kafka) -> Result<Snapshot, Failure> {
    let named = [
        &options.describe,
        &options.reassignment,
        &options.racks,
        &options.log_dirs,
        &options.rates,
    ];
    if named.iter().filter(|file| file.as_deref() == Some("-")).count() > 1 {
        return Err(Failure::Input("only one of the files can be stdin".to_owned()));
    }
    let mut description = match &options.describe {
        Some(file) => lines(file, describe::parse)?,
        None => describe::Description::default(),
    };
    if options.describe.is_some() && description.topics.is_empty() {
        let file = files::name(options.describe.as_deref().unwrap_or_default());
        return Err(Failure::Input(format!(
            "{file}: nothing is described: expected what kafka-topics --describe prints"
        )));
    }
    if let Some(file) = &options.reassignment {
        let named = |e: String| input(format!("{}: {e}", files::name(file)));
        let target = reassignment::parse(&files::read(file)?).map_err(named)?;
        description.reassign(&target).map_err(named)?;
    }
    let racks = match &options.racks {
        Some(file) => lines(file, racks::parse)?,
        None => BTreeMap::new(),
    };
    let mut traffic = Traffic::default();
    if let Some(file) = &options.log_dirs {
        lines(file, |text| traffic.add_log_dirs(text))?;
    }
    if let Some(file) = &options.rates {
        lines(file, |text| traffic.add_rates(text))?;
    }
    let as_of_ms = options.as_of_ms.unwrap_or_else(|| Clock::system().now_ms());
    let (snapshot, notes) = description.snapshot(as_of_ms, &racks, &traffic).map_err(input)?;
    for line in notes {
        note(format_args!("note: {line}"));
    }
    Ok(snapshot)
}

/// Reads a file of lines. Every line at fault is said, the last one as the failure.
fn lines<T>(file: &str, parse: impl FnOnce(&str) -> Result<T, Vec<Fault>>) -> Result<T, Failure> {
    let text = String::from_utf8(files::read(file)?).map_err(|e| {
        let good = e.utf8_error().valid_up_to();
        let line = 1 + e.as_bytes()[..good].iter().filter(|b| **b == b'\n').count();
        Failure::Input(format!("{}:{line}: not UTF-8 text", files::name(file)))
    })?;
    parse(&text).map_err(|mut faults| {
        let failure = |fault: &Fault| Failure::Input(format!("{}:{fault}", files::name(file)));
        let last = faults.pop();
        for fault in &faults {
            note(format_args!("error: {}", failure(fault)));
        }
        last.as_ref().map_or_else(|| input(files::name(file)), failure)
    })
}
