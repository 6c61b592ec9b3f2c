//! A token bucket in virtual time: each taking moves the next free instant on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Time that an idle bucket saves up.
const BURST: Duration = Duration::from_millis(50);

/// A waiter looks again this often, because the rate may have changed.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct State {
    bytes_per_second: u64,
    free_at: Instant,
    taken: u64,
}

impl State {
    /// The bytes fit from `now` on, or when to look again.
    fn take(&mut self, now: Instant, bytes: u64) -> Result<(), Instant> {
        if self.free_at > now {
            return Err(self.free_at.min(now + LOOK_AGAIN));
        }
        let saved = now.checked_sub(BURST).unwrap_or(now);
        let start = self.free_at.max(saved);
        let rate = self.bytes_per_second.max(1);
        self.free_at = start + Duration::from_secs_f64(bytes as f64 / rate as f64);
        self.taken += bytes;
        Ok(())
    }
}

/// One direction of one broker's link, as far as copies may use it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Bucket(Arc<Mutex<State>>);

impl Bucket {
    /// With a rate, in bytes per second.
    pub fn new(bytes_per_second: u64) -> Self {
        let state = State { bytes_per_second, free_at: Instant::now(), taken: 0 };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Holds for the next taking. A debt that was made at the old rate is paid off at the new one.
    pub fn set_rate(&self, bytes_per_second: u64) {
        let now = Instant::now();
        let mut state = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let debt = state.free_at.saturating_duration_since(now);
        let ratio = state.bytes_per_second.max(1) as f64 / bytes_per_second.max(1) as f64;
        if !debt.is_zero() {
            state.free_at = now + debt.mul_f64(ratio.clamp(0.01, 100.0));
        }
        state.bytes_per_second = bytes_per_second;
    }

    /// Takes the bytes, waiting until what was taken before is paid off: the debt is at most one
    /// taking.
    pub async fn take(&self, bytes: u64) {
        loop {
            let taken = {
                let mut state = self.0.lock().unwrap_or_else(|e| e.into_inner());
                state.take(Instant::now(), bytes)
            };
            match taken {
                Ok(()) => return,
                Err(look_again) => sleep_until(look_again).await,
            }
        }
    }

    /// Bytes taken so far.
    pub fn taken(&self) -> u64 {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_pass_at_the_rate() {
        let bucket = Bucket::new(1_000_000);
        let start = Instant::now();
        for _ in 0..100 {
            bucket.take(64 * 1024).await;
        }
        let ideal = 99.0 * 65_536.0 / 1e6;
        let took = start.elapsed().as_secs_f64();
        assert!((took - ideal).abs() < 0.02 * ideal, "{took} s, not {ideal} s");
        assert_eq!(bucket.taken(), 100 * 65_536);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_bucket_saves_no_more_than_the_burst() {
        let bucket = Bucket::new(1_000_000);
        bucket.take(1000).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let start = Instant::now();
        for _ in 0..100 {
            bucket.take(1000).await;
        }
        // 100 ms worth of bytes, 50 ms of them saved up, the last in debt.
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(48) && took <= Duration::from_millis(52), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_rate_holds_for_who_waits_already() {
        let bucket = Bucket::new(1000);
        bucket.take(1_000_000).await;
        let waiting = tokio::spawn({
            let bucket = bucket.clone();
            async move { bucket.take(1).await }
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        let start = Instant::now();
        bucket.set_rate(1_000_000);
        waiting.await.unwrap();
        assert!(start.elapsed() < Duration::from_secs(11), "{:?}", start.elapsed());
    }
}
