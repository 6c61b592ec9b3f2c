//! Measures load, writes the load report, and keeps the gauges of what is held here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_coordination::{LeaseId, Session, Store};
use evenkeel_model::keys::Keys;
use evenkeel_model::{BrokerId, Registration, Role, encode};
use evenkeel_runtime::Clock;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::gateway::activity::Activity;
use crate::halted::Halted;
use crate::host::{ShardCounters, ShardHost};
use crate::load::machine::{Machine, Reading};
use crate::load::report::LoadMeter;
use crate::maintenance::disk_space::used_ratio;
use crate::metrics;

/// The loop of load.
pub(crate) struct Measuring {
    pub(crate) store: Store,
    pub(crate) session: Session,
    pub(crate) keys: Keys,
    pub(crate) clock: Clock,
    pub(crate) host: Arc<dyn ShardHost>,
    pub(crate) activity: Activity,
    pub(crate) halted: Halted,
    /// None: the machine is not measured.
    pub(crate) machine: Option<Machine>,
    /// Where the logs are.
    pub(crate) data_dir: PathBuf,
    /// Follows the measured weight, unless one is configured.
    pub(crate) registration: watch::Sender<Registration>,
    pub(crate) weight_is_configured: bool,
    pub(crate) sample_every: Duration,
    pub(crate) report_every: Duration,
    pub(crate) smoothing: Duration,
}

impl Measuring {
    /// Runs for ever.
    pub(crate) async fn run(self) {
        let mut meter = LoadMeter::new(self.smoothing);
        let mut ticks = interval(self.sample_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        let mut reported: Option<(Instant, LeaseId)> = None;
        let mut samples = 0_u64;
        let mut lagging = BTreeMap::new();
        loop {
            ticks.tick().await;
            let now = Instant::now();
            let reading = self.machine.as_ref().map(Machine::read).unwrap_or_default();
            let counters = self.host.counters();
            self.gauges(&counters, &mut lagging);
            meter.add(&reading, counters, now - last);
            last = now;
            samples += 1;
            self.follow_weight(&reading);
            // One sample gives no rate, and a report without rates would look like an idle broker.
            let Some(lease) = self.session.lease().filter(|_| samples > 1) else { continue };
            let due = reported
                .is_none_or(|(at, under)| under != lease.id || now - at >= self.report_every);
            if due && self.write(&meter, lease.id).await {
                reported = Some((now, lease.id));
            }
        }
    }

    async fn write(&self, meter: &LoadMeter, lease: LeaseId) -> bool {
        let (broker, incarnation) = {
            let registration = self.registration.borrow();
            (registration.broker.clone(), registration.incarnation)
        };
        let connected = self.activity.connected();
        let disk_used = self.disk_used().await;
        let report = meter.report(self.clock.now_ms(), incarnation, &connected, disk_used);
        let written = self.store.put(&self.keys.load(&broker), encode(&report), Some(lease)).await;
        if let Err(error) = &written {
            tracing::warn!(%error, "load report was not written");
        }
        written.is_ok()
    }

    /// Used part of the disk; none if the machine is not measured.
    async fn disk_used(&self) -> Option<f64> {
        self.machine.as_ref()?;
        let directory = self.data_dir.clone();
        let asked = tokio::task::spawn_blocking(move || used_ratio(&directory)).await;
        asked.ok().and_then(|used| used.ok())
    }

    /// `lagging` remembers the followers, so that one that is followed no more is set to 0.
    fn gauges(&self, counters: &[ShardCounters], lagging: &mut BTreeMap<BrokerId, u64>) {
        lagging.values_mut().for_each(|lag| *lag = 0);
        for (follower, lag) in counters.iter().flat_map(|c| &c.follower_lag) {
            let worst = lagging.entry(follower.clone()).or_default();
            *worst = (*worst).max(*lag);
        }
        for (follower, lag) in lagging.iter() {
            metrics::replication_lag(follower, *lag);
        }
        metrics::stored_bytes(counters.iter().map(|c| c.size_bytes).sum());
        let held: Vec<Role> = counters
            .iter()
            .filter_map(|c| self.host.watch(&c.shard))
            .map(|watch| watch.borrow().role)
            .collect();
        for role in [Role::Leader, Role::Follower, Role::Successor, Role::Joining] {
            metrics::shards(role.as_str(), held.iter().filter(|r| **r == role).count());
        }
        metrics::halted(self.halted.count());
    }

    fn follow_weight(&self, reading: &Reading) {
        let Some(cpus) = reading.cpus.filter(|_| !self.weight_is_configured) else { return };
        self.registration.send_if_modified(|registration| {
            let changed = (registration.weight - cpus).abs() > 0.01;
            if changed {
                registration.weight = cpus;
            }
            changed
        });
    }
}
