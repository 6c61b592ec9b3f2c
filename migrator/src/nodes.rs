//! What is known of each node's link, and its two buckets.

mod vitals;

use std::time::Duration;

use evenkeel_model::decimal;
use evenkeel_proto::migrations::{Hello, NodeStatus};
use evenkeel_throttle::{MAX_SHARE, START_SHARE};

use crate::bucket::Bucket;
pub use vitals::Vitals;

/// Without a word for this long a node's share is not believed any more: no limit outlives the
/// agent that set it.
const STATUS_KEPT: Duration = Duration::from_secs(5);

/// What an agent said of itself last, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// When it came.
    pub at: Duration,
    /// What it said.
    pub said: NodeStatus,
}

/// Sums over a session of what agents tell by the second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Granted bytes that expired.
    pub expired_grant_bytes: u64,
    /// Requests refused at once.
    pub requests_shed: u64,
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
    /// The agent's life that the session is with.
    pub incarnation: u64,
    /// The p99 that its controller holds requests to, milliseconds.
    pub target_p99_ms: Option<f64>,
    /// What its agent said last.
    pub status: Option<Status>,
    /// What it said in sum.
    pub sums: Sums,
    /// How its requests fare.
    pub vitals: Vitals,
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
            incarnation: 0,
            target_p99_ms: None,
            status: None,
            sums: Sums::default(),
            vitals: Vitals::default(),
            egress: Bucket::new(0, now),
            ingress: Bucket::new(0, now),
        };
        node.refresh(now);
        node
    }

    /// A session begins. What an earlier one said of the node may be of another life of the agent.
    pub fn greet(&mut self, session: u64, hello: &Hello) {
        self.session = Some(session);
        self.incarnation = hello.incarnation;
        let target = hello.target_p99_ms;
        self.target_p99_ms = (target.is_finite() && target > 0.0).then_some(target);
        self.status = None;
        self.sums = Sums::default();
    }

    /// Takes the agent's word of the last second. `repairing` while a repair copy runs at it.
    pub fn hear(&mut self, now: Duration, said: NodeStatus, repairing: bool) {
        if self.fresh(now).is_none() {
            self.vitals.leave_floor();
        }
        self.vitals.observe(now, &said, self.target_p99_ms, repairing);
        let add = |sum: &mut u64, more| *sum = sum.saturating_add(more);
        add(&mut self.sums.expired_grant_bytes, said.expired_grant_bytes);
        add(&mut self.sums.requests_shed, said.requests_shed);
        self.status = Some(Status { at: now, said });
    }

    /// Sets both buckets to what holds now.
    pub fn refresh(&mut self, now: Duration) {
        let rate = self.bytes_per_second(now);
        self.egress.set_rate(rate);
        self.ingress.set_rate(rate);
    }

    /// The controller's share if it is fresh, else the one that every controller starts with.
    pub fn share(&self, now: Duration) -> f64 {
        self.fresh(now).map_or(START_SHARE, |said| said.share)
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
            (_, Some(said)) => match said.state.as_str() {
                "cutting" | "floor" => "latency",
                _ if self.is_spent(said) => "latency",
                other => other,
            },
            (_, None) => "start",
        }
    }

    fn is_spent(&self, said: &NodeStatus) -> bool {
        let target = self.target_p99_ms;
        target.is_some_and(|ms| evenkeel_throttle::is_spent(said.share, said.p99_ms, ms))
    }

    /// For how long its copies have had their least share with its requests too slow; no time while
    /// its agent is silent.
    pub fn at_floor(&self, now: Duration) -> Duration {
        self.fresh(now).map_or(Duration::ZERO, |_| self.vitals.at_floor(now))
    }

    /// Whether copies cannot take less and requests are still too slow.
    pub fn is_out_of_capacity(&self, now: Duration) -> bool {
        self.fresh(now).is_some() && self.vitals.is_out_of_capacity(now)
    }

    /// What the agent said, unless that is too long ago.
    pub fn fresh(&self, now: Duration) -> Option<&NodeStatus> {
        let status = self.status.as_ref()?;
        (now.saturating_sub(status.at) < STATUS_KEPT).then_some(&status.said)
    }

    /// The effective rate, who decides about it, and the operator's cap, for people.
    pub fn reason(&self, now: Duration) -> String {
        let effective = rate(self.bytes_per_second(now));
        let owner = self.owner(now);
        match self.cap {
            Some(cap) if owner == "operator" => {
                let state = self.fresh(now).map_or("start", |said| said.state.as_str());
                format!("{effective}, operator's cap of {}; controller {state}", rate(cap))
            }
            Some(cap) => format!("{effective}, {owner}; operator's cap {}", rate(cap)),
            None => format!("{effective}, {owner}"),
        }
    }
}

fn rate(bytes_per_second: u64) -> String {
    format!("{}/s", decimal(bytes_per_second as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(at_s: u64, share: f64, state: &str) -> Option<Status> {
        let said = NodeStatus { share, state: state.to_owned(), ..NodeStatus::default() };
        Some(Status { at: Duration::from_secs(at_s), said })
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

    #[test]
    fn the_reason_names_the_rate_its_owner_and_the_cap() {
        let at = Duration::from_secs;
        let mut node = Node::new(80_000_000, at(0));
        assert_eq!(node.reason(at(0)), "16.0 MB/s, start");
        node.status = status(1, 0.05, "floor");
        node.cap = Some(10_000_000);
        assert_eq!(node.reason(at(1)), "4.0 MB/s, latency; operator's cap 10.0 MB/s");
        node.status = status(1, 0.5, "ceiling");
        let expected = "10.0 MB/s, operator's cap of 10.0 MB/s; controller ceiling";
        assert_eq!(node.reason(at(1)), expected);
    }

    #[test]
    fn an_agent_that_is_silent_or_begins_anew_is_not_at_its_floor() {
        let at = Duration::from_secs;
        let mut node = Node::new(1000, at(0));
        let hello = Hello { target_p99_ms: 100.0, ..Hello::default() };
        node.greet(1, &hello);
        let slow = || NodeStatus {
            share: 0.05,
            state: "holding".to_owned(),
            p99_ms: Some(200.0),
            ..NodeStatus::default()
        };
        (0..=70).for_each(|second| node.hear(at(second), slow(), false));
        assert_eq!((node.at_floor(at(70)), node.is_out_of_capacity(at(70))), (at(70), true));
        assert_eq!(node.owner(at(70)), "latency", "it holds because requests are slow");
        assert_eq!((node.at_floor(at(75)), node.is_out_of_capacity(at(75))), (at(0), false));
        node.hear(at(90), slow(), false);
        assert_eq!(node.at_floor(at(91)), at(1), "the silence does not count");
        node.greet(2, &hello);
        assert_eq!(node.at_floor(at(92)), at(0));
        node.hear(at(92), slow(), false);
        assert_eq!(node.at_floor(at(92)), at(0), "another session begins anew");
    }
}
