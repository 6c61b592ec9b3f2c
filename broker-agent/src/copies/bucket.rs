//! A token bucket in virtual time: each taking moves the next free instant on. What a bucket saves
//! up makes good for late wake-ups; over a second it carries no more than its rate all the same.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Time that an idle bucket saves up.
const BURST: Duration = Duration::from_millis(50);

/// A waiter looks again this often, because the rate may have changed.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What the last second is divided into; with the one that runs, so many are looked at.
const SLOT: Duration = Duration::from_millis(5);
const SLOTS: usize = 201;

/// What passed in the last second, and what the rates of that time allowed.
#[derive(Debug)]
struct LastSecond {
    slots: VecDeque<(u64, u64)>,
    taken: u64,
    allowed: u64,
    /// When the newest slot ends.
    until: Instant,
}

impl LastSecond {
    fn new(now: Instant, bytes_per_second: u64) -> Self {
        let mut new = Self { slots: VecDeque::new(), taken: 0, allowed: 0, until: now };
        (0..SLOTS).for_each(|_| new.slot(bytes_per_second));
        new.until = now + SLOT;
        new
    }

    /// Begins another slot.
    fn slot(&mut self, bytes_per_second: u64) {
        if self.slots.len() >= SLOTS
            && let Some((taken, allowed)) = self.slots.pop_front()
        {
            self.taken -= taken;
            self.allowed -= allowed;
        }
        let allowed = (bytes_per_second as f64 * SLOT.as_secs_f64()).ceil() as u64;
        // All slots together are a number too, whatever the rate.
        let allowed = allowed.min(u64::MAX / (2 * SLOTS as u64));
        self.slots.push_back((0, allowed));
        self.allowed += allowed;
        self.until += SLOT;
    }

    fn move_to(&mut self, now: Instant, bytes_per_second: u64) {
        if now > self.until + SLOT * SLOTS as u32 {
            *self = Self::new(now, bytes_per_second);
        }
        while now >= self.until {
            self.slot(bytes_per_second);
        }
    }

    /// The last taking may go beyond it, as with the bucket itself.
    fn has_room(&self) -> bool {
        self.taken == 0 || self.taken < self.allowed
    }

    fn take(&mut self, bytes: u64) {
        self.taken += bytes;
        if let Some(slot) = self.slots.back_mut() {
            slot.0 += bytes;
        }
    }
}

#[derive(Debug)]
struct State {
    bytes_per_second: u64,
    free_at: Instant,
    last: LastSecond,
    taken: u64,
}

impl State {
    fn new(now: Instant, bytes_per_second: u64) -> Self {
        let last = LastSecond::new(now, bytes_per_second);
        Self { bytes_per_second, free_at: now, last, taken: 0 }
    }

    /// The bytes fit from `now` on, or when to look again.
    fn take(&mut self, now: Instant, bytes: u64) -> Result<(), Instant> {
        if self.free_at > now {
            return Err(self.free_at.min(now + LOOK_AGAIN));
        }
        self.last.move_to(now, self.bytes_per_second);
        if !self.last.has_room() {
            return Err(self.last.until);
        }
        self.last.take(bytes);
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
        Self(Arc::new(Mutex::new(State::new(Instant::now(), bytes_per_second))))
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
        let before = std::mem::replace(&mut state.bytes_per_second, bytes_per_second);
        state.last.move_to(now, before);
    }

    /// Bytes per second.
    pub fn rate(&self) -> u64 {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).bytes_per_second
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
    async fn no_rate_is_too_high_or_too_low() {
        for rate in [0, 1, u64::MAX] {
            let bucket = Bucket::new(rate);
            bucket.take(1 << 20).await;
            bucket.set_rate(u64::MAX - rate);
            tokio::time::sleep(Duration::from_secs(30)).await;
            bucket.set_rate(u64::MAX);
            bucket.take(1 << 20).await;
            assert_eq!(bucket.taken(), 2 << 20);
        }
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

    /// Every taking over two minutes, by somebody who wakes up late and pauses, of chunks, at rates
    /// that change: no second carries more than a chunk over its rate, and one that always has
    /// something to take loses nothing.
    #[test]
    fn no_second_carries_more_than_its_rate_and_lateness_costs_nothing() {
        const CHUNK: u64 = 64 << 10;
        for (seed, pauses) in [(1, true), (2, true), (3, false), (4, false)] {
            let mut seed: u64 = seed;
            // Knuth's linear congruential generator.
            let mut random = |below: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 33) % below
            };
            let start = Instant::now();
            let mut rate = 8_000_000_u64;
            let mut state = State::new(start, rate);
            let (mut at, mut change) = (start, start);
            // Takings, and the rates in force from then on.
            let (mut taken, mut rates) = (Vec::new(), vec![(start, rate)]);
            while at < start + Duration::from_secs(120) {
                if pauses && at >= change {
                    rate = 4_000_000 + random(16_000_000);
                    state.last.move_to(at, state.bytes_per_second);
                    state.bytes_per_second = rate;
                    rates.push((at, rate));
                    change = at + Duration::from_millis(500 + random(2500));
                }
                match state.take(at, CHUNK) {
                    Ok(()) => taken.push(at),
                    // A timer of a millisecond on a busy machine.
                    Err(again) => at = again + Duration::from_micros(random(15_000)),
                }
                if pauses && random(100) == 0 {
                    at += Duration::from_millis(random(400));
                }
            }
            let allowed = |from: Instant, to: Instant| -> f64 {
                let ends = rates.iter().skip(1).map(|(at, _)| *at).chain([to + WINDOW]);
                let steps = rates.iter().zip(ends).map(|((begin, rate), end)| {
                    let span = end.min(to).saturating_duration_since((*begin).max(from));
                    *rate as f64 * span.as_secs_f64()
                });
                steps.sum()
            };
            let mut first = 0;
            for (last, at) in taken.iter().enumerate() {
                while *at - taken[first] >= WINDOW {
                    first += 1;
                }
                let Some(from) = at.checked_sub(WINDOW).filter(|from| *from >= start + 2 * SLOT)
                else {
                    continue;
                };
                let passed = (last - first + 1) as f64 * CHUNK as f64;
                // What is looked at is up to a slot longer, and the last chunk goes beyond it.
                // A slot that has begun keeps its rate.
                let changed = rates.iter().any(|(at, _)| *at > from - 2 * SLOT);
                let slot = if changed { 20e6 * SLOT.as_secs_f64() } else { 0.0 };
                let most = allowed(from - 2 * SLOT, *at) + CHUNK as f64 + slot;
                assert!(passed <= most, "{passed} of {most}");
            }
            if !pauses {
                let ideal = 120.0 * rate as f64;
                let passed = taken.len() as f64 * CHUNK as f64;
                assert!((passed / ideal - 1.0).abs() < 0.003, "{passed} of {ideal}");
            }
        }
    }

    const WINDOW: Duration = Duration::from_secs(1);

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
