//! `keelctl serve`: one of the services in this process.

use std::io::Read;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use evenkeel_runtime::telemetry::{self, LogFormat};
use evenkeel_runtime::{Environment, EtcdOption, MetricsHandle, ServiceArgs, etcd, process};

use crate::output::note;

/// Which service, and whose child it is.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// End at once when stdin is closed, as it is when the parent dies.
    #[arg(long, hide = true)]
    with_parent: bool,
    #[command(subcommand)]
    service: Service,
}

/// The services.
#[derive(Debug, Subcommand)]
pub(crate) enum Service {
    /// The elected planner and its administration.
    LoadManager(Box<ServiceArgs<evenkeel_load_manager::config::Args>>),
    /// A broker.
    BrokerAgent(Box<ServiceArgs<evenkeel_broker_agent::config::Args>>),
    /// The elected copier.
    Migrator(Box<ServiceArgs<evenkeel_migrator::config::Args>>),
    /// The embedded etcd: for trying things out and tests, neither durable nor replicated.
    Etcd(EtcdArgs),
}

/// Where the embedded etcd listens.
#[derive(Debug, Args)]
pub(crate) struct EtcdArgs {
    /// host:port; port 0 takes any free one.
    #[arg(long, default_value = etcd::EMBEDDED_LISTEN, value_name = "ADDR")]
    listen: String,
    /// How log lines look.
    #[arg(long, value_name = "text|json", env = "EVENKEEL_LOG_FORMAT", default_value_t)]
    log_format: LogFormat,
}

/// Runs the service to its end. It makes its own runtime.
pub(crate) fn run(options: Options) -> ExitCode {
    if options.with_parent {
        std::thread::spawn(end_with_parent);
    }
    match options.service {
        Service::LoadManager(args) => process::start(*args, evenkeel_load_manager::run),
        Service::BrokerAgent(args) => process::start(*args, evenkeel_broker_agent::run),
        Service::Migrator(args) => process::start(*args, evenkeel_migrator::run),
        Service::Etcd(args) => serve_etcd(&args),
    }
}

/// The parent holds the other end of stdin and never writes: the end of it is the parent's.
fn end_with_parent() {
    let mut byte = [0];
    while matches!(std::io::stdin().lock().read(&mut byte), Ok(read) if read > 0) {}
    std::process::exit(1);
}

fn serve_etcd(args: &EtcdArgs) -> ExitCode {
    let failed = |error: String| {
        note(format_args!("error: {error}"));
        ExitCode::from(1)
    };
    if let Err(error) = telemetry::init(args.log_format, None) {
        return failed(error);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(format!("cannot start the runtime: {error}")),
    };
    let result = runtime.block_on(async {
        let env = Environment::production(MetricsHandle::none()).map_err(|e| e.to_string())?;
        let option = EtcdOption::Embedded(args.listen.clone());
        let (store, guard) = etcd::open(&option, &env).await.map_err(|e| e.to_string())?;
        drop(store);
        tracing::info!(urls = ?guard.urls(), "embedded etcd serves");
        env.shutdown.requested().await;
        guard.stop().await;
        Ok::<(), String>(())
    });
    runtime.shutdown_background();
    result.map_or_else(failed, |()| ExitCode::SUCCESS)
}
