//! What a destination says of its copy.

use std::time::Duration;

use evenkeel_proto::migrations::CopyProgress;

use super::{Copy, State};

impl Copy {
    /// Takes the agent's word. Answers how many more bytes it has verified.
    pub fn progressed(&mut self, now: Duration, progress: &CopyProgress) -> u64 {
        let remaining = (!progress.size_unknown).then_some(progress.bytes_remaining);
        let more = self.count(progress, remaining);
        self.remaining = remaining.or(self.remaining);
        self.heard = Some(now);
        self.pace.measure(now, self.done);
        self.backed_up = progress.state == "running" && progress.credit_left > self.last_grant;
        if more > 0 {
            self.failures = 0;
            self.failed = None;
            self.failures_of.clear();
            self.got_on = now;
            self.last_byte = now;
            self.waiting_since = now;
        }
        if more > 0 || remaining == Some(0) {
            self.idle_since = None;
        }
        match progress.state.as_str() {
            "level" => {
                self.state = State::Level;
                self.level_since.get_or_insert(now);
                self.limited_by = "the leader's own stream ships the rest".to_owned();
            }
            // An agent tells the end of a try twice.
            "failed" if self.state != State::Failed => self.failed(now, &progress.detail),
            "failed" => {}
            // What only repeats itself may be the last word of a try that was stopped.
            _ if self.state == State::Level || self.state == State::Failed && more > 0 => {
                self.state = State::Queued;
                self.level_since = None;
            }
            _ => {}
        }
        more
    }

    /// Counts what was verified over all tries. Answers how many bytes are new.
    fn count(&mut self, progress: &CopyProgress, remaining: Option<u64>) -> u64 {
        let inherited = self.heard.is_none() && self.inherited;
        if let (true, Some(size), Some(left)) = (inherited, self.job.size_bytes, remaining) {
            // Earlier tries brought what is neither counted in this one nor still to come.
            self.counted_before = size.saturating_sub(left.saturating_add(progress.bytes_verified));
        }
        if inherited {
            // Whoever led before has counted these.
            self.counted = progress.bytes_verified;
        }
        if progress.bytes_verified < self.counted {
            // It counts from the start of its present try; what came before is kept.
            self.counted_before = self.counted_before.saturating_add(self.counted);
            self.counted = 0;
        }
        let more = progress.bytes_verified - self.counted;
        self.counted = progress.bytes_verified;
        self.done = self.counted_before.saturating_add(self.counted);
        // What was written without its word is made good at once.
        self.write_now |= inherited;
        more
    }
}
