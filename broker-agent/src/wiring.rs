//! The loops of one agent, each connected to what it reads and writes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_coordination::{LeaseId, Session, Store, View, ViewConfig};
use evenkeel_model::keys::Keys;
use evenkeel_model::{BrokerId, Registration, ShardReport};
use evenkeel_proto::migrations::{Hello, NodeStatus};
use evenkeel_runtime::{Environment, Health};
use evenkeel_throttle::{Law, Ramp, State};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::config::Config;
use crate::copies::orders::Desk;
use crate::copies::pull::Destination;
use crate::copies::session::MigratorSession;
use crate::copies::source::CopySource;
use crate::copies::throttle::Controller;
use crate::gateway::holding::HoldLimits;
use crate::gateway::service::{Gateway, GatewayLimits};
use crate::halted::Halted;
use crate::host::ShardHost;
use crate::leftovers::Leftovers;
use crate::load::machine::Machine;
use crate::maintenance::admission::Admission;
use crate::maintenance::disk_space::watch_disk;
use crate::measuring::Measuring;
use crate::offers::Offers;
use crate::registration::Registrar;
use crate::reports::ReportWriter;
use crate::routes::Routes;
use crate::switchover::Switchovers;
use crate::watching::{OwnKey, Watching, prefixes};

/// What the loops are built from.
pub(crate) struct Wiring {
    pub(crate) config: Config,
    pub(crate) env: Environment,
    pub(crate) me: BrokerId,
    pub(crate) incarnation: u64,
    pub(crate) keys: Keys,
    pub(crate) store: Store,
    pub(crate) session: Session,
    pub(crate) routes: Routes,
    pub(crate) host: Arc<dyn ShardHost>,
    pub(crate) registration: watch::Sender<Registration>,
    pub(crate) health: Health,
    pub(crate) halted: Halted,
    pub(crate) admission: Admission,
    pub(crate) loops: JoinSet<()>,
}

impl Wiring {
    /// Registration, what is told, what is reported back, and what is left over. Returns the
    /// registrar, whose end is the agent's.
    pub(crate) fn assignments(
        &mut self,
        edges: mpsc::UnboundedReceiver<ShardReport>,
    ) -> JoinHandle<anyhow::Result<()>> {
        let (own_tx, own) = watch::channel(OwnKey::Gone(0));
        let (held_tx, held) = watch::channel(BTreeSet::new());
        let (offered, offers) = Offers::new(self.me.clone());
        let switchovers = Switchovers::default();
        let watched = prefixes(&self.keys, &self.me);
        let watching = Watching {
            me: self.me.clone(),
            keys: self.keys.clone(),
            view: View::start(self.store.clone(), watched, ViewConfig::per_prefix()),
            routes: self.routes.clone(),
            host: self.host.clone(),
            own: own_tx,
            held: held_tx,
            switchovers: switchovers.clone(),
        };
        self.loops.spawn(watching.run());
        let reports = ReportWriter {
            store: self.store.clone(),
            session: self.session.clone(),
            keys: self.keys.clone(),
            clock: self.env.clock.clone(),
            me: self.me.clone(),
            incarnation: self.incarnation,
            edges,
            held: held.clone(),
            offers,
            switchovers,
            halted: self.halted.clone(),
        };
        self.loops.spawn(reports.run());
        let leftovers = Leftovers {
            me: self.me.clone(),
            host: self.host.clone(),
            routes: self.routes.clone(),
            store: self.store.clone(),
            keys: self.keys.clone(),
            held,
            offers: offered,
            after: Duration::from_millis(self.config.leftover_erase_after_ms),
        };
        self.loops.spawn(leftovers.run());

        self.health.not_ready("etcd", NOT_REGISTERED);
        let (registered, is_registered) = watch::channel(None);
        self.loops.spawn(follow_health(is_registered, self.health.clone()));
        let registrar = Registrar {
            store: self.store.clone(),
            session: self.session.clone(),
            keys: self.keys.clone(),
            wanted: self.registration.subscribe(),
            own,
            registered,
        };
        tokio::spawn(async move { Ok(registrar.run().await?) })
    }

