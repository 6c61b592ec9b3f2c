//! One node's request queue.

use crate::latency::{P99_OVER_MEAN, Piece};
use crate::scenario::Traffic;

/// A queue's part that is random; what is beyond it is a backlog that every request waits for.
const RANDOM_PART: f64 = 40.0;

/// Copies and a slow disk never take everything.
const LEAST_LEFT: f64 = 0.1;

/// Requests at one node, as a mean. It follows `x' = offered − left × x / (1 + x)`, whose rest is
/// that of an M/M/1 queue and which grows and drains like a backlog when there is more work than
/// capacity. One unit is one service time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Queue {
    x: f64,
}

/// What became of one step's attempts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Served {
    /// The wait and service of those that were let in.
    pub(crate) piece: Piece,
    /// The part that was refused at once.
    pub(crate) refused: f64,
    /// The part that found the queue full and was left without an answer.
    pub(crate) dropped: f64,
}

impl Served {
    /// One of so many windows of equal length.
    pub(crate) fn add(&mut self, window: &Self, windows: f64) {
        self.piece.requests += window.piece.requests;
        self.piece.shift_ms += window.piece.shift_ms / windows;
        self.piece.mean_ms += window.piece.mean_ms / windows;
        self.refused += window.refused / windows;
        self.dropped += window.dropped / windows;
    }
}

/// The mean service time of an idle node.
pub(crate) fn service_ms(traffic: &Traffic) -> f64 {
    traffic.p99_idle_ms / P99_OVER_MEAN
}

impl Queue {
    /// One step. `offered` is what arrives over what the node can answer in the step; `left` is the
    /// part of that which copies, maintenance and the disk leave; from `limit` on requests are
    /// refused, if there is one, and a full queue drops them.
    pub(crate) fn step(
        &mut self,
        traffic: &Traffic,
        step_ms: f64,
        offered: f64,
        left: f64,
        limit: Option<f64>,
    ) -> Served {
        let service = service_ms(traffic);
        let left = left.max(LEAST_LEFT);
        let inflow = waiting_part(offered / left, traffic.knee) * left * step_ms / service;
        let outflow = left * step_ms / service;
        let full = self.x + inflow;
        // The step's end, implicitly, so that steps may be longer than a service.
        let half = full - 1.0 - outflow;
        self.x = f64::midpoint(half, (half * half + 4.0 * full).sqrt()).max(0.0);
        let mut turned_away = 0.0;
        let most = limit.unwrap_or(traffic.queue_ms / service);
        if self.x > most {
            let fits = most + outflow * most / (1.0 + most);
            turned_away = if inflow > 0.0 { ((full - fits) / inflow).clamp(0.0, 1.0) } else { 0.0 };
            // What was let in before is not thrown out.
            self.x = most.max(self.x - turned_away * inflow);
        }
        let refuses = limit.is_some();
        let random = self.x.min(RANDOM_PART);
        let slowed = service / left;
        let piece = Piece {
            requests: 0.0,
            shift_ms: (self.x - random) * slowed,
            mean_ms: (random + 1.0) * slowed,
        };
        Served {
            piece,
            refused: if refuses { turned_away } else { 0.0 },
            dropped: if refuses { 0.0 } else { turned_away },
        }
    }

    /// Requests that are inside.
    pub(crate) fn depth(&self, traffic: &Traffic) -> f64 {
        self.x * traffic.capacity * service_ms(traffic) / 1000.0
    }

    /// What a process that ends takes with it.
    pub(crate) fn clear(&mut self) {
        self.x = 0.0;
    }
}

/// With a knee nothing waits below it, and the rest of the way to saturation is the whole way.
fn waiting_part(utilisation: f64, knee: f64) -> f64 {
    if utilisation >= 1.0 { utilisation } else { ((utilisation - knee) / (1.0 - knee)).max(0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(knee: f64) -> Traffic {
        Traffic { p99_idle_ms: 2.0, knee, ..Traffic::default() }
    }

    fn rest(knee: f64, offered: f64, left: f64) -> f64 {
        let mut queue = Queue::default();
        let mut served = None;
        for _ in 0..400 {
            served = Some(queue.step(&traffic(knee), 250.0, offered, left, None));
        }
        let piece = served.unwrap().piece;
        piece.shift_ms + P99_OVER_MEAN * piece.mean_ms
    }

    #[test]
    fn its_rest_is_the_queue_of_the_books() {
        for (offered, taken) in [(0.5, 0.0), (0.85, 0.0), (0.5, 0.25), (0.3, 0.4)] {
            let expected = 2.0 / (1.0 - offered - taken);
            let found = rest(0.0, offered, 1.0 - taken);
            assert!((found / expected - 1.0).abs() < 0.01, "{found} ms, expected {expected}");
        }
        assert!((rest(0.8, 0.79, 1.0) - 2.0).abs() < 1e-9);
        assert!(rest(0.8, 0.9, 1.0) > 3.9);
    }

    #[test]
    fn overload_piles_up_and_drains_at_what_is_left() {
        let (mut queue, traffic) = (Queue::default(), traffic(0.0));
        for _ in 0..40 {
            queue.step(&traffic, 250.0, 1.5, 1.0, None);
        }
        // Ten seconds at half a capacity too much: five seconds of work.
        let piece = queue.step(&traffic, 250.0, 1.5, 1.0, None).piece;
        assert!((4.9e3..5.3e3).contains(&piece.shift_ms), "{}", piece.shift_ms);
        let mut steps = 0;
        while queue.x > RANDOM_PART {
            queue.step(&traffic, 250.0, 0.5, 1.0, None);
            steps += 1;
        }
        assert!((38..=42).contains(&steps), "{steps}");
    }

    #[test]
    fn a_limit_refuses_what_is_too_much_and_no_more() {
        let (mut queue, traffic) = (Queue::default(), traffic(0.0));
        let mut refused = 0.0;
        for _ in 0..80 {
            refused = queue.step(&traffic, 250.0, 2.0, 1.0, Some(9.0)).refused;
        }
        assert!(queue.x <= 9.0, "{}", queue.x);
        assert!((0.5..0.56).contains(&refused), "{refused}");
    }
}
