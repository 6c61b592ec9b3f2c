//! The clients of one node's shards: first attempts, time-outs, retries and their budget.

use std::collections::VecDeque;

use crate::latency::P99_OVER_MEAN;
use crate::queue::Served;
use crate::scenario::{Controls, Traffic};

/// An attempt and up to seven retries.
pub(crate) const TRIES: usize = 8;

/// A budget saves up what this long earns, seconds.
const BUDGET_SAVED_S: f64 = 10.0;

/// Attempts by how many came before them.
pub(crate) type Attempts = [f64; TRIES];

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clients {
    /// Retries by step from now.
    due: VecDeque<Attempts>,
    /// Operations that end, by step from now.
    ending: VecDeque<f64>,
    in_flight: f64,
    /// Retries that may be made; none is no budget.
    budget: Option<f64>,
}

/// What became of one step's attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tally {
    /// First attempts.
    pub(crate) operations: f64,
    pub(crate) attempts: f64,
    /// Operations that were answered in time.
    pub(crate) answered: f64,
    pub(crate) timed_out: f64,
    pub(crate) shed: f64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.attempts += other.attempts;
        self.answered += other.answered;
        self.timed_out += other.timed_out;
        self.shed += other.shed;
    }
}

impl Clients {
    /// The attempts of the step that begins. `demand` is operations per second as long as all is
    /// well; clients that think wait for their answer before they ask again.
    pub(crate) fn attempts(&mut self, traffic: &Traffic, demand: f64, step_ms: f64) -> Attempts {
        self.in_flight = (self.in_flight - self.ending.pop_front().unwrap_or(0.0)).max(0.0);
        let mut attempts = self.due.pop_front().unwrap_or_default();
        let seconds = step_ms / 1000.0;
        let mut rate = demand;
        if traffic.think_ms > 0.0 {
            let idle = (1.0 - traffic.utilisation).max(0.01);
            let usual_ms = traffic.p99_idle_ms / P99_OVER_MEAN / idle;
            // As long as they are counted as in flight: whole steps after their own.
            let usual_ms = steps(usual_ms, step_ms) as f64 * step_ms;
            let population = demand * (traffic.think_ms + usual_ms) / 1000.0;
            rate = (population - self.in_flight).max(0.0) * 1000.0 / traffic.think_ms;
        }
        attempts[0] += rate * seconds;
        self.in_flight += rate * seconds;
        attempts
    }

    /// Takes the node's answer to them.
    pub(crate) fn answered(
        &mut self,
        traffic: &Traffic,
        controls: &Controls,
        attempts: &Attempts,
        served: &Served,
        step_ms: f64,
    ) -> Tally {
        self.budget = controls.retry_budget.map(|part| {
            let (earned, saved) = (part * attempts[0], self.budget.unwrap_or(0.0));
            let most = earned * BUDGET_SAVED_S * 1000.0 / step_ms;
            (saved + earned).min(most.max(saved))
        });
        let timeout = traffic.timeout_ms.unwrap_or(f64::MAX);
        let let_in = 1.0 - served.refused - served.dropped;
        let late = served.piece.longer_than(timeout) * let_in + served.dropped;
        let mean = (served.piece.shift_ms + served.piece.mean_ms).min(timeout);
        let mut tally = Tally { operations: attempts[0], ..Tally::default() };
        for (before, count) in attempts.iter().enumerate().filter(|(_, n)| **n > 0.0) {
            let (shed, timed_out) = (count * served.refused, count * late);
            let answered = (count - shed - timed_out).max(0.0);
            tally.attempts += count;
            tally.answered += answered;
            tally.shed += shed;
            tally.timed_out += timed_out;
            self.end(answered, mean, step_ms);
            let backoff = traffic.backoff_ms * f64::from(1_u32 << before);
            self.again(traffic, before, (timed_out, timeout, backoff), step_ms);
            self.again(traffic, before, (shed, 0.0, controls.retry_after_ms.max(backoff)), step_ms);
        }
        tally
    }

    /// So many failed after a while: those that may try again do so after a pause, the others end.
    fn again(
        &mut self,
        traffic: &Traffic,
        before: usize,
        (count, after_ms, pause_ms): (f64, f64, f64),
        step_ms: f64,
    ) {
        if count <= 0.0 {
            return;
        }
        let mut retried = if before < traffic.retries { count } else { 0.0 };
        if let Some(budget) = &mut self.budget {
            retried = retried.min(*budget);
            *budget -= retried;
        }
        self.end(count - retried, after_ms, step_ms);
        if retried > 0.0 {
            let step = steps(after_ms + pause_ms, step_ms);
            if self.due.len() <= step {
                self.due.resize(step + 1, Attempts::default());
            }
            self.due[step][before + 1] += retried;
        }
    }

    fn end(&mut self, count: f64, after_ms: f64, step_ms: f64) {
        let step = steps(after_ms, step_ms);
        if self.ending.len() <= step {
            self.ending.resize(step + 1, 0.0);
        }
        self.ending[step] += count;
    }
}

fn steps(ms: f64, step_ms: f64) -> usize {
    // The next step is the first that can see it; nothing lasts longer than a day.
    ((ms / step_ms).round() as usize).clamp(1, 400_000) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Piece;

    const STEP: f64 = 250.0;

    /// Attempts per operation when so large a part of the attempts is late.
    fn retried(late_part: f64, budget: Option<f64>, think_ms: f64) -> f64 {
        let traffic = Traffic {
            timeout_ms: Some(1000.0),
            retries: 3,
            p99_idle_ms: 70.0,
            think_ms,
            ..Traffic::default()
        };
        let controls = Controls { retry_budget: budget, ..Controls::default() };
        let mean_ms = if late_part > 0.0 { -1000.0 / late_part.ln() } else { 1.0 };
        let piece = Piece { requests: 0.0, shift_ms: 0.0, mean_ms };
        let (mut clients, mut all) = (Clients::default(), Tally::default());
        for step in 0..400 {
            let attempts = clients.attempts(&traffic, 1000.0, STEP);
            let served = Served { piece, refused: 0.0, dropped: 0.0 };
            let tally = clients.answered(&traffic, &controls, &attempts, &served, STEP);
            if step >= 200 {
                all.add(&tally);
            }
        }
        all.attempts / all.operations
    }

    #[test]
    fn late_attempts_are_made_again_up_to_three_times() {
        assert_eq!(retried(0.0, None, 0.0), 1.0);
        // 1 + 0.05 + 0.05² + 0.05³
        assert!((retried(0.05, None, 0.0) - 1.0526).abs() < 1e-3);
        assert!((retried(0.999_999, None, 0.0) - 4.0).abs() < 1e-3);
        assert!((retried(0.999_999, None, 2000.0) - 4.0).abs() < 0.05);
    }

    #[test]
    fn a_budget_bounds_the_retries_whatever_happens() {
        assert!((retried(0.999_999, Some(0.1), 0.0) - 1.1).abs() < 1e-3);
        assert!((retried(0.05, Some(0.1), 0.0) - 1.0526).abs() < 1e-3);
    }
}
