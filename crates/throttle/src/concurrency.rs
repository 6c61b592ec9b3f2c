//! How many requests a server takes in at once: a limit that follows their latency, after the
//! gradient law of Netflix's concurrency-limits.
//!
//! Latency that rises with the number of requests in flight is waiting, not work. The limit falls in
//! proportion to what is above the usual latency and else feels its way up by its square root, so
//! that what is above capacity is refused at once instead of waiting until its client gives up.

/// Latency so many times the usual one is still no sign of waiting.
const TOLERANCE: f64 = 1.5;
/// How much of each correction is taken.
const SMOOTHING: f64 = 0.2;
/// The strongest correction.
const MIN_GRADIENT: f64 = 0.5;
/// Fewer answers than this in a window have no mean worth following.
const MIN_SAMPLES: u64 = 10;
/// The usual latency follows a lower one within 20 windows, a higher one within 600 and only while
/// the limit is half empty: an overload must not become the usual, however long it lasts.
const FALL: f64 = 1.0 / 20.0;
const RISE: f64 = 1.0 / 600.0;
/// Where the limit starts, between its bounds.
const START: f64 = 256.0;

/// One window of a server's requests, about 100 ms long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crowd {
    /// Mean duration of the requests answered in it, milliseconds; none without any.
    pub mean_ms: Option<f64>,
    /// How many were answered.
    pub answered: u64,
    /// Most requests in flight at one moment of it.
    pub in_flight: u64,
}

/// The limit and what it knows of the usual latency.
#[derive(Debug, Clone, PartialEq)]
pub struct Concurrency {
    least: f64,
    most: f64,
    calm_ms: f64,
    limit: f64,
    usual_ms: Option<f64>,
}

impl Concurrency {
    /// A limit from `least` (at least 1) to `most`. A mean latency up to `calm_ms` milliseconds is
    /// never a reason to refuse anything.
    pub fn new(least: u64, most: u64, calm_ms: f64) -> Self {
        let least = least.max(1) as f64;
        let most = (most as f64).max(least);
        let calm_ms = if calm_ms.is_finite() { calm_ms.max(0.0) } else { 0.0 };
        Self { least, most, calm_ms, limit: START.clamp(least, most), usual_ms: None }
    }

    /// Requests that may be in flight at once.
    pub fn limit(&self) -> u64 {
        self.limit as u64
    }

    /// Takes one window. Without enough answers nothing is known, and nothing changes.
    pub fn observe(&mut self, crowd: Crowd) -> u64 {
        let known = crowd.mean_ms.filter(|mean| mean.is_finite() && *mean > 0.0);
        let Some(mean) = known.filter(|_| crowd.answered >= MIN_SAMPLES) else {
            return self.limit();
        };
        // The first windows may be those of an overload already.
        let usual = self.usual_ms.get_or_insert(mean.min(self.calm_ms));
        let half_empty = (crowd.in_flight as f64) < self.limit / 2.0;
        if mean < *usual {
            *usual += (mean - *usual) * FALL;
        } else if half_empty {
            *usual += (mean - *usual) * RISE;
        }
        // Half empty, the limit is not what decides.
        if half_empty {
            return self.limit();
        }
        let allowed_ms = (TOLERANCE * *usual).max(self.calm_ms);
        let gradient = (allowed_ms / mean).clamp(MIN_GRADIENT, 1.0);
        let wanted = self.limit * gradient + self.limit.sqrt();
        let next = self.limit + SMOOTHING * (wanted - self.limit);
        self.limit = next.clamp(self.least, self.most);
        self.limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CALM_MS: f64 = 20.0;

    /// A server that answers `capacity` requests a millisecond, each in 5 ms at least; `offered` come.
    /// Returns goodput over capacity and the mean wait of the last second, after a minute.
    fn minute(law: &mut Option<Concurrency>, capacity: f64, offered: f64) -> (f64, f64) {
        let (mut queue, mut good, mut waited) = (0.0_f64, 0.0, 0.0);
        for window in 0..600 {
            let (mut sum_ms, mut answered, mut most) = (0.0, 0.0, 0.0_f64);
            for _ in 0..100 {
                let limit = law.as_ref().map_or(f64::INFINITY, |law| law.limit() as f64);
                queue = (queue + offered).min(limit.max(queue));
                most = most.max(queue);
                let took_ms = (queue / capacity).max(5.0);
                let done = (queue / took_ms).min(capacity);
                queue -= done;
                answered += done;
                sum_ms += done * took_ms;
                // Who waits longer than a second has given up.
                good += if took_ms < 1000.0 { done } else { 0.0 };
            }
            let mean_ms = sum_ms / answered;
            if let Some(law) = law {
                let crowd = Crowd {
                    mean_ms: Some(mean_ms),
                    answered: answered as u64,
                    in_flight: most as u64,
                };
                law.observe(crowd);
            }
            if window >= 590 {
                waited += mean_ms / 10.0;
            }
        }
        (good / (60_000.0 * capacity), waited)
    }

    #[test]
    fn at_twice_the_capacity_the_server_goes_on_at_its_best_and_nobody_waits_long() {
        let (good, waited) = minute(&mut Some(Concurrency::new(16, 4096, CALM_MS)), 1.0, 2.0);
        assert!(good > 0.95, "goodput {good}");
        assert!(waited < 2.0 * CALM_MS, "{waited} ms");
        let (good, waited) = minute(&mut None, 1.0, 2.0);
        assert!(good < 0.1, "without a limit all wait too long, goodput {good}");
        assert!(waited > 10_000.0, "{waited} ms");
    }

    #[test]
    fn below_capacity_nothing_is_refused() {
        let mut law = Some(Concurrency::new(16, 4096, CALM_MS));
        let (good, waited) = minute(&mut law, 10.0, 8.0);
        assert!((good - 0.8).abs() < 0.01, "goodput {good}");
        assert!(waited <= 5.0 + 1e-9, "{waited} ms");
        assert_eq!(law.unwrap().limit(), 256);
    }

    #[test]
    fn what_is_slow_for_an_hour_does_not_become_the_usual() {
        let mut law = Some(Concurrency::new(16, 4096, CALM_MS));
        let waits: Vec<f64> = (0..60).map(|_| minute(&mut law, 1.0, 3.0).1).collect();
        assert!(waits.iter().all(|waited| *waited < 2.0 * CALM_MS), "{waits:?}");
    }

    proptest! {
        #[test]
        fn a_limit_stays_in_its_bounds_falls_by_a_tenth_at_most_and_stands_without_data(
            windows in prop::collection::vec(
                (prop::option::of(prop_oneof![0.0..1e6, Just(f64::NAN)]), 0u64..100, 0u64..10_000),
                0..200,
            ),
            least in 0u64..100,
            most in 0u64..5000,
        ) {
            let mut law = Concurrency::new(least, most, CALM_MS);
            let bounds = least.max(1)..=most.max(least.max(1));
            for (mean_ms, answered, in_flight) in windows {
                let before = law.clone();
                law.observe(Crowd { mean_ms, answered, in_flight });
                prop_assert!(bounds.contains(&law.limit()));
                prop_assert!(law.limit >= before.limit * 0.9 - 1e-9);
                let known = mean_ms.is_some_and(|ms| ms > 0.0) && answered >= MIN_SAMPLES;
                if !known {
                    prop_assert_eq!(&law, &before);
                }
            }
        }
    }
}
