//! Counters into smoothed rates, so that the planner needs no memory of its own.

use std::time::Duration;

/// An exponentially weighted mean over samples at uneven distances.
#[derive(Debug, Clone, Copy, Default)]
pub struct Smoothed {
    value: Option<f64>,
}

impl Smoothed {
    /// The mean so far, unknown before the first sample.
    pub fn value(&self) -> Option<f64> {
        self.value
    }

    /// Takes in a sample that holds for `elapsed`; `time_constant` is how long a change takes to
    /// show by two thirds. A sample that is no number is ignored.
    pub fn add(&mut self, sample: f64, elapsed: Duration, time_constant: Duration) {
        if !sample.is_finite() {
            return;
        }
        let weight = if time_constant.is_zero() {
            1.0
        } else {
            1.0 - (-elapsed.as_secs_f64() / time_constant.as_secs_f64()).exp()
        };
        self.value = Some(self.value.map_or(sample, |old| old + weight * (sample - old)));
    }
}

/// A rising counter's smoothed rate, per second.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rate {
    last: Option<u64>,
    smoothed: Smoothed,
}

impl Rate {
    /// The rate so far, unknown before the second reading.
    pub fn per_second(&self) -> Option<f64> {
        self.smoothed.value()
    }

    /// Takes in a reading. One below the last is a restarted counter and only sets the start; an
    /// unknown one breaks the series.
    pub fn read(&mut self, count: Option<u64>, elapsed: Duration, time_constant: Duration) {
        if let (Some(last), Some(now)) = (self.last, count)
            && now >= last
            && !elapsed.is_zero()
        {
            let rate = (now - last) as f64 / elapsed.as_secs_f64();
            self.smoothed.add(rate, elapsed, time_constant);
        }
        self.last = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_change_shows_by_two_thirds_after_the_time_constant() {
        let mut smoothed = Smoothed::default();
        assert_eq!(smoothed.value(), None);
        smoothed.add(0.0, SECOND, 10 * SECOND);
        for _ in 0..10 {
            smoothed.add(100.0, SECOND, 10 * SECOND);
        }
        let value = smoothed.value().unwrap();
        assert!((value - 63.2).abs() < 0.1, "{value}");
        smoothed.add(f64::NAN, SECOND, 10 * SECOND);
        assert_eq!(smoothed.value(), Some(value));
    }

    #[test]
    fn one_long_step_weighs_as_much_as_many_short_ones() {
        let (mut long, mut short) = (Smoothed::default(), Smoothed::default());
        long.add(0.0, SECOND, 10 * SECOND);
        short.add(0.0, SECOND, 10 * SECOND);
        long.add(1.0, 5 * SECOND, 10 * SECOND);
        for _ in 0..5 {
            short.add(1.0, SECOND, 10 * SECOND);
        }
        assert!((long.value().unwrap() - short.value().unwrap()).abs() < 1e-9);
    }

    #[test]
    fn rates_survive_restarted_and_missing_counters() {
        let mut rate = Rate::default();
        rate.read(Some(100), SECOND, Duration::ZERO);
        assert_eq!(rate.per_second(), None);
        rate.read(Some(300), 2 * SECOND, Duration::ZERO);
        assert_eq!(rate.per_second(), Some(100.0));
        rate.read(Some(5), SECOND, Duration::ZERO);
        rate.read(None, SECOND, Duration::ZERO);
        rate.read(Some(50), SECOND, Duration::ZERO);
        assert_eq!(rate.per_second(), Some(100.0));
        rate.read(Some(60), SECOND, Duration::ZERO);
        assert_eq!(rate.per_second(), Some(10.0));
    }
}
