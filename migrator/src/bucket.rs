//! A token bucket in virtual time: it knows only when it is free again, so it never drifts.

use std::time::Duration;

/// Time that an idle bucket saves up, at most. It bounds the burst after a pause.
pub const BURST: Duration = Duration::from_millis(50);

/// One direction of one node's link, as far as copies may use it. Times count from any fixed start
/// and never fall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    bytes_per_second: u64,
    free_at: Duration,
}

impl Bucket {
    /// Free from the start, with nothing saved.
    pub fn new(bytes_per_second: u64, now: Duration) -> Self {
        Self { bytes_per_second, free_at: now }
    }

    /// Bytes per second.
    pub fn rate(&self) -> u64 {
        self.bytes_per_second
    }

    /// What its rate carries in a time.
    pub fn in_time(&self, span: Duration) -> u64 {
        let bytes = span.as_nanos() * u128::from(self.bytes_per_second) / NANOS;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Holds for the next taking.
    pub fn set_rate(&mut self, bytes_per_second: u64) {
        self.bytes_per_second = bytes_per_second;
    }

    /// Bytes that may be taken now: what was saved and what comes in within `ahead`.
    pub fn available(&self, now: Duration, ahead: Duration) -> u64 {
        self.in_time((now + ahead).saturating_sub(self.start(now)))
    }

    /// Takes bytes; the bucket is busy for as long as they take at its rate.
    pub fn take(&mut self, now: Duration, bytes: u64) {
        let rate = u128::from(self.bytes_per_second.max(1));
        let nanos = (u128::from(bytes) * NANOS).div_ceil(rate);
        let busy = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at = self.start(now).saturating_add(busy);
    }

    fn start(&self, now: Duration) -> Duration {
        self.free_at.max(now.saturating_sub(BURST))
    }
}

const NANOS: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROUND: Duration = Duration::from_millis(250);

    #[test]
    fn a_busy_bucket_gives_its_rate_and_an_idle_one_saves_the_burst_only() {
        let mut bucket = Bucket::new(1_000_000, Duration::ZERO);
        let mut given = Vec::new();
        for round in 0..3 {
            let now = ROUND * round;
            let bytes = bucket.available(now, ROUND);
            bucket.take(now, bytes);
            given.push(bytes);
        }
        assert_eq!(given, [250_000; 3]);
        assert_eq!(bucket.available(ROUND * 2, ROUND), 0);
        assert_eq!(bucket.available(Duration::from_secs(60), ROUND), 300_000);
        bucket.set_rate(2_000_000);
        assert_eq!(bucket.available(Duration::from_secs(60), ROUND), 600_000);
        bucket.set_rate(0);
        assert_eq!(bucket.available(Duration::from_secs(60), ROUND), 0);
    }

    proptest! {
        #[test]
        fn over_any_span_no_more_than_the_rate_and_the_burst_is_given(
            rate in 1u64..10_000_000_000,
            steps in prop::collection::vec((0u64..2_000, 0u64..=100), 1..100),
        ) {
            let mut bucket = Bucket::new(rate, Duration::ZERO);
            let (mut now, mut given) = (Duration::ZERO, 0u128);
            for (wait_ms, percent) in steps {
                now += Duration::from_millis(wait_ms);
                let bytes = bucket.available(now, ROUND) / 100 * percent;
                bucket.take(now, bytes);
                given += u128::from(bytes);
                let bound = (now + ROUND + BURST).as_nanos() * u128::from(rate) / NANOS;
                prop_assert!(given <= bound, "{given} of {bound}");
            }
        }
    }
}
