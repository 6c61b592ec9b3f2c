//! The steady law: the same limits, proportional steps, and a gain that halves when it oscillates.
//!
//! It keeps the logarithm of the share, so that a cut and its undo add up to nothing.

use std::collections::VecDeque;

use crate::{
    CUT, HIGH, LOW, MAX_SHARE, MIN_SHARE, RAISE, START_SHARE, Sample, State, TargetError,
    check_target, rate,
};

/// Samples older than this say nothing about now.
const WINDOW_MS: u64 = 10_000;
/// After a cut the samples of this long still show the load before it.
const SETTLE_MS: u64 = 1_000;
/// Fewer requests than this in a period have no p99.
pub(crate) const MIN_REQUESTS: u64 = 50;
/// Latency above the target times this, or a queue above its usual length times this, is cut at
/// once.
pub(crate) const ALARM: f64 = 2.0;
/// A queue below this part of its usual length is a calm one.
pub(crate) const CALM_QUEUE: f64 = 0.5;
/// A raise must be needed: so much of the share was used.
pub(crate) const USED: f64 = 0.9;
/// Samples before a proportional cut, and before a raise.
const CUT_SAMPLES: usize = 3;
const RAISE_SAMPLES: usize = 5;
/// Steps as parts of the error, in logarithms, at full gain.
const CUT_GAIN: f64 = 0.5;
const RAISE_GAIN: f64 = 0.1;
/// So many changes of direction within so long are an oscillation.
const REVERSALS: usize = 4;
const REVERSALS_MS: u64 = 10 * WINDOW_MS;
const MIN_GAIN: f64 = 0.25;
const GAIN_RECOVERY: f64 = 1.1;
/// A slow link still gets somewhere: bytes per second, as long as half of the link allows it.
const MIN_BYTES_PER_SECOND: u64 = 1 << 20;

/// Looks at a window of samples that restarts with each cut.
#[derive(Debug, Clone, PartialEq)]
pub struct Steady {
    target_ms: f64,
    /// ln of the share.
    x: f64,
    gain: f64,
    samples: VecDeque<(u64, f64)>,
    cut_at_ms: Option<u64>,
    reversals: VecDeque<u64>,
    direction_changes: u64,
    last_rose: Option<bool>,
    quiet_since_ms: Option<u64>,
}

impl Steady {
    /// Starts at [`START_SHARE`].
    pub fn new(target_ms: f64) -> Result<Self, TargetError> {
        Ok(Self {
            target_ms: check_target(target_ms)?,
            x: START_SHARE.ln(),
            gain: 1.0,
            samples: VecDeque::new(),
            cut_at_ms: None,
            reversals: VecDeque::new(),
            direction_changes: 0,
            last_rose: None,
            quiet_since_ms: None,
        })
    }

    /// The share of the link.
    pub fn share(&self) -> f64 {
        // The logarithm's limits are not exact in either direction.
        self.x.exp().clamp(MIN_SHARE, MAX_SHARE)
    }

    /// ⌊link × share⌋, but no less than 1 MiB/s unless that is more than half of the link.
    pub fn bytes_per_second(&self, link_bytes_per_second: u64) -> u64 {
        let floor = MIN_BYTES_PER_SECOND.min(rate(link_bytes_per_second, MAX_SHARE));
        rate(link_bytes_per_second, self.share()).max(floor)
    }

    /// From 1 down to 0.25, halved by each oscillation.
    pub fn gain(&self) -> f64 {
        self.gain
    }

    /// How often it turned from raising to cutting or back.
    pub fn direction_changes(&self) -> u64 {
        self.direction_changes
    }

    /// Takes one sample.
    pub fn observe(&mut self, sample: Sample) -> State {
        let now = sample.at_ms;
        let usable = |p99: &f64| p99.is_finite() && *p99 >= 0.0;
        let p99 = sample.p99_ms.filter(usable).filter(|_| sample.requests >= MIN_REQUESTS);
        self.recover_gain(now);
        let Some(p99) = p99 else {
            return self.without_latency(&sample);
        };
        // Samples right after a cut still show the load before it.
        if self.cut_at_ms.is_none_or(|cut| now >= cut + SETTLE_MS) {
            self.samples.push_back((now, p99));
        }
        while self.samples.front().is_some_and(|(at, _)| at + WINDOW_MS < now) {
            self.samples.pop_front();
        }
        let n = self.samples.len();
        let error = (self.mean(n) / self.target_ms).ln();
        let alarm = self.mean(2) > ALARM * self.target_ms || queue_alarm(&sample);
        if n >= 2 && alarm {
            return self.cut(now, -CUT.ln());
        }
        if n >= CUT_SAMPLES && error > HIGH.ln() {
            return self.cut(now, (CUT_GAIN * self.gain * error).min(-CUT.ln()));
        }
        if n >= RAISE_SAMPLES && error < LOW.ln() && sample.used >= USED {
            return self.raise(now, (RAISE_GAIN * self.gain * -error).min(RAISE.ln()));
        }
        State::Holding
    }

    /// Too few requests for a p99: only the queue speaks. A node that is known to be idle may
    /// raise; one of which nothing is known stands.
    fn without_latency(&mut self, sample: &Sample) -> State {
        let now = sample.at_ms;
        if queue_alarm(sample) && self.cut_at_ms.is_none_or(|cut| now >= cut + 2 * SETTLE_MS) {
            return self.cut(now, -CUT.ln());
        }
        let idle = sample.p99_ms.is_none_or(|p99| p99.is_finite() && p99 >= 0.0)
            && sample.requests < MIN_REQUESTS
            && sample.queue.is_some_and(|queue| queue <= CALM_QUEUE);
        if idle && sample.used >= USED {
            return self.raise(now, RAISE_GAIN * self.gain * ALARM.ln());
        }
        State::NoData
    }

