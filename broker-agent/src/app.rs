//! Wires one broker-agent together, runs it, and takes it apart in order.

use std::collections::BTreeSet;
use std::future::Future;
use std::hash::Hasher as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_coordination::{Session, SessionConfig, Store, View, ViewConfig};
use evenkeel_model::keys::Keys;
use evenkeel_model::{BrokerId, RECORD_VERSION, Registration};
use evenkeel_proto::migrations::{Hello, NodeStatus};
use evenkeel_runtime::network::advertised;
use evenkeel_runtime::{Environment, Health, Incoming, Shutdown, etcd, grpc, http};
use evenkeel_throttle::Law;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::config::Config;
use crate::copies::orders::Desk;
use crate::copies::pull::Destination;
use crate::copies::session::MigratorSession;
use crate::copies::source::CopySource;
use crate::copies::throttle::{Buckets, Controller};
use crate::farewell::{leads_nothing, say_farewell};
use crate::gateway::holding::HoldLimits;
use crate::gateway::service::{Gateway, GatewayLimits};
use crate::host::{HostContext, OpenHost, ShardHost, Surroundings};
use crate::identity::Identity;
use crate::leftovers::erase_leftovers;
use crate::load::machine::Machine;
use crate::measuring::Measuring;
use crate::metrics;
use crate::registration::Registrar;
use crate::reports::ReportWriter;
use crate::routes::Routes;
use crate::watching::{OwnKey, Watching, prefixes};

/// Runs a broker-agent with a shard host of the caller's until it has stopped cleanly.
pub async fn run_with<F, Fut>(config: Config, env: Environment, open: F) -> anyhow::Result<()>
where
    F: FnOnce(HostContext) -> Fut,
    Fut: Future<Output = anyhow::Result<OpenHost>>,
{
    metrics::describe();
    let identity = take_identity(&config, &env)?;
    let incoming = env.network.listen(&config.listen).await?;
    let http = env.network.listen(&config.metrics_listen).await?;
    let (store, etcd) = etcd::open(&config.etcd, &env).await?;
    let agent = Agent::start(&config, &env, identity, &store, incoming, http, open).await?;
    let result = agent.run(&config, &env).await;
    etcd.stop().await;
    result
}

fn take_identity(config: &Config, env: &Environment) -> anyhow::Result<Identity> {
    let fallback = || {
        // The directory tells brokers apart that are started together on one machine.
        let mut hash = std::hash::DefaultHasher::new();
        hash.write_u64(env.seed);
        hash.write_i64(env.clock.now_ms());
        hash.write(config.data_dir.as_os_str().as_encoded_bytes());
        let id = format!("broker-{:08x}", hash.finish() & 0xffff_ffff);
        BrokerId::new(&id).expect("hexadecimal digits are allowed in ids")
    };
    Ok(Identity::take(&config.data_dir, config.broker_id.as_ref(), fallback)?)
}

/// What the host sees of the agent.
struct Around {
    session: Session,
    routes: Routes,
}

impl Surroundings for Around {
    fn is_alive(&self) -> bool {
        self.session.is_alive()
    }

    fn address_of(&self, broker: &BrokerId) -> Option<String> {
        self.routes.address_of(broker)
    }
}

/// A running agent.
struct Agent {
    identity: Identity,
    session: Session,
    routes: Routes,
    host: Arc<dyn ShardHost>,
    registration: watch::Sender<Registration>,
    /// Stops serving; later than the request to stop.
    serving: Shutdown,
    registrar: tokio::task::JoinHandle<anyhow::Result<()>>,
    servers: JoinSet<anyhow::Result<()>>,
    /// Ended by dropping it.
    _loops: JoinSet<()>,
}

