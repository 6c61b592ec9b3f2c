//! The copy controller: once a second it looks at this broker's own requests and sets what copies
//! may take of the link.

use std::time::Duration;

use evenkeel_proto::migrations::NodeStatus;
use evenkeel_throttle::{Law, Sample, State};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::bucket::Bucket;
use crate::gateway::latency::Window;
use crate::gateway::service::Gateway;
use crate::load::smoothing::Smoothed;
use crate::metrics;

const PERIOD: Duration = Duration::from_secs(1);

/// Over how long the usual queue is learned, and the shortest that counts as one.
const QUEUE_MEMORY: Duration = Duration::from_secs(60);
const QUEUE_MIN: f64 = 16.0;

/// Both directions of the link, as far as copies may use it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Buckets {
    /// As a source.
    pub egress: Bucket,
    /// As a destination.
    pub ingress: Bucket,
}

impl Buckets {
    /// Both at one rate, bytes per second.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { egress: Bucket::new(bytes_per_second), ingress: Bucket::new(bytes_per_second) }
    }
}

/// The controller's loop.
pub struct Controller {
    law: Law,
    link: u64,
    buckets: Buckets,
    started: Instant,
    usual_queue: Smoothed,
    taken: (u64, u64),
    state: &'static str,
}

impl Controller {
    /// `link` in bytes per second.
    pub fn new(law: Law, link: u64, buckets: Buckets) -> Self {
        let rate = law.bytes_per_second(link);
        buckets.egress.set_rate(rate);
        buckets.ingress.set_rate(rate);
        Self {
            law,
            link,
            buckets,
            started: Instant::now(),
            usual_queue: Smoothed::default(),
            taken: (0, 0),
            state: State::NoData.as_str(),
        }
    }

    /// Runs for ever; `status` is told once a second.
    pub async fn run(mut self, gateway: Gateway, status: watch::Sender<NodeStatus>) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let window = gateway.latency().take();
            let admission = gateway.admission();
            let mut seen = self.observe(window, admission.writing(), admission.take_shed());
            seen.request_limit = admission.writing_max();
            status.send_replace(seen);
        }
    }

    fn observe(&mut self, window: Window, queue_depth: u64, shed: u64) -> NodeStatus {
        let allowed = self.law.bytes_per_second(self.link).max(1) as f64 * PERIOD.as_secs_f64();
        let taken = (self.buckets.egress.taken(), self.buckets.ingress.taken());
        let (egress, ingress) = (taken.0 - self.taken.0, taken.1 - self.taken.1);
        self.taken = taken;
        let usual = self.usual_queue.value().unwrap_or(0.0).max(QUEUE_MIN);
        self.usual_queue.add(queue_depth as f64, PERIOD, QUEUE_MEMORY);
        let state = self.law.observe(Sample {
            at_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            p99_ms: window.p99_ms,
            requests: window.requests,
            // Copies yield before requests are refused: a refusal says that they came too late.
            queue: Some(if shed > 0 { f64::INFINITY } else { queue_depth as f64 / usual }),
            used: (egress.max(ingress) as f64 / allowed).min(1.0),
        });
        let rate = self.law.bytes_per_second(self.link);
        self.buckets.egress.set_rate(rate);
        self.buckets.ingress.set_rate(rate);
        metrics::throttle(self.law.share(), state.as_str(), self.state, window.p99_ms);
        self.state = state.as_str();
        NodeStatus {
            p99_ms: window.p99_ms,
            requests: window.requests,
            queue_depth,
            share: self.law.share(),
            state: state.as_str().to_owned(),
            egress_bytes: egress,
            ingress_bytes: ingress,
            requests_shed: shed,
            ..NodeStatus::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_throttle::LawName;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_refuses_requests_cuts_its_copies_although_those_it_answers_are_quick() {
        let law = Law::new(LawName::Steady, 100.0).unwrap();
        let mut controller = Controller::new(law, 1_000_000, Buckets::new(1));
        let quick = Window { p99_ms: Some(20.0), requests: 1000 };
        for shed in [0, 0, 7] {
            tokio::time::advance(PERIOD).await;
            let status = controller.observe(quick, 3, shed);
            assert_eq!(status.state == "cutting", shed > 0, "{status:?}");
            assert_eq!(status.requests_shed, shed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_buckets_follow_the_law() {
        let buckets = Buckets::new(1);
        let law = Law::new(LawName::Plain, 100.0).unwrap();
        let mut controller = Controller::new(law, 1_000_000, buckets.clone());
        buckets.egress.take(1000).await;
        let slow = Window { p99_ms: Some(200.0), requests: 1000 };
        let status = controller.observe(slow, 3, 0);
        assert!((status.share - 0.14).abs() < 1e-9);
        assert_eq!((status.state.as_str(), status.egress_bytes), ("cutting", 1000));
        let status = controller.observe(Window { p99_ms: None, requests: 0 }, 0, 0);
        assert!((status.share - 0.14).abs() < 1e-9, "no data is not good news");
        assert_eq!((status.state.as_str(), status.egress_bytes), ("no_data", 0));
    }
}
