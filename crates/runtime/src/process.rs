//! From the command line to an exit status: what every `main` does.
//!
//! Exit status: 0 ended as asked; 1 failed (also a port in use); 2 bad usage or configuration;
//! 3 etcd cannot be reached. Every failure is one line on stderr.

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use serde::Serialize;

use crate::config::{self, ConfigError, Settings, Sources};
use crate::etcd::OpenError;
use crate::telemetry::{self, LogFormat};
use crate::{Environment, metrics};

/// How long tasks may go on after the service returned.
const LINGER: Duration = Duration::from_secs(1);

/// Flags of every service, beside its own.
#[derive(Debug, Clone, clap::Args)]
pub struct ServiceArgs<A: clap::Args> {
    /// YAML file with configuration keys.
    #[arg(long, value_name = "FILE", env = "EVENKEEL_CONFIG", global = false)]
    pub config: Option<PathBuf>,
    /// Set any configuration key; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Check the configuration, say what is wrong and end.
    #[arg(long)]
    pub check_config: bool,
    /// Print the effective configuration and where each value came from, and end.
    #[arg(long)]
    pub print_config: bool,
    /// Print every configuration key with its default and meaning, and end.
    #[arg(long)]
    pub print_config_table: bool,
    /// How log lines look.
    #[arg(long, value_name = "text|json", env = "EVENKEEL_LOG_FORMAT", default_value_t)]
    pub log_format: LogFormat,
    /// The service's own flags.
    #[command(flatten)]
    pub service: A,
}

#[derive(Debug, clap::Parser)]
#[command(version)]
struct Cli<A: clap::Args> {
    #[command(flatten)]
    args: ServiceArgs<A>,
}

/// Parses the process's command line and runs the service. `A` are the service's flags: fields
/// named like the configuration keys that they set, `None` when not given.
pub fn main<C, A, F, Fut>(about: &'static str, run: F) -> ExitCode
where
    C: Settings,
    A: clap::Args + Serialize,
    F: FnOnce(C, Environment) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let command = Cli::<A>::command().name(C::SERVICE).bin_name(C::SERVICE).about(about);
    let parsed = command
        .try_get_matches()
        .and_then(|mut matches| Cli::<A>::from_arg_matches_mut(&mut matches));
    match parsed {
        Ok(cli) => start(cli.args, run),
        Err(error) => usage(&error, C::SERVICE),
    }
}

/// Prints help, a version or one line of what is wrong with the command line.
pub fn usage(error: &clap::Error, program: &str) -> ExitCode {
    if !error.use_stderr() {
        // Help goes to stdout; a closed pipe there is nobody's fault.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let said = text.split("\n\nUsage:").next().unwrap_or(&text);
    let said = said.split("\n\nFor more information").next().unwrap_or(said);
    eprintln!("{} (see {program} --help)", config::one_line(&said.replace("\n\n", "; ")));
    ExitCode::from(2)
}

/// Loads the configuration, starts the runtime and runs the service to its end.
pub fn start<C, A, F, Fut>(args: ServiceArgs<A>, run: F) -> ExitCode
where
    C: Settings,
    A: clap::Args + Serialize,
    F: FnOnce(C, Environment) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    if args.print_config_table {
        print!("{}", config::table::<C>());
        return ExitCode::SUCCESS;
    }
    let loaded = match load::<C, A>(&args) {
        Ok(loaded) => loaded,
        Err(error) => return failure(2, &error.to_string()),
    };
    if args.print_config {
        print!("{}", loaded.print());
        return ExitCode::SUCCESS;
    }
    if args.check_config {
        println!("configuration of {} is valid", C::SERVICE);
        return ExitCode::SUCCESS;
    }
    if let Err(error) = telemetry::init(args.log_format, log_filter().as_deref()) {
        return failure(2, &error);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failure(1, &format!("cannot start the runtime: {error}")),
    };
    let result = runtime.block_on(async {
        let metrics = metrics::install(C::SERVICE)?;
        let environment = Environment::production(metrics)?;
        run(loaded.config, environment).await
    });
    runtime.shutdown_timeout(LINGER);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(status_of(&error), &format!("{error:#}")),
    }
}

/// The configuration that these arguments, the environment and the file make together.
pub fn load<C, A>(args: &ServiceArgs<A>) -> Result<config::Loaded<C>, ConfigError>
where
    C: Settings,
    A: clap::Args + Serialize,
{
    let flags = serde_json::to_value(&args.service)
        .map_err(|e| ConfigError(format!("flags cannot be written down: {e}")))?;
    config::load(&Sources {
        file: args.config.clone(),
        environment: config::process_environment(),
        set: args.set.clone(),
        flags,
    })
}

#[expect(clippy::disallowed_methods, reason = "the runtime reads the environment for everyone")]
fn log_filter() -> Option<String> {
    std::env::var("EVENKEEL_LOG").ok().filter(|filter| !filter.is_empty())
}

fn failure(status: u8, text: &str) -> ExitCode {
    eprintln!("error: {}", config::one_line(text));
    ExitCode::from(status)
}

fn status_of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(open) = cause.downcast_ref::<OpenError>() {
            return if open.is_unreachable() { 3 } else { 1 };
        }
        if cause.is::<ConfigError>() {
            return 2;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_tells_bad_configuration_from_a_failure() {
        let refused = anyhow::Error::new(ConfigError("x".to_owned())).context("cannot start");
        assert_eq!(status_of(&refused), 2);
        assert_eq!(status_of(&anyhow::anyhow!("broken")), 1);
    }
}
