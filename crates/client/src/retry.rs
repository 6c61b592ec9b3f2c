//! Which answers are worth another try, and how long to wait before it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_proto::refusal::{Reason, retry_delay};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::Fate;

/// What a failed attempt means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Another attempt may succeed.
    pub(crate) again: bool,
    /// Whether this attempt may have been written.
    pub(crate) fate: Fate,
    /// The broker asked to wait this long.
    pub(crate) delay: Option<Duration>,
    /// The stable word.
    pub(crate) reason: Option<Reason>,
    /// The broker has more to do than it can: a retry adds to it.
    pub(crate) overload: bool,
}

/// Judges a failed attempt. A refusal with a reason had no effect; any other failure may have.
pub(crate) fn judge(status: &Status) -> Verdict {
    let delay = retry_delay(status);
    if let Some((reason, _)) = Reason::of(status) {
        let again = matches!(
            reason,
            Reason::Moving
                | Reason::ShardUnavailable
                | Reason::Overloaded
                | Reason::StoreUnavailable
                | Reason::NotLeader
                | Reason::NoLeader
                | Reason::StaleGeneration
        );
        let overload = reason == Reason::Overloaded;
        return Verdict { again, fate: Fate::NotWritten, delay, reason: Some(reason), overload };
    }
    let again = matches!(
        status.code(),
        Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Internal
            | Code::Aborted
            | Code::ResourceExhausted
    );
    let overload = matches!(status.code(), Code::DeadlineExceeded | Code::ResourceExhausted);
    Verdict { again, fate: Fate::Unknown, delay, reason: None, overload }
}

/// Retries of a whole client: a tenth of what succeeds, and a trickle. When they run out, retries
/// into an overload wait for their turn and others as long as a retry may, so that a failing
/// cluster is not stormed. The others are not bounded: each call of a lost leader has to find the
/// next one, and there are no more of them than calls under way.
pub(crate) struct Budget {
    /// Retries left, below 0 when turns were given in advance, and since when.
    state: Mutex<(f64, Instant)>,
}

const BUDGET_MAX: f64 = 100.0;
const BUDGET_PER_SUCCESS: f64 = 0.1;
const BUDGET_PER_SECOND: f64 = 10.0;

impl Budget {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new((BUDGET_MAX, Instant::now())) }
    }

    pub(crate) fn succeeded(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = (state.0 + BUDGET_PER_SUCCESS).min(BUDGET_MAX);
    }

    /// Takes one retry; false if there is none left.
    fn take(&self) -> bool {
        let mut state = self.refilled();
        if state.0 < 1.0 {
            return false;
        }
        state.0 -= 1.0;
        true
    }

    /// Takes one retry, now or in advance: the wait until its turn. None if that is longer than
    /// `patience`.
    fn turn(&self, patience: Duration) -> Option<Duration> {
        let mut state = self.refilled();
        let wait = Duration::from_secs_f64((1.0 - state.0).max(0.0) / BUDGET_PER_SECOND);
        (wait <= patience).then(|| {
            state.0 -= 1.0;
            wait
        })
    }

    fn refilled(&self) -> MutexGuard<'_, (f64, Instant)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let gained = now.duration_since(state.1).as_secs_f64() * BUDGET_PER_SECOND;
        *state = ((state.0 + gained).min(BUDGET_MAX), now);
        state
    }
}

/// Waits of one call: doubling, halved at random, never less than the broker asked for.
pub(crate) struct Backoff {
    base: Duration,
    max: Duration,
    attempt: u32,
    random: u64,
    /// When the first attempt since the last headway failed.
    since: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(base: Duration, max: Duration, seed: u64) -> Self {
        Self { base, max, attempt: 0, random: seed, since: None }
    }

