//! The broker-agent program.

use std::process::ExitCode;

use evenkeel_broker_agent::config::{Args, Config};
use evenkeel_runtime::process;

fn main() -> ExitCode {
    let about = "Registers a broker, hosts its shards and serves their clients";
    process::main::<Config, Args, _, _>(about, evenkeel_broker_agent::run)
}