impl Agent {
    #[expect(clippy::too_many_arguments, reason = "everything that was opened at the start")]
    async fn start<F, Fut>(
        config: &Config,
        env: &Environment,
        identity: Identity,
        store: &Store,
        incoming: Incoming,
        http: Incoming,
        open: F,
    ) -> anyhow::Result<Self>
    where
        F: FnOnce(HostContext) -> Fut,
        Fut: Future<Output = anyhow::Result<OpenHost>>,
    {
        let me = identity.broker.clone();
        let keys = Keys::new(&config.root);
        let session =
            Session::start(store.clone(), SessionConfig::new("broker", config.lease_ttl()));
        let routes = Routes::default();
        let (reports, edges) = mpsc::unbounded_channel();
        let around = Around { session: session.clone(), routes: routes.clone() };
        let opened = open(HostContext {
            broker: me.clone(),
            data_dir: identity.data_dir.join("shards"),
            log: config.log.clone(),
            clock: env.clock.clone(),
            network: env.network.clone(),
            surroundings: Arc::new(around),
            reports,
        });
        let OpenHost { host, serve } = opened.await.context("cannot open the shard host")?;
        let registration = watch::Sender::new(registration(config, env, &identity, &incoming));
        log_start(&identity, &registration.borrow().address, &http);

        let health = Health::new();
        health.not_ready("etcd", "not registered yet");
        let (own_tx, own) = watch::channel(OwnKey::Gone(0));
        let (held_tx, held) = watch::channel(BTreeSet::new());
        let view = View::start(store.clone(), prefixes(&keys, &me), ViewConfig::per_prefix());
        let mut loops = JoinSet::new();
        loops.spawn(
            Watching {
                me: me.clone(),
                keys: keys.clone(),
                view,
                routes: routes.clone(),
                host: host.clone(),
                own: own_tx,
                held: held_tx,
            }
            .run(),
        );
        loops.spawn(
            ReportWriter {
                store: store.clone(),
                session: session.clone(),
                keys: keys.clone(),
                clock: env.clock.clone(),
                me: me.clone(),
                incarnation: identity.incarnation,
                edges,
                held: held.clone(),
            }
            .run(),
        );
        let (registered, is_registered) = watch::channel(None);
        let registrar = Registrar {
            store: store.clone(),
            session: session.clone(),
            keys: keys.clone(),
            wanted: registration.subscribe(),
            own,
            registered,
        };
        let registrar = tokio::spawn(async move { Ok(registrar.run().await?) });
        loops.spawn(follow_health(is_registered, health.clone()));
        let after = Duration::from_millis(config.leftover_erase_after_ms);
        loops.spawn(erase_leftovers(me, host.clone(), routes.clone(), held, after));

        let parts = Parts { config, env, routes: &routes, host: &host, identity: &identity };
        let gateway = parts.gateway();
        let copies = parts.copies(&gateway, &mut loops)?;
        loops.spawn(parts.measuring(store, &session, keys, &gateway, &registration).run());
        let server = grpc::Server::new(evenkeel_proto::DESCRIPTORS)?
            .add(gateway.server())
            .add(copies.server());
        let serving = Shutdown::new();
        let mut servers = JoinSet::new();
        let served = serve(server).serve(incoming, health.clone(), serving.clone());
        servers.spawn(async move { Ok(served.await?) });
        let pages = http::routes(env.metrics.clone(), health);
        let served = http::serve(http, pages, serving.clone());
        servers.spawn(async move { Ok(served.await?) });
        Ok(Self {
            identity,
            session,
            routes,
            host,
            registration,
            serving,
            registrar,
            servers,
            _loops: loops,
        })
    }

    async fn run(mut self, config: &Config, env: &Environment) -> anyhow::Result<()> {
        let ended = tokio::select! {
            biased;
            () = env.shutdown.requested() => Ok(()),
            result = &mut self.registrar => flatten(result),
            Some(result) = self.servers.join_next() => flatten(result),
        };
        if ended.is_ok() {
            self.hand_over(config, env).await;
        }
        self.registrar.abort();
        self.session.revoke().await;
        self.serving.trigger();
        self.host.close().await;
        while self.servers.join_next().await.is_some() {}
        tracing::info!("stopped");
        ended
    }

    /// Asks for a drain, serves until it leads nothing, and says farewell.
    async fn hand_over(&self, config: &Config, env: &Environment) {
        let me = &self.identity.broker;
        self.registration.send_modify(|registration| registration.stopping = true);
        let led = self.routes.led_by(me);
        tracing::info!(led, "stopping, handing shards over");
        let limit = Duration::from_millis(config.shutdown_handoff_timeout_ms);
        if !leads_nothing(&self.routes, me, limit).await {
            let led = self.routes.led_by(me);
            tracing::warn!(led, "stopping while shards are still led here");
        }
        say_farewell(&self.routes, &env.network, me, self.identity.incarnation).await;
    }
}

