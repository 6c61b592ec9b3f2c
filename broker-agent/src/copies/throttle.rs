//! The copy controller: once a second it looks at this broker's own requests and sets what copies
//! and maintenance may take of the link.

use std::time::Duration;

use evenkeel_proto::migrations::NodeStatus;
use evenkeel_throttle::{Beside, Law, Ramp, Sample, State};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::bucket::Bucket;
use super::orders::Desk;
use crate::gateway::latency::Window;
use crate::gateway::service::Gateway;
use crate::load::smoothing::Smoothed;
use crate::maintenance::admission::{Admission, Period};
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
    ramp: Ramp,
    link: u64,
    admission: Admission,
    desk: Desk,
    started: Instant,
    usual_queue: Smoothed,
    taken: (u64, u64),
    state: &'static str,
}

impl Controller {
    /// `link` in bytes per second. The rates of `admission` follow the law and the ramp; `desk`
    /// knows of grants that expired.
    pub fn new(law: Law, ramp: Ramp, link: u64, admission: Admission, desk: Desk) -> Self {
        admission.set_rates(law.bytes_per_second(link), 0);
        Self {
            law,
            ramp,
            link,
            admission,
            desk,
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
        let period = self.admission.period();
        let allowed = self.law.bytes_per_second(self.link).max(1) as f64 * PERIOD.as_secs_f64();
        let copies = self.admission.copies();
        let taken = (copies.egress.taken(), copies.ingress.taken());
        let (egress, ingress) = (taken.0 - self.taken.0, taken.1 - self.taken.1);
        self.taken = taken;
        let copied = egress.max(ingress);
        let usual = self.usual_queue.value().unwrap_or(0.0).max(QUEUE_MIN);
        self.usual_queue.add(queue_depth as f64, PERIOD, QUEUE_MEMORY);
        let sample = Sample {
            at_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            p99_ms: window.p99_ms,
            requests: window.requests,
            // Copies yield before requests are refused: a refusal says that they came too late.
            queue: Some(if shed > 0 { f64::INFINITY } else { queue_depth as f64 / usual }),
            used: ((copied + period.bytes) as f64 / allowed).min(1.0),
        };
        let state = self.law.observe(sample);
        self.split(&sample, &period, copied as f64, allowed);
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
            maintenance_backlog_bytes: self.admission.backlog(),
            maintenance_bytes: period.bytes,
            maintenance_bytes_per_second: self.admission.rate(),
            expired_grant_bytes: self.desk.take_expired(),
            requests_shed: shed,
            ..NodeStatus::default()
        }
    }

