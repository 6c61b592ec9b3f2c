//! `keelctl demo`: a whole cluster, its main job and its accidents, on this machine in a minute.

mod accidents;
mod addresses;
mod cluster;
mod exposure;
mod fleet;
mod ledger;
mod lines;
mod publishing;
mod report;
mod screen;
mod services;
mod stage;
mod story;
mod verification;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::Failure;
use crate::cli::Global;
use screen::Screen;

/// What to show.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Publish the lines of this file instead of generated text.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// How much.
    #[arg(long, value_enum, default_value_t)]
    scale: Scale,
    /// Leave the cluster running at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Seed of the generated text and of every choice the demo makes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// URLs of a running etcd, separated by commas; keys under a prefix of this run are used. The
    /// default is an embedded one.
    #[arg(long, value_name = "URL,...")]
    etcd: Option<String>,
    /// Keep logs and data here instead of in a temporary directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// How much the demo does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Scale {
    /// 64 MiB, four brokers and one more.
    #[default]
    Small,
    /// 256 MiB, six brokers and one more.
    Large,
}

impl Scale {
    /// Bytes of generated text.
    fn bytes(self) -> u64 {
        match self {
            Self::Small => 64 << 20,
            Self::Large => 256 << 20,
        }
    }

    /// Brokers at the start.
    fn brokers(self) -> u32 {
        match self {
            Self::Small => 4,
            Self::Large => 6,
        }
    }

    /// Longest wait for any one thing, seconds.
    fn patience(self) -> u64 {
        match self {
            Self::Small => 150,
            Self::Large => 300,
        }
    }
}

/// Runs the demo; the cluster is gone at the end however it ends.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    let screen = Screen::new();
    let result = story::tell(global, options, &screen).await;
    screen.finish();
    result
}
