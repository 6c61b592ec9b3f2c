//! The latency of this broker's own requests, over windows that the copy controller reads.

use std::sync::Mutex;
use std::time::Duration;

/// Sub-buckets of each power of two: an error of at most 1/16.
const STEPS: u64 = 16;
const BUCKETS: usize = 640;

/// Requests of one window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// 99 of 100 were no slower; unknown without requests.
    pub p99_ms: Option<f64>,
    /// How many there were.
    pub requests: u64,
}

/// Collects request durations.
#[derive(Debug)]
pub struct Latency(Mutex<Box<[u32; BUCKETS]>>);

impl Default for Latency {
    fn default() -> Self {
        Self(Mutex::new(Box::new([0; BUCKETS])))
    }
}

impl Latency {
    /// One request took so long.
    pub fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let mut buckets = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let bucket = &mut buckets[bucket_of(micros)];
        *bucket = bucket.saturating_add(1);
    }

    /// Ends the window and starts the next.
    pub fn take(&self) -> Window {
        let buckets = {
            let mut current = self.0.lock().unwrap_or_else(|e| e.into_inner());
            std::mem::replace(&mut *current, Box::new([0; BUCKETS]))
        };
        let requests: u64 = buckets.iter().map(|n| u64::from(*n)).sum();
        let rank = requests - requests / 100;
        let mut seen = 0;
        let slowest = buckets.iter().position(|n| {
            seen += u64::from(*n);
            requests > 0 && seen >= rank
        });
        let p99_ms = slowest.map(|bucket| upper_micros(bucket) as f64 / 1000.0);
        Window { p99_ms, requests }
    }
}

fn bucket_of(micros: u64) -> usize {
    if micros < STEPS {
        return micros as usize;
    }
    let power = 63 - micros.leading_zeros() as u64;
    let step = (micros >> (power - 4)) - STEPS;
    (((power - 3) * STEPS + step) as usize).min(BUCKETS - 1)
}

fn upper_micros(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let (power, step) = (bucket / STEPS + 3, bucket % STEPS);
    ((STEPS + step + 1) << (power - 4)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say_within_a_sixteenth() {
        for micros in (0..200).chain([1_000, 65_535, 65_536, 1_000_000, 3_600_000_000]) {
            let upper = upper_micros(bucket_of(micros));
            assert!(upper >= micros, "{micros} in a bucket up to {upper}");
            assert!(upper <= micros + micros / 16 + 1, "{micros} in a bucket up to {upper}");
        }
    }

    #[test]
    fn a_window_ends_when_it_is_taken() {
        let latency = Latency::default();
        assert_eq!(latency.take(), Window { p99_ms: None, requests: 0 });
        for _ in 0..99 {
            latency.record(Duration::from_micros(10));
        }
        latency.record(Duration::from_millis(40));
        let window = latency.take();
        assert_eq!((window.requests, window.p99_ms), (100, Some(0.01)));
        for _ in 0..10 {
            latency.record(Duration::from_millis(2));
        }
        latency.record(Duration::from_secs(7200));
        let window = latency.take();
        assert_eq!(window.requests, 11);
        assert!(window.p99_ms.unwrap() > 1_000_000.0);
        assert_eq!(latency.take().requests, 0);
    }
}
