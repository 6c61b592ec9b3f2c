//! The other stream of the same controller: what maintenance may take beside copies.
//!
//! Work that was put off during a recovery would come back as one step when the last copy ends, at
//! the moment when the node returns to rest. Here it comes back as a ramp.

use crate::steady::{ALARM, CALM_QUEUE, MIN_REQUESTS, USED};
use crate::{CUT, HIGH, LOW, MIN_SHARE, RAISE, Sample, TargetError, check_target};

/// Of what copies may take; never nothing, so that no work waits for ever.
pub const TRICKLE: f64 = 0.01;

/// While routine copies run, maintenance has no more than this part of what both may take.
const BESIDE_COPIES: f64 = 0.5;

/// What else was going on in the last period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beside {
    /// The share of the link that copies and maintenance may take together: the law's.
    pub share: f64,
    /// Whether a copy that restores or saves data ran here at any time of the period.
    pub repairing: bool,
    /// What copies took of what was left to them, 0 to 1; none if no copy runs.
    pub copies: Option<f64>,
    /// What maintenance took of what it was allowed, 0 to 1.
    pub used: f64,
}

impl Beside {
    /// The most that maintenance may have: all that the law gives, less what running copies need.
    pub fn ceiling(&self) -> f64 {
        if self.copies.is_some() { self.share * BESIDE_COPIES } else { self.share }
    }
}

/// Maintenance's share of the link.
///
/// During a repair it is the trickle. After the last one it starts at [`MIN_SHARE`] and rises by at
/// most × 1.05 a second while latency is low and the share is used; it stands near the target and
/// without data, is cut by × 0.7 above the target or where copies want more, and falls back towards
/// its start while it is not used, so that work that comes later finds no step either.
///
/// **Invariant:** from one sample to the next it rises by at most × 1.05, except from the trickle
/// to the start; it is never more than [`Beside::ceiling`] and never less than the trickle.
#[derive(Debug, Clone, PartialEq)]
pub struct Ramp {
    target_ms: f64,
    share: f64,
    restarts: bool,
}

impl Ramp {
    /// Starts at the trickle of nothing: the first sample brings it to its start.
    pub fn new(target_ms: f64) -> Result<Self, TargetError> {
        Ok(Self { target_ms: check_target(target_ms)?, share: 0.0, restarts: true })
    }

    /// Maintenance's share of the link.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Takes one sample, once a second. Of the sample, `used` and `at_ms` are not looked at.
    pub fn observe(&mut self, sample: &Sample, beside: &Beside) {
        let trickle = TRICKLE * beside.share;
        if beside.repairing {
            self.restarts = true;
            self.share = trickle;
            return;
        }
        let ceiling = beside.ceiling().max(trickle);
        let start = MIN_SHARE.min(ceiling);
        if std::mem::take(&mut self.restarts) {
            self.share = start;
            return;
        }
        let wanted = if self.is_too_much(sample, beside) {
            self.share * CUT
        } else if beside.used < USED {
            self.share.min((self.share * CUT).max(start))
        } else if self.is_calm(sample) {
            self.share * RAISE
        } else {
            self.share
        };
        self.share = wanted.clamp(trickle, ceiling);
    }

    /// Requests suffer, or copies could use more: both come first.
    fn is_too_much(&self, sample: &Sample, beside: &Beside) -> bool {
        p99(sample).is_some_and(|p99| p99 > self.target_ms * HIGH)
            || sample.queue.is_some_and(|queue| queue > ALARM)
            || beside.copies.is_some_and(|used| used >= USED)
    }

    /// Latency is known to be low, or the node is known to be idle.
    fn is_calm(&self, sample: &Sample) -> bool {
        match p99(sample) {
            Some(p99) => p99 < self.target_ms * LOW,
            None => {
                sample.p99_ms.is_none_or(|p99| p99.is_finite() && p99 >= 0.0)
                    && sample.requests < MIN_REQUESTS
                    && sample.queue.is_some_and(|queue| queue <= CALM_QUEUE)
            }
        }
    }
}

/// The sample's p99, if there were enough requests for one.
fn p99(sample: &Sample) -> Option<f64> {
    let usable = |p99: &f64| p99.is_finite() && *p99 >= 0.0;
    sample.p99_ms.filter(usable).filter(|_| sample.requests >= MIN_REQUESTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Sample =
        Sample { at_ms: 0, p99_ms: Some(10.0), requests: 1000, queue: None, used: 0.0 };

    fn beside(used: f64) -> Beside {
        Beside { share: 0.2, repairing: false, copies: None, used }
    }

    fn ramp() -> Ramp {
        let mut ramp = Ramp::new(100.0).unwrap();
        ramp.observe(&CALM, &beside(0.0));
        ramp
    }

    #[test]
    fn a_repair_leaves_a_trickle_and_its_end_starts_a_ramp() {
        let mut ramp = ramp();
        let repair = Beside { repairing: true, copies: Some(1.0), ..beside(1.0) };
        ramp.observe(&CALM, &repair);
        assert_eq!(ramp.share(), 0.2 * TRICKLE);
        ramp.observe(&CALM, &beside(1.0));
        assert_eq!(ramp.share(), MIN_SHARE);
        for _ in 0..10 {
            ramp.observe(&CALM, &beside(1.0));
        }
        assert!((ramp.share() - MIN_SHARE * RAISE.powi(10)).abs() < 1e-9);
    }

    #[test]
    fn it_stands_in_the_band_and_without_data_and_is_cut_above() {
        let mut ramp = ramp();
        for sample in [
            Sample { p99_ms: Some(100.0), ..CALM },
            Sample { p99_ms: Some(120.0), ..CALM },
            Sample { p99_ms: None, ..CALM },
            Sample { p99_ms: Some(f64::NAN), requests: 3, queue: Some(0.0), ..CALM },
            Sample { requests: 3, ..CALM },
        ] {
            ramp.observe(&sample, &beside(1.0));
            assert_eq!(ramp.share(), MIN_SHARE, "{sample:?}");
        }
        let idle = Sample { p99_ms: None, requests: 0, queue: Some(0.0), ..CALM };
        ramp.observe(&idle, &beside(1.0));
        assert_eq!(ramp.share(), MIN_SHARE * RAISE, "a node that is known to be idle");
        for sample in [Sample { p99_ms: Some(120.1), ..CALM }, Sample { queue: Some(2.1), ..CALM }]
        {
            let before = ramp.share();
            ramp.observe(&sample, &beside(1.0));
            assert_eq!(ramp.share(), before * CUT, "{sample:?}");
        }
    }

    #[test]
    fn a_share_that_is_not_used_is_given_back_down_to_the_start() {
        let mut ramp = Ramp { share: 0.2, ..ramp() };
        ramp.observe(&CALM, &beside(0.5));
        assert!((ramp.share() - 0.14).abs() < 1e-9);
        for _ in 0..10 {
            ramp.observe(&CALM, &beside(0.0));
        }
        assert_eq!(ramp.share(), MIN_SHARE);
    }

    #[test]
    fn routine_copies_that_want_more_come_first() {
        let mut ramp = Ramp { share: 0.2, ..ramp() };
        let copies = |used| Beside { copies: Some(used), ..beside(1.0) };
        ramp.observe(&CALM, &copies(0.1));
        assert_eq!(ramp.share(), 0.1, "half of what both may take");
        for _ in 0..20 {
            ramp.observe(&CALM, &copies(1.0));
        }
        assert_eq!(ramp.share(), 0.2 * TRICKLE);
    }
}