    /// Gives maintenance its part of what the law allows, and copies the rest. `copied` and
    /// `allowed` are bytes of the last period.
    fn split(&mut self, sample: &Sample, period: &Period, copied: f64, allowed: f64) {
        let had = (self.admission.rate() as f64 * PERIOD.as_secs_f64()).max(1.0);
        let beside = Beside {
            share: self.law.share(),
            repairing: period.repairing,
            copies: period.copying.then(|| copied / (allowed - had).max(1.0)),
            used: if period.waiting { 1.0 } else { period.bytes as f64 / had },
        };
        self.ramp.observe(sample, &beside);
        let ramp = (self.link as f64 * self.ramp.share()) as u64;
        self.admission.set_share(self.law.share());
        self.admission.set_rates(self.law.bytes_per_second(self.link), ramp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maintenance::Job;
    use evenkeel_model::CopyClass;
    use evenkeel_throttle::{LawName, MIN_SHARE, RAISE, TRICKLE};
    use tokio::time::sleep;

    const CALM: Window = Window { p99_ms: Some(10.0), requests: 1000 };

    fn controller(law: LawName, admission: &Admission, link: u64) -> Controller {
        let (law, ramp) = (Law::new(law, 100.0).unwrap(), Ramp::new(100.0).unwrap());
        Controller::new(law, ramp, link, admission.clone(), Desk::default())
    }

    /// A job that has work for longer than any test.
    fn always_deleting(admission: &Admission) {
        let mut work = admission.work(Job::Deletion, u64::MAX / 4);
        let steps = admission.clone();
        tokio::spawn(async move {
            loop {
                let bytes = steps.step_bytes();
                work.acquire(bytes).await;
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_refuses_requests_cuts_its_copies_although_those_it_answers_are_quick() {
        let mut controller = controller(LawName::Steady, &Admission::new(1), 1_000_000);
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
        let admission = Admission::new(1);
        let mut controller = controller(LawName::Plain, &admission, 1_000_000);
        admission.copies().egress.take(1000).await;
        let slow = Window { p99_ms: Some(200.0), requests: 1000 };
        let status = controller.observe(slow, 3, 0);
        assert!((status.share - 0.14).abs() < 1e-9);
        assert_eq!((status.state.as_str(), status.egress_bytes), ("cutting", 1000));
        let status = controller.observe(Window { p99_ms: None, requests: 0 }, 0, 0);
        assert!((status.share - 0.14).abs() < 1e-9, "no data is not good news");
        assert_eq!((status.state.as_str(), status.egress_bytes), ("no_data", 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_repair_holds_maintenance_back_and_its_end_lets_it_ramp() {
        const LINK: u64 = 100_000_000;
        let admission = Admission::new(1);
        let mut controller = controller(LawName::Plain, &admission, LINK);
        let repair = admission.copying(CopyClass::UnderReplicated);
        always_deleting(&admission);
        let mut done = Vec::new();
        for _ in 0..20 {
            sleep(PERIOD).await;
            let status = controller.observe(CALM, 0, 0);
            assert!(status.maintenance_backlog_bytes > 0);
            done.push((status.maintenance_bytes, status.share));
        }
        for (bytes, share) in &done[2..] {
            let trickle = LINK as f64 * share * TRICKLE;
            assert!((*bytes as f64) < trickle + 32_768.0, "{bytes} with a trickle of {trickle}");
        }
        assert!(done.iter().map(|(bytes, _)| bytes).sum::<u64>() > 20 * LINK / 1000, "starved");
        drop(repair);
        let (mut ramp, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..60 {
            sleep(PERIOD).await;
            let status = controller.observe(CALM, 0, 0);
            ramp.push(status.maintenance_bytes as f64);
            rates.push(status.maintenance_bytes_per_second as f64);
        }
        // One whole quiet second passes before it starts.
        let floor = LINK as f64 * MIN_SHARE;
        assert!(ramp[0] < floor / 5.0, "{ramp:?}");
        for pair in rates.windows(2) {
            assert!(pair[1] <= (pair[0] * RAISE + 1.0).max(floor), "{pair:?} of {rates:?}");
        }
        // What is done follows, to within a step at either end of a second.
        for pair in ramp.windows(2) {
            let most = (pair[0] * (RAISE + 0.04)).max(floor * 1.04) + 32_768.0;
            assert!(pair[1] <= most, "{pair:?} of {ramp:?}");
        }
        assert!(ramp.iter().any(|bytes| *bytes > 3.0 * floor), "it rises: {ramp:?}");
        let slow = Window { p99_ms: Some(130.0), requests: 1000 };
        let before = controller.observe(CALM, 0, 0).maintenance_bytes_per_second;
        let cut = controller.observe(slow, 0, 0).maintenance_bytes_per_second;
        assert!(cut as f64 <= before as f64 * 0.71, "{before} then {cut}");
    }

    #[tokio::test(start_paused = true)]
    async fn both_streams_together_stay_within_the_share() {
        const LINK: u64 = 50_000_000;
        let admission = Admission::new(1);
        let mut controller = controller(LawName::Plain, &admission, LINK);
        always_deleting(&admission);
        for class in [CopyClass::LastCopy, CopyClass::Balance] {
            let copy = admission.copying(class);
            let egress = admission.copies().egress.clone();
            let copying = tokio::spawn(async move {
                loop {
                    egress.take(64 << 10).await;
                }
            });
            for _ in 0..30 {
                let allowed = LINK as f64 * controller.law.share();
                sleep(PERIOD).await;
                let status = controller.observe(CALM, 0, 0);
                let sum = (status.egress_bytes + status.maintenance_bytes) as f64;
                // A bucket may be one taking and 50 ms ahead.
                assert!(sum <= allowed * 1.05 + 400_000.0, "{class:?}: {sum} of {allowed}");
                assert!(sum >= allowed * 0.9, "{class:?}: {sum} of {allowed}");
            }
            copying.abort();
            drop(copy);
        }
    }
}
