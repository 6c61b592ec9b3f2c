//! The migrator as a program of its own.

use std::process::ExitCode;

use evenkeel_migrator::config::{Args, Config};

fn main() -> ExitCode {
    evenkeel_runtime::process::main::<Config, Args, _, _>(
        "Copies shards between brokers, in order of urgency and within what requests leave",
        evenkeel_migrator::run,
    )
}
