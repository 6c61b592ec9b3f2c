//! The load manager as a program of its own.

use std::process::ExitCode;

use evenkeel_load_manager::config::{Args, Config};

fn main() -> ExitCode {
    evenkeel_runtime::process::main::<Config, Args, _, _>(
        "Decides which broker leads and follows every shard, and writes it down",
        evenkeel_load_manager::run,
    )
}
