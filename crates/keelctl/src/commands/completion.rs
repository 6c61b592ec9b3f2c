//! `keelctl completion`: completions for shells.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Failure;
use crate::cli::Cli;
use crate::output::print_text;

/// Which shell.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The shell that shall complete.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "keelctl", &mut script);
    print_text(&String::from_utf8_lossy(&script))
}
