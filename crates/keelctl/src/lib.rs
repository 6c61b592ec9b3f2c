//! The command line: administration, offline planning, data, services, and the demo.
//!
//! **Invariant:** stdout carries data only; messages, progress and errors go to stderr.

pub mod admin;
mod cli;
mod commands;
mod demo;
mod document;
pub mod failure;
mod input;
mod json;
pub mod kafka;
pub mod output;
mod watch;

use std::process::ExitCode;

use clap::Parser;

pub use failure::Failure;

/// Parses the arguments, runs the command, says what went wrong.
pub fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return evenkeel_runtime::process::usage(&error, "keelctl"),
    };
    if let cli::Command::Serve(options) = cli.command {
        return commands::serve::run(options);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(format_args!("error: cannot start: {error}"));
            return ExitCode::from(3);
        }
    };
    let result = runtime.block_on(cli::dispatch(cli));
    // A read of stdin that nobody waits for any more must not keep the process.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure != Failure::OutputClosed {
                output::note(format_args!("error: {failure}"));
            }
            failure.exit_code()
        }
    }
}
