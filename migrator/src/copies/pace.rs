//! How fast a copy is, and how long the rest will take.

use std::time::Duration;

/// Weight of the newest sample in the rate that is shown.
const SMOOTHING: f64 = 0.3;

/// Weight of the newest sample in the rate of about the last ten seconds.
const SLOW_SMOOTHING: f64 = 0.05;

/// Samples closer together than this are one.
const APART: Duration = Duration::from_millis(200);

/// Slower than this is no rate to reckon with, bytes per second.
const LEAST_RATE: f64 = 1024.0;

/// Nothing is expected to take longer than this, seconds: a year.
const LONGEST: u64 = 31_536_000;

/// From least to most, seconds.
pub type Span = (u64, u64);

/// Two smoothed rates of the same bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pace {
    fast: f64,
    slow: f64,
    measured: Option<(Duration, u64)>,
}

impl Pace {
    /// So many bytes were done by now.
    pub fn measure(&mut self, now: Duration, done: u64) {
        let Some((at, before)) = self.measured else {
            self.measured = Some((now, done));
            return;
        };
        let span = now.saturating_sub(at);
        if span < APART {
            return;
        }
        let sample = done.saturating_sub(before) as f64 / span.as_secs_f64();
        if self.slow == 0.0 {
            self.slow = sample;
        }
        self.fast += SMOOTHING * (sample - self.fast);
        self.slow += SLOW_SMOOTHING * (sample - self.slow);
        self.measured = Some((now, done));
    }

    /// Two at once.
    pub fn add(&mut self, other: &Self) {
        self.fast += other.fast;
        self.slow += other.slow;
    }

    /// Bytes per second.
    pub fn rate(&self) -> f64 {
        self.fast
    }

    /// How long so many bytes take at the faster and at the slower of the two rates; none while it
    /// does not move.
    pub fn expected(&self, bytes: u64) -> Option<Span> {
        let (low, high) = (self.fast.min(self.slow), self.fast.max(self.slow));
        if bytes == 0 {
            return Some((0, 0));
        }
        (low >= LEAST_RATE).then(|| (seconds(bytes, high), seconds(bytes, low)))
    }
}

fn seconds(bytes: u64, rate: f64) -> u64 {
    // Whole seconds, and never none while something is left.
    ((bytes as f64 / rate).ceil() as u64).clamp(1, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_between_the_slower_and_the_faster_rate_and_is_not_told_at_a_standstill() {
        let mut pace = Pace::default();
        assert_eq!(pace.expected(1), None);
        let mut done = 0;
        for second in 0..60 {
            done += 1_000_000;
            pace.measure(Duration::from_secs(second), done);
        }
        assert_eq!(pace.expected(10_000_000), Some((10, 11)));
        for second in 60..63 {
            done += 4_000_000;
            pace.measure(Duration::from_secs(second), done);
        }
        let (least, most) = pace.expected(100_000_000).unwrap();
        assert!(least < 40 && most > 60, "{least} to {most}");
        for second in 63..200 {
            pace.measure(Duration::from_secs(second), done);
        }
        assert_eq!(pace.expected(100_000_000), None);
        assert_eq!(pace.expected(0), Some((0, 0)));
    }
}
