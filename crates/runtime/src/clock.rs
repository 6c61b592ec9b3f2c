//! The wall clock, replaceable by virtual time.

use tokio::time::Instant;

/// Tells the time of day. Durations and deadlines use `tokio::time::Instant` instead.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    Simulated { base_ms: i64, started: Instant },
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// Starts at `base_ms` and advances with tokio's (paused) time. Call it inside the runtime.
    pub fn simulated(base_ms: i64) -> Self {
        Self(Source::Simulated { base_ms, started: Instant::now() })
    }

    /// Milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> i64 {
        match &self.0 {
            Source::System => system_now_ms(),
            Source::Simulated { base_ms, started } => {
                base_ms.saturating_add(millis(started.elapsed()))
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
fn system_now_ms() -> i64 {
    match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => -millis(before.duration()),
    }
}

fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn simulated_time_advances_with_the_paused_clock_only() {
        let clock = Clock::simulated(1_700_000_000_000);
        assert_eq!(clock.now_ms(), 1_700_000_000_000);
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(clock.clone().now_ms(), 1_700_000_001_500);
    }
}
