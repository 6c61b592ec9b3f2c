//! Wiring: from the configuration to a running migrator, and back to nothing.

use std::time::Duration;

use anyhow::Context;
use evenkeel_coordination::{Election, ElectionConfig, Session, SessionConfig, View, ViewConfig};
use evenkeel_model::keys::Keys;
use evenkeel_model::{LeaderRecord, RECORD_VERSION};
use evenkeel_proto::migrations::migrations_server::MigrationsServer;
use evenkeel_runtime::{Environment, Health, Incoming, Shutdown, etcd, grpc, http, network};

use crate::config::Config;
use crate::desk::Front;
use crate::engine::Settings;
use crate::leading::Leader;
use crate::metrics;
use crate::queue::Slots;
use crate::service::MigrationsService;
use crate::world;

/// Runs a migrator until shutdown is requested, then hands over and returns.
///
/// # Errors
/// One line that names what cannot be had: an address in use, an etcd that does not answer.
pub async fn run(config: Config, env: Environment) -> anyhow::Result<()> {
    metrics::describe();
    metrics::leading(false);
    let incoming = env.network.listen(&config.listen).await?;
    let metrics_incoming = match &config.metrics_listen {
        Some(address) => Some(env.network.listen(address).await?),
        None => None,
    };
    let address = network::advertised(config.advertise.as_deref(), incoming.address());
    let instance = match config.instance.as_str() {
        "" => format!("migrator-{address}"),
        name => name.to_owned(),
    };
    let (store, etcd_guard) = etcd::open(&config.etcd, &env).await?;
    tracing::info!(
        instance,
        address,
        listen = incoming.address(),
        metrics = metrics_incoming.as_ref().map(Incoming::address),
        etcd = %store.endpoints(),
        "migrator starts"
    );

    let ttl = Duration::from_millis(config.session_ttl_ms);
    let session = Session::start(store.clone(), SessionConfig::new("migrator", ttl));
    let keys = Keys::new(&config.root);
    let view = View::start(store.clone(), world::prefixes(&keys), ViewConfig::per_prefix());
    let election = Election::start(
        store.clone(),
        session.clone(),
        election_config(&config, &env, &keys, &instance, &address),
    );
    let front = Front::new(election.clone());
    let leader = Leader {
        store: store.clone(),
        session: session.clone(),
        election: election.clone(),
        view: view.clone(),
        keys: keys.clone(),
        clock: env.clock.clone(),
        front: front.clone(),
        settings: settings(&config, instance),
    };
    let service = MigrationsService { front, store, keys, clock: env.clock.clone() };

    let health = Health::new();
    health.not_ready("session", "no etcd session yet");
    health.not_ready("view", "the cluster was not read yet");
    let server =
        grpc::Server::new(evenkeel_proto::DESCRIPTORS)?.add(MigrationsServer::new(service));
    let serving = server.serve(incoming, health.clone(), env.shutdown.clone());
    let served = async { serving.await.context("the migrations service ended") };
    let exposing = expose(&env, metrics_incoming, health.clone());
    let watching = watch_health(&view, &session, &health, &env.shutdown);
    let working = async {
        leader.run(env.shutdown.clone()).await;
        election.resign().await;
        session.revoke().await;
        Ok(())
    };
    let watching = async {
        watching.await;
        Ok(())
    };
    tokio::try_join!(working, served, exposing, watching)?;
    etcd_guard.stop().await;
    tracing::info!("migrator stopped");
    Ok(())
}

fn settings(config: &Config, instance: String) -> Settings {
    Settings {
        instance,
        token: 0,
        slots: Slots {
            cluster: config.copies_max_concurrent as usize,
            per_node: config.copies_max_per_node as usize,
        },
        round: Duration::from_millis(config.round_ms),
        record_every: Duration::from_millis(config.record_interval_ms),
        stall: Duration::from_millis(config.copy_stall_ms),
    }
}

fn election_config(
    config: &Config,
    env: &Environment,
    keys: &Keys,
    instance: &str,
    address: &str,
) -> ElectionConfig {
    let (clock, instance, address) = (env.clock.clone(), instance.to_owned(), address.to_owned());
    let value = move || {
        evenkeel_model::encode(&LeaderRecord {
            v: RECORD_VERSION,
            instance: instance.clone(),
            address: address.clone(),
            elected_at_ms: clock.now_ms(),
        })
    };
    ElectionConfig::new("migrator", keys.migrator_leader(), Vec::new())
        .with_value(value)
        .with_progress_timeout(Duration::from_millis(config.progress_timeout_ms))
}

async fn expose(
    env: &Environment,
    incoming: Option<Incoming>,
    health: Health,
) -> anyhow::Result<()> {
    let Some(incoming) = incoming else { return Ok(()) };
    let routes = http::routes(env.metrics.clone(), health);
    http::serve(incoming, routes, env.shutdown.clone()).await.context("the metrics endpoint ended")
}

/// Ready means: the lease is alive and the cluster was read. A standby is as ready as the leader.
async fn watch_health(view: &View, session: &Session, health: &Health, shutdown: &Shutdown) {
    let mut held = session.watch();
    let follow = async {
        view.ready().await;
        health.ready("view");
        loop {
            if held.borrow_and_update().is_some() {
                health.ready("session");
            } else {
                health.not_ready("session", "no etcd session");
            }
            if held.changed().await.is_err() {
                health.not_ready("session", "the etcd session has ended");
                return;
            }
        }
    };
    tokio::select! {
        biased;
        () = shutdown.requested() => health.not_ready("shutdown", "stopping"),
        () = follow => {}
    }
}
