//! How a node's requests fare: before a repair, during it, and at the controller's floor.

use std::time::Duration;

use evenkeel_proto::migrations::NodeStatus;

/// Weight of the newest second in the usual p99: about its last half minute.
const USUAL: f64 = 0.05;

/// Weight of the newest second in the p99 during a repair: about its last five.
const PRESENT: f64 = 0.3;

/// So long after its last repair copy a node is still in its wake.
const WAKE: Duration = Duration::from_secs(60);

/// A node that stood at the floor for so long, with its requests too slow, is out of capacity.
const OUT_OF_CAPACITY: Duration = Duration::from_secs(60);

/// One node's latency against what it should be and what it was.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vitals {
    /// Its p99 while no repair used it, milliseconds.
    usual_ms: Option<f64>,
    /// Its p99 since a repair came.
    present_ms: Option<f64>,
    wake_until: Option<Duration>,
    floor_since: Option<Duration>,
}

impl Vitals {
    /// Takes the node's word of one second. `repairing` while a repair copy runs at it.
    pub fn observe(
        &mut self,
        now: Duration,
        said: &NodeStatus,
        target_ms: Option<f64>,
        repairing: bool,
    ) {
        if repairing {
            self.wake_until = Some(now + WAKE);
        }
        let p99_ms = said.p99_ms.filter(|p99| p99.is_finite() && *p99 >= 0.0);
        if self.is_in_wake(now) {
            blend(&mut self.present_ms, p99_ms, PRESENT);
        } else {
            self.present_ms = None;
            blend(&mut self.usual_ms, p99_ms, USUAL);
        }
        // The target is told by newer agents. Where there is nothing to compare, the controller's
        // word stands: it says floor only when requests are too slow, or too many wait.
        let spent = match target_ms.filter(|_| p99_ms.is_some()) {
            Some(target) => evenkeel_throttle::is_spent(said.share, p99_ms, target),
            None => said.state == "floor",
        };
        if spent {
            self.floor_since.get_or_insert(now);
        } else {
            self.floor_since = None;
        }
    }

    /// Nothing was heard of it for a while: what it says next is no continuation.
    pub fn leave_floor(&mut self) {
        self.floor_since = None;
    }

    /// Whether a repair runs at it or ended less than [`WAKE`] ago.
    pub fn is_in_wake(&self, now: Duration) -> bool {
        self.wake_until.is_some_and(|until| now < until)
    }

    /// Its p99 while no repair used it, milliseconds.
    pub fn usual_ms(&self) -> Option<f64> {
        self.usual_ms
    }

    /// The p99 in the wake of a repair over the usual one; none outside, and while either is not
    /// known.
    pub fn ratio(&self, now: Duration) -> Option<f64> {
        let usual = self.usual_ms.filter(|usual| *usual > 0.0)?;
        self.present_ms.filter(|_| self.is_in_wake(now)).map(|present| present / usual)
    }

    /// For how long it has stood at the floor with its requests too slow.
    pub fn at_floor(&self, now: Duration) -> Duration {
        self.floor_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Whether copies cannot take less and requests are still too slow.
    pub fn is_out_of_capacity(&self, now: Duration) -> bool {
        self.at_floor(now) >= OUT_OF_CAPACITY
    }
}

fn blend(smoothed: &mut Option<f64>, sample: Option<f64>, weight: f64) {
    let Some(sample) = sample else { return };
    *smoothed = Some(smoothed.map_or(sample, |before| before + weight * (sample - before)));
}

#[cfg(test)]
mod tests {
    use evenkeel_throttle::Sample;

    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn said(state: &str, p99_ms: Option<f64>) -> NodeStatus {
        let share = if state == "floor" { 0.05 } else { 0.2 };
        NodeStatus { share, state: state.to_owned(), p99_ms, ..NodeStatus::default() }
    }

    #[test]
    fn the_ratio_is_told_from_the_first_repair_to_a_minute_after_the_last() {
        let mut vitals = Vitals::default();
        for second in 0..60 {
            vitals.observe(at(second), &said("holding", Some(20.0)), Some(100.0), false);
        }
        assert_eq!((vitals.usual_ms(), vitals.ratio(at(59))), (Some(20.0), None));
        vitals.observe(at(60), &said("cutting", Some(30.0)), Some(100.0), true);
        assert_eq!(vitals.ratio(at(60)), Some(1.5));
        for second in 61..100 {
            vitals.observe(at(second), &said("cutting", Some(50.0)), Some(100.0), second < 70);
        }
        let ratio = vitals.ratio(at(99)).unwrap();
        assert!((ratio - 2.5).abs() < 0.01, "{ratio}");
        assert_eq!(vitals.usual_ms(), Some(20.0), "it does not learn from a repair");
        vitals.observe(at(129), &said("holding", Some(20.0)), Some(100.0), false);
        assert_eq!(vitals.ratio(at(129)), None);
        vitals.observe(at(130), &said("no_data", None), Some(100.0), true);
        assert_eq!(vitals.ratio(at(130)), None, "nothing is known of the present");
        vitals.observe(at(131), &said("no_data", Some(f64::NAN)), Some(100.0), true);
        assert_eq!(vitals.ratio(at(131)), None);
    }

    #[test]
    fn a_minute_at_the_floor_with_slow_requests_is_out_of_capacity() {
        let mut vitals = Vitals::default();
        let mut floor = |second, p99| {
            vitals.observe(at(second), &said("floor", p99), Some(100.0), true);
            vitals.is_out_of_capacity(at(second))
        };
        assert!(!floor(0, Some(150.0)) && !floor(59, Some(150.0)));
        assert!(floor(60, Some(150.0)) && floor(61, None));
        assert!(!floor(62, Some(90.0)), "its requests are fast enough");
        assert!(!floor(63, Some(150.0)));
        assert_eq!(vitals.at_floor(at(70)), at(7));
        vitals.observe(at(71), &said("raising", Some(10.0)), None, true);
        assert_eq!(vitals.at_floor(at(80)), Duration::ZERO);
    }

    #[test]
    fn the_steady_law_at_its_floor_is_out_of_capacity_after_a_minute_of_slow_requests() {
        let mut law = evenkeel_throttle::Steady::new(100.0).unwrap();
        let mut vitals = Vitals::default();
        let mut second = |n: u64, p99_ms: f64| {
            let p99_ms = Some(p99_ms);
            let at_ms = n * 1000;
            let sample = Sample { at_ms, p99_ms, requests: 1000, queue: None, used: 1.0 };
            let state = law.observe(sample).as_str().to_owned();
            let said = NodeStatus { share: law.share(), state, p99_ms, ..NodeStatus::default() };
            vitals.observe(at(n), &said, Some(100.0), true);
            (said.state, vitals.is_out_of_capacity(at(n)))
        };
        let seen: Vec<(String, bool)> = (0..110).map(|n| second(n, 150.0)).collect();
        let since = seen.iter().position(|(state, _)| state == "floor").unwrap();
        assert!(seen[since..].iter().any(|(state, _)| state == "holding"), "{seen:?}");
        let first = seen.iter().position(|(_, out)| *out).unwrap();
        assert!((60..100).contains(&first), "{first}: {seen:?}");
        assert!(seen[first..].iter().all(|(_, out)| *out), "{seen:?}");
        assert!(!second(110, 90.0).1);
    }
}
