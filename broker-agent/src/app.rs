//! Starts a broker-agent, runs it, and takes it apart in order.

use std::future::Future;
use std::hash::Hasher as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_coordination::{Session, SessionConfig, Store};
use evenkeel_model::keys::Keys;
use evenkeel_model::{BrokerId, RECORD_VERSION, Registration};
use evenkeel_runtime::network::advertised;
use evenkeel_runtime::{Environment, Health, Incoming, Shutdown, etcd, grpc, http};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};

use crate::config::Config;
use crate::farewell::{leads_nothing, say_farewell};
use crate::halted::Halted;
use crate::host::{HostContext, OpenHost, ShardHost, Surroundings, builtin};
use crate::identity::Identity;
use crate::load::machine::Machine;
use crate::maintenance::admission::Admission;
use crate::metrics;
use crate::routes::Routes;
use crate::wiring::Wiring;

/// Runs a broker-agent with the built-in shard host until it has stopped cleanly.
pub async fn run(config: Config, env: Environment) -> anyhow::Result<()> {
    run_with(config, env, builtin::open).await
}

/// Runs a broker-agent with a shard host of the caller's until it has stopped cleanly.
pub async fn run_with<F, Fut>(config: Config, env: Environment, open: F) -> anyhow::Result<()>
where
    F: FnOnce(HostContext) -> Fut,
    Fut: Future<Output = anyhow::Result<OpenHost>>,
{
    metrics::describe();
    let identity = take_identity(&config, &env)?;
    let listening = Listening {
        services: env.network.listen(&config.listen).await?,
        pages: env.network.listen(&config.metrics_listen).await?,
    };
    let (store, etcd) = etcd::open(&config.etcd, &env).await?;
    let agent = Agent::start(&config, &env, identity, store, listening, open).await?;
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

struct Listening {
    services: Incoming,
    pages: Incoming,
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
    registrar: JoinHandle<anyhow::Result<()>>,
    servers: JoinSet<anyhow::Result<()>>,
    /// Ended by dropping it.
    _loops: JoinSet<()>,
}

impl Agent {
    async fn start<F, Fut>(
        config: &Config,
        env: &Environment,
        identity: Identity,
        store: Store,
        listening: Listening,
        open: F,
    ) -> anyhow::Result<Self>
    where
        F: FnOnce(HostContext) -> Fut,
        Fut: Future<Output = anyhow::Result<OpenHost>>,
    {
        let ttl = config.lease_ttl();
        let session = Session::start(store.clone(), SessionConfig::new("broker", ttl));
        let routes = Routes::default();
        let (reports, edges) = mpsc::unbounded_channel();
        let admission = Admission::new(config.link());
        let around = Around { session: session.clone(), routes: routes.clone() };
        let opened = open(HostContext {
            broker: identity.broker.clone(),
            data_dir: identity.data_dir.join("shards"),
            log: config.log.clone(),
            clock: env.clock.clone(),
            network: env.network.clone(),
            surroundings: Arc::new(around),
            reports,
            maintenance: admission.clone(),
        });
        let OpenHost { host, serve } = opened.await.context("cannot open the shard host")?;
        let first = registration(config, env, &identity, listening.services.address());
        log_start(&identity, &first.address, listening.pages.address());

        let mut wiring = Wiring {
            config: config.clone(),
            env: env.clone(),
            me: identity.broker.clone(),
            incarnation: identity.incarnation,
            keys: Keys::new(&config.root),
            store,
            session: session.clone(),
            routes: routes.clone(),
            host: host.clone(),
            registration: watch::Sender::new(first),
            health: Health::new(),
            halted: Halted::default(),
            admission,
            loops: JoinSet::new(),
        };
        let registrar = wiring.assignments(edges);
        let gateway = wiring.gateway();
        let source = wiring.copies(&gateway)?;
        wiring.load(&gateway);
        let server = grpc::Server::new(evenkeel_proto::DESCRIPTORS)?;
        let server = serve(server.add(gateway.server()).add(source.server()));
        let Wiring { registration, health, halted, loops, .. } = wiring;
        let serving = Shutdown::new();
        let pages = http::routes(env.metrics.clone(), health.clone()).merge(halted.page());
        let servers = listening.serve(server, pages, health, &serving);
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
        tracing::info!(broker = %self.identity.broker, "stopped");
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

impl Listening {
    fn serve(
        self,
        server: grpc::Server,
        pages: axum::Router,
        health: Health,
        until: &Shutdown,
    ) -> JoinSet<anyhow::Result<()>> {
        let mut servers = JoinSet::new();
        let served = http::serve(self.pages, pages, until.clone());
        servers.spawn(async move { Ok(served.await?) });
        let served = server.serve(self.services, health, until.clone());
        servers.spawn(async move { Ok(served.await?) });
        servers
    }
}

fn flatten(result: Result<anyhow::Result<()>, JoinError>) -> anyhow::Result<()> {
    result.map_err(anyhow::Error::from).and_then(|result| result)
}

fn log_start(identity: &Identity, address: &str, metrics: &str) {
    tracing::info!(
        broker = %identity.broker,
        incarnation = identity.incarnation,
        address,
        metrics,
        data_dir = %identity.data_dir.display(),
        "broker-agent started"
    );
}

fn registration(
    config: &Config,
    env: &Environment,
    identity: &Identity,
    bound: &str,
) -> Registration {
    let measured = || {
        let reading = config.measure_machine.then(|| Machine::default().read());
        reading.and_then(|reading| reading.cpus)
    };
    Registration {
        v: RECORD_VERSION,
        broker: identity.broker.clone(),
        address: advertised(config.advertise.as_deref(), bound),
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
