//! What the user sees while the demo runs: on stderr, with bars on a terminal and plain lines
//! elsewhere.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use crate::output::{bytes, note};

/// A plain screen is told what a step waits for at most so often.
const PLAIN_INTERVAL: Duration = Duration::from_secs(1);

/// The screen.
pub(crate) struct Screen {
    began: Instant,
    bars: MultiProgress,
    terminal: bool,
    publishing: ProgressBar,
    current: ProgressBar,
    /// The last state told on a plain screen and when, so that it is told once and not too often.
    told: Mutex<(String, Option<Instant>)>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target =
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bars = MultiProgress::with_draw_target(target);
        let current = bars.add(ProgressBar::new_spinner());
        let publishing = bars.add(ProgressBar::new(0));
        if let Ok(style) = ProgressStyle::with_template("  {spinner} {msg} [{elapsed}]") {
            current.set_style(style);
        }
        let style = "  published {bytes}/{total_bytes} [{bar:30}] {bytes_per_sec}  {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            publishing.set_style(style.progress_chars("=> "));
        }
        let told = Mutex::default();
        Self { began: Instant::now(), bars, terminal, publishing, current, told }
    }

    /// A line that stays.
    pub(crate) fn say(&self, text: impl AsRef<str>) {
        if self.terminal {
            // A terminal that went away has no reader to tell.
            let _ = self.bars.println(text.as_ref());
        } else {
            note(text.as_ref());
        }
    }

    /// A new step of the story.
    pub(crate) fn step(&self, title: &str) {
        self.say(format!("[{:5.1} s] {title}", self.began.elapsed().as_secs_f64()));
        self.current.reset();
        self.current.enable_steady_tick(Duration::from_millis(120));
        self.wait_for("");
    }

    /// What the step waits for now; on a plain screen only when it changes.
    pub(crate) fn wait_for(&self, state: &str) {
        self.current.set_message(state.to_owned());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let early = told.1.is_some_and(|at| at.elapsed() < PLAIN_INTERVAL);
        if self.terminal || state.is_empty() || told.0 == state || early {
            return;
        }
        note(format_args!("          {state}"));
        *told = (state.to_owned(), Some(Instant::now()));
    }

    /// The bar of what is published, out of `total` bytes.
    pub(crate) fn publishing(&self, total: u64) -> ProgressBar {
        self.publishing.set_length(total);
        self.publishing.clone()
    }

    /// A bar for something that takes long, such as reading everything back.
    pub(crate) fn bar(&self, what: &str, total: u64) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::new(total));
        let style = format!("  {what} {{pos}}/{{len}} [{{bar:30}}] {{elapsed}}");
        if let Ok(style) = ProgressStyle::with_template(&style) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar
    }

    /// Publishing is over.
    pub(crate) fn publishing_done(&self, done: u64, records: u64) {
        self.publishing.finish_and_clear();
        self.say(format!("          published {} in {records} records", bytes(done as f64)));
    }

    /// Takes the bars away.
    pub(crate) fn finish(&self) {
        self.current.finish_and_clear();
        self.publishing.finish_and_clear();
    }
}
