//! What is known of each node's link, and its two buckets.

use std::time::Duration;

use evenkeel_throttle::{MAX_SHARE, START_SHARE};

use crate::bucket::Bucket;

/// Without a word for this long a node's share is not believed any more: no limit outlives the
/// agent that set it.
const STATUS_KEPT: Duration = Duration::from_secs(5);

/// What an agent said of itself last.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// When it came.
    pub at: Duration,
    /// The controller's share of the link.
    pub share: f64,
    /// The controller's word for it.
    pub state: String,
    /// The node's own request p99, milliseconds.
    pub p99_ms: Option<f64>,
    /// Requests that wait.
    pub queue_depth: u64,
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its link, bytes per second.
    pub link_bytes_per_second: u64,
    /// The operator's cap, bytes per second.
    pub cap: Option<u64>,
    /// The present session of its agent.
    pub session: Option<u64>,
    /// What its agent said last.
    pub status: Option<Status>,
    /// Out of the node.
    pub egress: Bucket,
    /// Into the node.
    pub ingress: Bucket,
}

impl Node {
    /// A node of which nothing is known but its link.
    pub fn new(link_bytes_per_second: u64, now: Duration) -> Self {
        let mut node = Self {
            link_bytes_per_second,
            cap: None,
            session: None,
            status: None,
            egress: Bucket::new(0, now),
            ingress: Bucket::new(0, now),
        };
        node.refresh(now);
        node
    }

    /// Sets both buckets to what holds now.
    pub fn refresh(&mut self, now: Duration) {
        let rate = self.bytes_per_second(now);
        self.egress.set_rate(rate);
        self.ingress.set_rate(rate);
    }

    /// The controller's share if it is fresh, else the one that every controller starts with.
    pub fn share(&self, now: Duration) -> f64 {
        self.fresh(now).map_or(START_SHARE, |status| status.share)
    }

    /// Bytes per second that copies may take in each direction.
    pub fn bytes_per_second(&self, now: Duration) -> u64 {
        // An agent's law never leaves these limits; a broken one must not either.
        let share = self.share(now).clamp(0.0, MAX_SHARE);
        let rate = (self.link_bytes_per_second as f64 * share) as u64;
        self.cap.map_or(rate, |cap| cap.min(rate))
    }

    /// Who decides about the effective rate: an operator's cap that binds, the state of the
    /// node's controller, or nobody yet.
    pub fn owner(&self, now: Duration) -> &str {
        let uncapped = Self { cap: None, ..self.clone() }.bytes_per_second(now);
        match (self.cap, self.fresh(now)) {
            (Some(cap), _) if cap < uncapped => "operator",
            (_, Some(status)) => match status.state.as_str() {
                "cutting" | "floor" => "latency",
                other => other,
            },
            (_, None) => "start",
        }
    }

    fn fresh(&self, now: Duration) -> Option<&Status> {
        self.status.as_ref().filter(|status| now.saturating_sub(status.at) < STATUS_KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(at_s: u64, share: f64, state: &str) -> Option<Status> {
        Some(Status {
            at: Duration::from_secs(at_s),
            share,
            state: state.to_owned(),
            p99_ms: None,
            queue_depth: 0,
        })
    }

    #[test]
    fn the_rate_is_the_share_of_the_link_under_the_cap_and_its_owner_is_named() {
        let at = Duration::from_secs;
        let mut node = Node::new(1000, at(0));
        let seen =
            |node: &Node, now| (node.bytes_per_second(at(now)), node.owner(at(now)).to_owned());
        assert_eq!(seen(&node, 0), (200, "start".to_owned()));
        node.status = status(1, 0.5, "ceiling");
        assert_eq!(seen(&node, 2), (500, "ceiling".to_owned()));
        node.status = status(2, 0.05, "floor");
        assert_eq!(seen(&node, 2), (50, "latency".to_owned()));
        node.cap = Some(400);
        assert_eq!(seen(&node, 2), (50, "latency".to_owned()), "a cap that does not bind");
        node.status = status(3, 0.5, "holding");
        assert_eq!(seen(&node, 3), (400, "operator".to_owned()));
        node.cap = None;
        assert_eq!(seen(&node, 9), (200, "start".to_owned()), "an agent that went silent");
        node.status = status(9, 7.0, "raising");
        assert_eq!(seen(&node, 9), (500, "raising".to_owned()));
        node.status = status(9, f64::NAN, "raising");
        assert_eq!(node.bytes_per_second(at(9)), 0);
    }
}
