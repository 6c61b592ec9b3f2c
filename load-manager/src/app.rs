//! Wiring: from the configuration to a running load manager, and back to nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use evenkeel_coordination::{Election, ElectionConfig, Session, SessionConfig};
use evenkeel_model::keys::Keys;
use evenkeel_model::{LeaderRecord, RECORD_VERSION};
use evenkeel_proto::admin::admin_server::AdminServer;
use evenkeel_runtime::{Environment, Health, Incoming, Shutdown, etcd, grpc, http, network};

use crate::admin::AdminService;
use crate::cluster::{Cluster, ClusterParts};
use crate::config::Config;
use crate::leading::{self, LeaderConfig};
use crate::metrics;
use crate::records::Records;
use crate::upkeep::UpkeepConfig;

/// Runs a load manager until shutdown is requested, then hands over and returns.
///
/// # Errors
/// One line that names what cannot be had: an address in use, an etcd that does not answer.
pub async fn run(config: Config, env: Environment) -> anyhow::Result<()> {
    metrics::describe();
    let incoming = env.network.listen(&config.listen).await?;
    let metrics_incoming = match &config.metrics_listen {
        Some(address) => Some(env.network.listen(address).await?),
        None => None,
    };
    let address = network::advertised(config.advertise.as_deref(), incoming.address());
    let instance = match config.instance.as_str() {
        "" => format!("load-manager-{address}"),
        name => name.to_owned(),
    };
    let (store, etcd_guard) = etcd::open(&config.etcd, &env).await?;
    tracing::info!(
        instance,
        address,
        listen = incoming.address(),
        metrics = metrics_incoming.as_ref().map(Incoming::address),
        etcd = %store.endpoints(),
        "load manager starts"
    );

    let ttl = Duration::from_millis(config.session_ttl_ms);
    let session = Session::start(store.clone(), SessionConfig::new("load_manager", ttl));
    let keys = Keys::new(&config.root);
    let view = Records::view(store.clone(), &keys);
    let election = Election::start(
        store.clone(),
        session.clone(),
        election_config(&config, &env, &keys, instance.clone(), address),
    );
    let cluster = Arc::new(Cluster::new(ClusterParts {
        store,
        view,
        keys,
        clock: env.clock.clone(),
        instance,
        configured: config.policy.clone(),
    }));

    let health = Health::new();
    health.not_ready("session", "no etcd session yet");
    health.not_ready("view", "the cluster was not read yet");
    let work = leading::follow(
        cluster.clone(),
        election.clone(),
        leader_config(&config),
        env.shutdown.clone(),
    );
    let admin = AdminServer::new(AdminService::new(cluster.clone()));
    let server = grpc::Server::new(evenkeel_proto::DESCRIPTORS)?.add(admin);
    let serving = server.serve(incoming, health.clone(), env.shutdown.clone());
    let exposing = expose(&env, metrics_incoming, health.clone());
    let watching = watch_health(&cluster, &session, &health, &env.shutdown);
    // The admin service goes on while leadership is handed over: it tells where to go.
    let working = async {
        work.await;
        election.resign().await;
        session.revoke().await;
        Ok(())
    };
    let served = async { serving.await.context("the admin service ended") };
    tokio::try_join!(working, served, exposing, async {
        watching.await;
        Ok(())
    })?;
    etcd_guard.stop().await;
    tracing::info!("load manager stopped");
    Ok(())
}

fn election_config(
    config: &Config,
    env: &Environment,
    keys: &Keys,
    instance: String,
    address: String,
) -> ElectionConfig {
    let clock = env.clock.clone();
    let value = move || {
        evenkeel_model::encode(&LeaderRecord {
            v: RECORD_VERSION,
            instance: instance.clone(),
            address: address.clone(),
            elected_at_ms: clock.now_ms(),
        })
    };
    ElectionConfig::new("load_manager", keys.load_manager_leader(), Vec::new())
        .with_value(value)
        .with_progress_timeout(Duration::from_millis(config.progress_timeout_ms))
}

fn leader_config(config: &Config) -> LeaderConfig {
    LeaderConfig {
        down_grace_ms: config.down_grace_ms,
        upkeep: UpkeepConfig {
            history_keep_ms: config.history_keep_ms,
            history_max_entries: config.history_max_entries as usize,
            compaction_interval: Duration::from_millis(config.compaction_interval_ms),
        },
    }
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

/// Serving means: the lease is alive and the cluster was read. Leading is not part of it.
async fn watch_health(cluster: &Cluster, session: &Session, health: &Health, shutdown: &Shutdown) {
    let mut held = session.watch();
    let follow = async {
        cluster.view.ready().await;
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
        () = shutdown.requested() => health.not_ready("shutdown", "it was told to stop"),
        () = follow => {}
    }
}
