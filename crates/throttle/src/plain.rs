//! The plain law: one sample, one step.

use crate::{
    CUT, HIGH, LOW, MAX_SHARE, MIN_SHARE, RAISE, START_SHARE, State, TargetError, check_target,
    rate,
};

/// Cuts by × 0.7 above 1.2 × target, raises by × 1.05 below 0.8 × target, else stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Plain {
    target_ms: f64,
    share: f64,
}

impl Plain {
    /// Starts at [`START_SHARE`].
    pub fn new(target_ms: f64) -> Result<Self, TargetError> {
        Ok(Self { target_ms: check_target(target_ms)?, share: START_SHARE })
    }

    /// Takes one p99 in milliseconds. A missing one, or one that is not a finite number of at
    /// least 0, changes nothing.
    pub fn observe(&mut self, p99_ms: Option<f64>) -> State {
        let Some(p99) = p99_ms.filter(|p99| p99.is_finite() && *p99 >= 0.0) else {
            return State::NoData;
        };
        let before = self.share;
        if p99 > self.target_ms * HIGH {
            self.share = (self.share * CUT).max(MIN_SHARE);
            if self.share < before { State::Cutting } else { State::Floor }
        } else if p99 < self.target_ms * LOW {
            self.share = (self.share * RAISE).min(MAX_SHARE);
            if self.share > before { State::Raising } else { State::Ceiling }
        } else {
            State::Holding
        }
    }

    /// The share of the link.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// ⌊link × share⌋.
    pub fn bytes_per_second(&self, link_bytes_per_second: u64) -> u64 {
        rate(link_bytes_per_second, self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: u64 = 1_000_000_000;

    fn rates(samples: &[f64]) -> Vec<u64> {
        let mut law = Plain::new(100.0).unwrap();
        samples
            .iter()
            .map(|p99| {
                law.observe(Some(*p99));
                law.bytes_per_second(LINK)
            })
            .collect()
    }

    #[test]
    fn it_cuts_only_above_the_band_and_raises_only_below_it() {
        assert_eq!(rates(&[130.0]), [140_000_000]);
        assert_eq!(rates(&[120.0]), [200_000_000]);
        assert_eq!(rates(&[120.0001]), [140_000_000]);
        assert_eq!(rates(&[80.0]), [200_000_000]);
        assert_eq!(rates(&[79.9999]), [210_000_000]);
        assert_eq!(rates(&[100.0, 100.0, 100.0]), [200_000_000; 3]);
    }

    #[test]
    fn cuts_end_at_the_floor_for_good() {
        assert_eq!(
            rates(&[130.0; 6]),
            [140_000_000, 97_999_999, 68_600_000, 50_000_000, 50_000_000, 50_000_000]
        );
    }

    #[test]
    fn a_cut_takes_eight_raises_and_the_way_up_forty_eight() {
        let mut law = Plain::new(100.0).unwrap();
        law.observe(Some(130.0));
        let mut raises = 0;
        while law.share() < 0.2 {
            assert_eq!(law.observe(Some(10.0)), State::Raising);
            raises += 1;
        }
        assert_eq!((raises, format!("{:.4}", law.share())), (8, "0.2068".to_owned()));

        let mut law = Plain { target_ms: 100.0, share: MIN_SHARE };
        let mut raises = 0;
        while law.observe(Some(0.0)) == State::Raising {
            raises += 1;
        }
        assert_eq!((raises, law.share()), (48, MAX_SHARE));
    }

    #[test]
    fn what_is_no_latency_changes_nothing() {
        let mut law = Plain::new(100.0).unwrap();
        for sample in [None, Some(f64::NAN), Some(f64::INFINITY), Some(-1.0)] {
            assert_eq!((law.observe(sample), law.share()), (State::NoData, START_SHARE));
        }
        for target in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Plain::new(target).is_err(), "{target}");
        }
    }
}