    fn mean(&self, last: usize) -> f64 {
        let taken = self.samples.iter().rev().take(last);
        let (sum, n) = taken.fold((0.0, 0u32), |(sum, n), (_, p99)| (sum + p99, n + 1));
        sum / f64::from(n.max(1))
    }

    fn cut(&mut self, now: u64, step: f64) -> State {
        let before = self.x;
        self.x = (self.x - step).max(MIN_SHARE.ln());
        self.cut_at_ms = Some(now);
        self.samples.clear();
        if self.x >= before {
            return State::Floor;
        }
        self.turned(now, false);
        State::Cutting
    }

    fn raise(&mut self, now: u64, step: f64) -> State {
        let before = self.x;
        self.x = (self.x + step.min(RAISE.ln())).min(MAX_SHARE.ln());
        if self.x <= before {
            return State::Ceiling;
        }
        self.turned(now, true);
        State::Raising
    }

    fn turned(&mut self, now: u64, rose: bool) {
        if self.last_rose.replace(rose).is_none_or(|before| before == rose) {
            return;
        }
        self.direction_changes += 1;
        self.reversals.push_back(now);
        while self.reversals.front().is_some_and(|at| at + REVERSALS_MS < now) {
            self.reversals.pop_front();
        }
        if self.reversals.len() >= REVERSALS {
            self.gain = (self.gain / 2.0).max(MIN_GAIN);
            self.reversals.clear();
        }
        self.quiet_since_ms = Some(now);
    }

    /// Each window without a change of direction gives some of the gain back.
    fn recover_gain(&mut self, now: u64) {
        let since = *self.quiet_since_ms.get_or_insert(now);
        if now >= since + WINDOW_MS {
            self.gain = (self.gain * GAIN_RECOVERY).min(1.0);
            self.quiet_since_ms = Some(now);
        }
    }
}

fn queue_alarm(sample: &Sample) -> bool {
    sample.queue.is_some_and(|queue| queue > ALARM)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_s: u64, p99_ms: f64) -> Sample {
        Sample { at_ms: at_s * 1000, p99_ms: Some(p99_ms), requests: 1000, queue: None, used: 1.0 }
    }

    fn states(law: &mut Steady, samples: impl IntoIterator<Item = Sample>) -> Vec<State> {
        samples.into_iter().map(|sample| law.observe(sample)).collect()
    }

    #[test]
    fn an_alarm_cuts_at_once_and_then_waits_for_fresh_samples() {
        let mut law = Steady::new(100.0).unwrap();
        let seen = states(&mut law, (0..5).map(|s| sample(s, 500.0)));
        use State::{Cutting, Holding};
        assert_eq!(seen, [Holding, Cutting, Holding, Cutting, Holding]);
        assert!((law.share() - 0.2 * 0.49).abs() < 1e-12, "{}", law.share());
    }

    #[test]
    fn a_cut_is_in_proportion_to_the_error() {
        let mut law = Steady::new(100.0).unwrap();
        let seen = states(&mut law, (0..3).map(|s| sample(s, 144.0)));
        assert_eq!(seen, [State::Holding, State::Holding, State::Cutting]);
        assert!((law.share() - 0.2 / 1.2).abs() < 1e-12, "{}", law.share());
    }

    #[test]
    fn it_raises_after_five_samples_and_only_what_is_used() {
        let mut law = Steady::new(100.0).unwrap();
        let idle = (0..20).map(|s| Sample { used: 0.5, ..sample(s, 10.0) });
        assert_eq!(states(&mut law, idle), [State::Holding; 20]);
        assert_eq!(law.observe(sample(20, 10.0)), State::Raising);
        assert!((law.share() - 0.21).abs() < 1e-12, "{}", law.share());
        for s in 21..60 {
            law.observe(sample(s, 10.0));
        }
        assert_eq!(law.observe(sample(60, 10.0)), State::Ceiling);
        assert_eq!(law.share(), MAX_SHARE);
    }

    #[test]
    fn without_latency_only_the_queue_speaks() {
        let unknown = |s| Sample { p99_ms: None, requests: 0, ..sample(s, 0.0) };
        let mut law = Steady::new(100.0).unwrap();
        assert_eq!(states(&mut law, (0..10).map(unknown)), [State::NoData; 10]);
        let nan = Sample { p99_ms: Some(f64::NAN), queue: Some(0.0), ..unknown(10) };
        assert_eq!(law.observe(nan), State::NoData);
        assert_eq!(law.share(), START_SHARE.ln().exp());
        let idle = Sample { queue: Some(0.0), ..unknown(11) };
        assert_eq!(law.observe(idle), State::Raising);
        let queued = |s| Sample { queue: Some(2.5), ..unknown(s) };
        let seen = states(&mut law, (12..15).map(queued));
        assert_eq!(seen, [State::Cutting, State::NoData, State::Cutting]);
    }

    #[test]
    fn oscillation_halves_the_gain_and_calm_gives_it_back() {
        let mut law = Steady::new(100.0).unwrap();
        let mut at = 0;
        for _ in 0..3 {
            for p99 in [10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 500.0, 500.0, 500.0] {
                law.observe(sample(at, p99));
                at += 1;
            }
        }
        assert!(law.direction_changes() >= 4, "{}", law.direction_changes());
        assert_eq!(law.gain(), 0.5);
        for _ in 0..80 {
            law.observe(sample(at, 100.0));
            at += 1;
        }
        assert_eq!(law.gain(), 1.0);
    }
}