    /// The clients' door.
    pub(crate) fn gateway(&mut self) -> Gateway {
        let limits = GatewayLimits {
            requests: self.config.requests_max,
            bytes: self.config.requests_max_bytes,
            hold: HoldLimits {
                time: Duration::from_millis(self.config.move_hold_ms),
                count: self.config.move_hold_max,
            },
        };
        let (host, routes) = (self.host.clone(), self.routes.clone());
        let gateway = Gateway::new(self.me.clone(), host, routes, self.env.network.clone(), limits);
        if self.config.shed_latency_ms > 0 {
            let calm = Duration::from_millis(self.config.shed_latency_ms);
            self.loops.spawn(gateway.admission().clone().follow_latency(calm));
        }
        gateway
    }

    /// The controller and the session with the migrator. Returns the source's service.
    pub(crate) fn copies(&mut self, gateway: &Gateway) -> anyhow::Result<CopySource> {
        let law = Law::new(self.config.copy_law, self.config.copy_target_p99_ms)?;
        let link = self.config.link();
        let ramp = Ramp::new(self.config.copy_target_p99_ms)?;
        let (admission, desk) = (self.admission.clone(), Desk::default());
        let (status_tx, status) = watch::channel(NodeStatus {
            share: law.share(),
            state: State::NoData.as_str().to_owned(),
            ..NodeStatus::default()
        });
        let controller = Controller::new(law, ramp, link, admission.clone(), desk.clone());
        self.loops.spawn(controller.run(gateway.clone(), status_tx));
        let session = MigratorSession {
            routes: self.routes.clone(),
            destination: Destination {
                me: self.me.clone(),
                host: self.host.clone(),
                network: self.env.network.clone(),
                ingress: admission.copies().ingress.clone(),
                admission: admission.clone(),
                desk,
            },
            hello: Hello {
                broker: self.me.to_string(),
                incarnation: self.incarnation,
                network_bytes_per_second: link,
                target_p99_ms: self.config.copy_target_p99_ms,
            },
            status,
        };
        self.loops.spawn(session.run());
        // A machine that is not measured has no disk of its own either.
        if self.config.measure_machine {
            let (dir, high) = (self.config.data_dir.clone(), self.config.disk_high_water_percent);
            self.loops.spawn(watch_disk(dir, high, admission.clone()));
        }
        Ok(CopySource::new(self.host.clone(), admission))
    }

    /// Load measurements and reports.
    pub(crate) fn load(&mut self, gateway: &Gateway) {
        let measuring = Measuring {
            store: self.store.clone(),
            session: self.session.clone(),
            keys: self.keys.clone(),
            clock: self.env.clock.clone(),
            host: self.host.clone(),
            activity: gateway.activity().clone(),
            halted: self.halted.clone(),
            machine: self.config.measure_machine.then(Machine::default),
            data_dir: self.config.data_dir.clone(),
            registration: self.registration.clone(),
            weight_is_configured: self.config.weight.is_some(),
            sample_every: Duration::from_millis(self.config.load_sample_interval_ms),
            report_every: Duration::from_secs(self.config.load_report_interval_seconds),
            smoothing: Duration::from_secs(self.config.load_smoothing_seconds),
        };
        self.loops.spawn(measuring.run());
    }
}

const NOT_REGISTERED: &str = "not registered under a lease that is alive";

async fn follow_health(mut registered: watch::Receiver<Option<LeaseId>>, health: Health) {
    loop {
        match *registered.borrow_and_update() {
            Some(_) => health.ready("etcd"),
            None => health.not_ready("etcd", NOT_REGISTERED),
        }
        if registered.changed().await.is_err() {
            return;
        }
    }
}