fn flatten(result: Result<anyhow::Result<()>, tokio::task::JoinError>) -> anyhow::Result<()> {
    result.map_err(anyhow::Error::from).and_then(|result| result)
}

fn log_start(identity: &Identity, address: &str, http: &Incoming) {
    tracing::info!(
        broker = %identity.broker,
        incarnation = identity.incarnation,
        address,
        metrics = http.address(),
        data_dir = %identity.data_dir.display(),
        "broker-agent started"
    );
}

fn registration(
    config: &Config,
    env: &Environment,
    identity: &Identity,
    incoming: &Incoming,
) -> Registration {
    let measured = || {
        let reading = config.measure_machine.then(|| Machine::default().read());
        reading.and_then(|reading| reading.cpus)
    };
    Registration {
        v: RECORD_VERSION,
        broker: identity.broker.clone(),
        address: advertised(config.advertise.as_deref(), incoming.address()),
        incarnation: identity.incarnation,
        zone: config.zone.clone(),
        region: config.region.clone(),
        labels: config.labels.clone(),
        max_shards: config.max_shards,
        weight: config.weight.or_else(measured).unwrap_or(1.0),
        network_bytes_per_second: config.network_bytes_per_second,
        disk_bytes_per_second: config.disk_bytes_per_second,
        stopping: false,
        registered_at_ms: env.clock.now_ms(),
    }
}

async fn follow_health(
    mut registered: watch::Receiver<Option<evenkeel_coordination::LeaseId>>,
    health: Health,
) {
    loop {
        match *registered.borrow_and_update() {
            Some(_) => health.ready("etcd"),
            None => health.not_ready("etcd", "not registered under a lease that is alive"),
        }
        if registered.changed().await.is_err() {
            return;
        }
    }
}

/// What several parts are built from.
struct Parts<'a> {
    config: &'a Config,
    env: &'a Environment,
    routes: &'a Routes,
    host: &'a Arc<dyn ShardHost>,
    identity: &'a Identity,
}

impl Parts<'_> {
    fn gateway(&self) -> Gateway {
        let limits = GatewayLimits {
            requests: self.config.requests_max,
            hold: HoldLimits {
                time: Duration::from_millis(self.config.move_hold_ms),
                count: self.config.move_hold_max,
            },
        };
        let me = self.identity.broker.clone();
        let network = self.env.network.clone();
        Gateway::new(me, self.host.clone(), self.routes.clone(), network, limits)
    }

    /// The controller and the session with the migrator are started; the source is returned.
    fn copies(&self, gateway: &Gateway, loops: &mut JoinSet<()>) -> anyhow::Result<CopySource> {
        let law = Law::new(self.config.copy_law, self.config.copy_target_p99_ms)?;
        let link = self.config.link();
        let buckets = Buckets::new(law.bytes_per_second(link));
        let (status_tx, status) = watch::channel(NodeStatus {
            share: law.share(),
            state: "no_data".to_owned(),
            ..NodeStatus::default()
        });
        loops.spawn(Controller::new(law, link, buckets.clone()).run(gateway.clone(), status_tx));
        let session = MigratorSession {
            routes: self.routes.clone(),
            destination: Destination {
                me: self.identity.broker.clone(),
                host: self.host.clone(),
                network: self.env.network.clone(),
                ingress: buckets.ingress.clone(),
                desk: Desk::default(),
            },
            hello: Hello {
                broker: self.identity.broker.to_string(),
                incarnation: self.identity.incarnation,
                network_bytes_per_second: link,
            },
            status,
        };
        loops.spawn(session.run());
        Ok(CopySource::new(self.host.clone(), buckets.egress))
    }

    fn measuring(
        &self,
        store: &Store,
        session: &Session,
        keys: Keys,
        gateway: &Gateway,
        registration: &watch::Sender<Registration>,
    ) -> Measuring {
        Measuring {
            store: store.clone(),
            session: session.clone(),
            keys,
            clock: self.env.clock.clone(),
            host: self.host.clone(),
            activity: gateway.activity().clone(),
            machine: self.config.measure_machine.then(Machine::default),
            registration: registration.clone(),
            weight_is_configured: self.config.weight.is_some(),
            sample_every: Duration::from_millis(self.config.load_sample_interval_ms),
            report_every: Duration::from_secs(self.config.load_report_interval_seconds),
            smoothing: Duration::from_secs(self.config.load_smoothing_seconds),
        }
    }
}
