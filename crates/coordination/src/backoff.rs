//! Pauses between attempts: doubling up to a limit, with jitter from a seeded source.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A seeded source of jitter, shared by everything that waits on one store. It only spreads
/// attempts over time, so its quality does not matter; that the same seed gives the same run does.
#[derive(Debug)]
pub(crate) struct Jitter(AtomicU64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The next number of the splitmix64 sequence.
    pub(crate) fn draw(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between half of `pause` and all of it.
    pub(crate) fn spread(&self, pause: Duration) -> Duration {
        let half = pause / 2;
        half + half.mul_f64((self.draw() % 1024) as f64 / 1024.0)
    }
}

/// Doubles from `first` to `most`.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first }
    }

    pub(crate) fn pause(&mut self, jitter: &Jitter) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.most);
        jitter.spread(pause)
    }

    /// After a success the next failure starts small again.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_limit_and_repeat_with_the_seed() {
        let ms = Duration::from_millis;
        let run = |seed| {
            let jitter = Jitter::new(seed);
            let mut backoff = Backoff::new(ms(20), ms(100));
            (0..5).map(|_| backoff.pause(&jitter)).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        for (pause, full) in run(7).into_iter().zip([20, 40, 80, 100, 100]) {
            assert!(pause >= ms(full / 2) && pause <= ms(full), "{pause:?} of {full} ms");
        }
    }
}
