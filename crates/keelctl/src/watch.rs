//! An answer on the screen, once or again and again.

use std::future::Future;
use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::Failure;
use crate::cli::Global;
use crate::output::{Format, emit, note, print_text};

/// Once, or again and again.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Ask again every so many seconds, until Ctrl-C.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    watch: Option<u64>,
}

impl Watch {
    /// Asks and prints. A watch clears the screen of a terminal, and writes one JSON document a line.
    pub(crate) async fn run<F, Fut>(
        &self,
        global: &Global,
        ask: F,
        screen: fn(&Value) -> String,
    ) -> Result<(), Failure>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<Value, Failure>>,
    {
        // One for all rounds: what comes while the next answer is on its way is not lost.
        let mut ended = std::pin::pin!(tokio::signal::ctrl_c());
        let mut answered = false;
        loop {
            let document = match (ask().await, self.watch) {
                // Who answered once is waited for; Ctrl-C ends that too.
                (Err(Failure::Unreachable(why)), Some(seconds)) if answered => {
                    note(format!("{why}; asking again"));
                    tokio::select! {
                        biased;
                        _ = &mut ended => return Ok(()),
                        () = tokio::time::sleep(Duration::from_secs(seconds)) => continue,
                    }
                }
                (document, _) => document?,
            };
            answered = true;
            let Some(seconds) = self.watch else {
                return emit(global.output, &document, screen);
            };
            match global.output {
                Format::Json => print_text(&document.to_string())?,
                form => {
                    if std::io::stdout().is_terminal() {
                        print_text("\x1b[2J\x1b[H")?;
                    }
                    emit(form, &document, screen)?;
                }
            }
            tokio::select! {
                biased;
                _ = &mut ended => return Ok(()),
                () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
            }
        }
    }
}