    /// How many attempts failed since the last headway.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempt
    }

    /// Time since the first attempt failed after the last headway.
    pub(crate) fn waited(&self) -> Duration {
        self.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// There was headway: the next wait is a first one.
    pub(crate) fn reset(&mut self) {
        self.attempt = 0;
        self.since = None;
    }

    /// The wait before the next attempt; none if the budget has no turn for it within `patience`.
    pub(crate) fn next(
        &mut self,
        verdict: &Verdict,
        budget: &Budget,
        patience: Duration,
    ) -> Option<Duration> {
        let doubled = self.base.saturating_mul(1 << self.attempt.min(16)).min(self.max);
        let (longest, turn) = if verdict.overload {
            (doubled, budget.turn(patience)?)
        } else if budget.take() {
            (doubled, Duration::ZERO)
        } else {
            (self.max, Duration::ZERO)
        };
        self.attempt = self.attempt.saturating_add(1);
        self.since.get_or_insert_with(Instant::now);
        let jittered = longest.mul_f64(0.5 + self.unit() / 2.0);
        Some(jittered.max(turn).max(verdict.delay.unwrap_or_default()))
    }

    /// SplitMix64, as a number from 0 to 1.
    fn unit(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / 9_007_199_254_740_992.0
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_proto::refusal::{refuse, refuse_for};

    use super::*;

    #[test]
    fn refusals_had_no_effect_and_lost_answers_may_have() {
        let moving = refuse_for(Reason::Moving, "moving", Duration::from_millis(40));
        let expected = Verdict {
            again: true,
            fate: Fate::NotWritten,
            delay: Some(Duration::from_millis(40)),
            reason: Some(Reason::Moving),
            overload: false,
        };
        assert_eq!(judge(&moving), expected);
        assert!(!judge(&refuse(Reason::DiskFull, "full")).again);
        assert!(!judge(&refuse(Reason::InvalidArgument, "bad")).again);
        let lost = judge(&Status::unavailable("connection reset"));
        assert_eq!((lost.again, lost.fate), (true, Fate::Unknown));
        assert!(!judge(&Status::invalid_argument("bad")).again);
        assert!(judge(&refuse(Reason::Overloaded, "full")).overload);
        assert!(judge(&Status::deadline_exceeded("no answer")).overload);
        assert!(!lost.overload);
    }

    /// A failure that asks for such a wait.
    fn failure(overload: bool, delay_ms: Option<u64>) -> Verdict {
        Verdict {
            again: true,
            fate: Fate::NotWritten,
            delay: delay_ms.map(Duration::from_millis),
            reason: None,
            overload,
        }
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_the_longest_and_respect_the_broker() {
        let budget = Budget::new();
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(80), 1);
        let mut next = |delay_ms| backoff.next(&failure(false, delay_ms), &budget, PATIENCE);
        for longest in [10, 20, 40, 80, 80, 80] {
            let wait = next(None).unwrap();
            let longest = Duration::from_millis(longest);
            assert!(wait >= longest / 2 && wait <= longest, "{wait:?}");
        }
        assert_eq!(next(Some(2000)), Some(Duration::from_secs(2)));
        backoff.reset();
        let first = backoff.next(&failure(false, None), &budget, PATIENCE);
        assert!(first.unwrap() <= Duration::from_millis(10));
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_budget_makes_retries_slow_until_it_refills() {
        let budget = Budget::new();
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500), 1);
        let moving = failure(false, None);
        while budget.take() {}
        let slow = backoff.next(&moving, &budget, PATIENCE).unwrap();
        assert!(slow >= Duration::from_millis(250));
        tokio::time::advance(Duration::from_millis(200)).await;
        backoff.reset();
        let quick = backoff.next(&moving, &budget, PATIENCE).unwrap();
        assert!(quick <= Duration::from_millis(10));
    }

    /// A thousand calls fail at once and again and again: whatever they do, the retries stay within a
    /// tenth of what succeeds and the trickle.
    #[tokio::test(start_paused = true)]
    async fn retries_into_an_overload_are_a_tenth_of_what_succeeds() {
        let budget = Budget::new();
        let overload = failure(true, Some(50));
        let started = Instant::now();
        let mut turns: Vec<Duration> = Vec::new();
        let mut given_up = 0;
        for second in 0..60 {
            for call in 0..100_u64 {
                let mut backoff =
                    Backoff::new(Duration::from_millis(10), Duration::from_millis(500), call);
                match backoff.next(&overload, &budget, PATIENCE) {
                    Some(wait) => turns.push(started.elapsed() + wait),
                    None => given_up += 1,
                }
            }
            for _ in 0..100 {
                budget.succeeded();
            }
            tokio::time::advance(Duration::from_secs(1)).await;
            let now = Duration::from_secs(second + 1);
            let made = turns.iter().filter(|turn| **turn <= now).count() as f64;
            let allowed =
                BUDGET_MAX + now.as_secs_f64() * (100.0 * BUDGET_PER_SUCCESS + BUDGET_PER_SECOND);
            assert!(made <= allowed + 1.0, "{made} retries in {now:?}");
        }
        assert!(given_up > 3_000, "{given_up} were told at once");
    }
}
