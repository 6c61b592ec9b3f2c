//! The command tree.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::admin::Admin;
use crate::commands::*;
use crate::demo;
use crate::output::{Format, NOT_A_PLAN};
use crate::{Failure, commands};

/// Looks at, drives and tries out an Evenkeel cluster.
///
/// Exit codes: 0 it answered; 1 the answer is no; 2 bad usage or input; 3 the cluster could not be
/// reached.
#[derive(Debug, Parser)]
#[command(name = "keelctl", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Form of the output on stdout.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Load managers, host:port; any of them will do.
    #[arg(
        long,
        global = true,
        env = "EVENKEEL_ADMIN",
        value_delimiter = ',',
        default_value = "127.0.0.1:7100",
        value_name = "ADDR,..."
    )]
    pub(crate) admin: Vec<String>,
    /// Brokers for reading and writing data, host:port; asked of a load manager if not given.
    #[arg(
        long,
        global = true,
        env = "EVENKEEL_BROKERS",
        value_delimiter = ',',
        value_name = "ADDR,..."
    )]
    pub(crate) brokers: Vec<String>,
    /// Look for the elected load manager this long, seconds.
    #[arg(long, global = true, default_value_t = 10, value_name = "SECONDS")]
    pub(crate) timeout: u64,
}

impl Global {
    /// The load managers.
    pub(crate) fn admin(&self) -> Result<Admin, Failure> {
        Admin::new(&self.admin, Duration::from_secs(self.timeout))
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The cluster on one screen.
    Status(status::Options),
    /// Brokers: list, show, remove.
    #[command(subcommand)]
    Brokers(brokers::Verb),
    /// Move everything off a broker.
    Drain(drain::Options),
    /// Put a broker back into placement; cancels a drain.
    Activate(activate::Options),
    /// Streams and caches: create, list, show.
    #[command(subcommand)]
    Streams(streams::Verb),
    /// Shards: list, show.
    #[command(subcommand)]
    Shards(shards::Verb),
    /// Moves in flight: list, start, cancel.
    #[command(subcommand)]
    Moves(moves::Verb),
    /// What the planner would do, live or on a snapshot file.
    Plan(plan::Options),
    /// How even the cluster is, live or on a snapshot file.
    Balance(balance::Options),
    /// Brokers by load, live or on a snapshot file.
    Rank(rank::Options),
    /// Why a shard is where it is, live or on a snapshot file.
    Explain(explain::Options),
    /// Computed owners of keys over a list of members.
    Owners(owners::Options),
    /// The copy throttle over a series of latencies.
    Throttle(throttle::Options),
    /// What copies would do to a cluster, on paper: scenarios of losses and overload.
    Simulate(simulate::Options),
    /// The planner's input, from the live cluster.
    Snapshot,
    /// What a change of the cluster would do, on paper.
    Whatif(whatif::Options),
    /// Other systems' descriptions as snapshots: kafka.
    #[command(subcommand)]
    Import(import::Verb),
    /// Hold balance moves and new copies.
    Pause(pause::PauseOptions),
    /// End a pause.
    Resume(pause::ResumeOptions),
    /// Placement policy: get, set.
    #[command(subcommand)]
    Policy(policy::Verb),
    /// Copies that the migrator runs, and what limits them.
    #[command(subcommand)]
    Migrations(migrations::Verb),
    /// Publish lines of files or of stdin.
    Publish(publish::Options),
    /// Read records to stdout.
    Subscribe(subscribe::Options),
    /// Run one of the services in this process.
    Serve(serve::Options),
    /// A whole cluster, its main job and its accidents, on this machine in a minute.
    Demo(demo::Options),
    /// Shell completions.
    Completion(completion::Options),
}

/// Runs the command.
pub(crate) async fn dispatch(cli: Cli) -> Result<(), Failure> {
    let global = &cli.global;
    if global.output == Format::KafkaReassignment && !matches!(cli.command, Command::Plan(_)) {
        return Err(Failure::Input(NOT_A_PLAN.to_owned()));
    }
    match cli.command {
        Command::Status(options) => status::run(global, options).await,
        Command::Brokers(verb) => brokers::run(global, verb).await,
        Command::Drain(options) => drain::run(global, options).await,
        Command::Activate(options) => activate::run(global, options).await,
        Command::Streams(verb) => streams::run(global, verb).await,
        Command::Shards(verb) => shards::run(global, verb).await,
        Command::Moves(verb) => moves::run(global, verb).await,
        Command::Plan(options) => plan::run(global, options).await,
        Command::Balance(options) => balance::run(global, options).await,
        Command::Rank(options) => rank::run(global, options).await,
        Command::Explain(options) => explain::run(global, options).await,
        Command::Owners(options) => owners::run(global, &options),
        Command::Throttle(options) => throttle::run(global, &options),
        Command::Simulate(options) => simulate::run(global, &options),
        Command::Snapshot => snapshot::run(global).await,
        Command::Whatif(options) => whatif::run(global, options).await,
        Command::Import(verb) => import::run(global, verb),
        Command::Pause(options) => pause::pause(global, options).await,
        Command::Resume(options) => pause::resume(global, options).await,
        Command::Policy(verb) => commands::policy::run(global, verb).await,
        Command::Migrations(verb) => migrations::run(global, verb).await,
        Command::Publish(options) => publish::run(global, options).await,
        Command::Subscribe(options) => subscribe::run(global, options).await,
        // Services make their own runtime, before this one is started.
        Command::Serve(_) => Ok(()),
        Command::Demo(options) => demo::run(global, options).await,
        Command::Completion(options) => completion::run(&options),
    }
}
