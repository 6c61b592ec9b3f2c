//! Guarded steps per second of a running load manager, against raw transactions of the same shape
//! on the same etcd: `cargo bench -p evenkeel-load-manager --bench guarded_steps [-- SHARDS]`.
//! Needs an etcd program in PATH.

use std::time::Duration;

use anyhow::Context;
use evenkeel_coordination::{Guard, Guarded, Outcome, Store, View, ViewConfig, Write};
use evenkeel_load_manager::config::Config;
use evenkeel_model::{Assignment, AssignmentRecord, BrokerShard, Policy, Role, StreamKey};
use evenkeel_proto::admin::admin_client::AdminClient;
use evenkeel_proto::admin::{CreateStreamRequest, Stream};
use evenkeel_runtime::{Environment, EtcdOption, MetricsHandle, etcd};
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

const BROKERS: [&str; 3] = ["b1", "b2", "b3"];

/// As many as the load manager keeps in flight.
const IN_FLIGHT: usize = 32;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Cargo passes --bench.
    let shards = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(2000);
    let env = Environment::production(MetricsHandle::none())?;
    let (store, guard) = etcd::open(&EtcdOption::Spawn(None), &env).await?;
    let raw = raw_transactions(&store, shards).await?;
    let steps = steps(&store, guard.urls().to_vec(), &env, shards).await?;
    let ratio = steps / raw;
    println!("shards {shards}");
    println!("raw transactions per second {raw:.0}");
    println!("guarded steps per second    {steps:.0}");
    println!("ratio                       {ratio:.2}");
    env.shutdown.trigger();
    guard.stop().await;
    Ok(())
}

/// Transactions that write what a placement writes, without anybody planning them.
async fn raw_transactions(store: &Store, count: u32) -> anyhow::Result<f64> {
    let key: StreamKey = "stream/bench/raw".parse()?;
    let txn = |number: u32| -> anyhow::Result<Guarded> {
        let shard = key.shard(number);
        let assignment = Assignment::new(shard.clone(), "b1".parse()?, vec!["b2".parse()?]);
        let record = AssignmentRecord {
            v: 1,
            assignment: assignment.clone(),
            token: 1,
            operation: format!("bench-1-{number}"),
            written_at_ms: 1_700_000_000_000,
        };
        let put = |key: String, value| Write::Put { key, value, lease: None };
        let told = |role| {
            let told = BrokerShard { v: 1, role, assignment: assignment.clone(), token: 1 };
            evenkeel_model::encode(&told)
        };
        let stored = format!("/raw/shards/{shard}");
        let writes = vec![
            put(stored.clone(), evenkeel_model::encode(&record)),
            put(format!("/raw/brokers/b1/{shard}"), told(Role::Leader)),
            put(format!("/raw/brokers/b2/{shard}"), told(Role::Follower)),
            Write::Delete { key: format!("/raw/unassigned/{shard}") },
        ];
        Ok(Guarded { token: None, guards: vec![Guard::Absent { key: stored }], writes })
    };
    let txns = (0..count).map(txn).collect::<anyhow::Result<Vec<_>>>()?;
    let started = Instant::now();
    let mut outcomes = stream::iter(txns).map(|txn| store.commit(txn)).buffer_unordered(IN_FLIGHT);
    while let Some(outcome) = outcomes.next().await {
        anyhow::ensure!(matches!(outcome, Outcome::Written { .. }), "{outcome:?}");
    }
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

/// From the creation of a stream to the last of its shards' placements.
async fn steps(
    store: &Store,
    urls: Vec<String>,
    env: &Environment,
    shards: u32,
) -> anyhow::Result<f64> {
    let listen = "127.0.0.1:17100".to_owned();
    let config = Config {
        listen: listen.clone(),
        etcd: EtcdOption::Urls(urls),
        policy: Policy { settle_ms: 0, ..Policy::default() },
        ..Config::default()
    };
    tokio::spawn(evenkeel_load_manager::run(config, env.clone()));
    for broker in BROKERS {
        let registration = serde_json::json!({
            "broker": broker, "address": format!("{broker}:1"), "incarnation": 1,
        });
        let key = format!("/cluster/register/{broker}");
        store.put(&key, registration.to_string().into_bytes(), None).await?;
    }
    let view = View::start(
        store.clone(),
        vec!["/cluster/shards/".to_owned(), "/cluster/nodes/".to_owned()],
        ViewConfig::per_prefix(),
    );
    wait_for(&view, "/cluster/nodes/", BROKERS.len()).await?;
    let mut client = AdminClient::new(env.network.channel(&listen));
    let stream = Stream {
        stream: "stream/bench/steps".to_owned(),
        shards,
        replication_factor: 2,
        durable: true,
        created_at_ms: None,
        region: None,
    };
    let started = Instant::now();
    client.create_stream(CreateStreamRequest { stream: Some(stream) }).await?;
    wait_for(&view, "/cluster/shards/", shards as usize).await?;
    Ok(f64::from(shards) / started.elapsed().as_secs_f64())
}

async fn wait_for(view: &View, prefix: &str, count: usize) -> anyhow::Result<()> {
    let mut changed = view.changed();
    let found = async {
        while view.read(|state| state.range(prefix).count()) < count {
            if changed.changed().await.is_err() {
                return;
            }
        }
    };
    let limit = Duration::from_secs(120);
    tokio::time::timeout(limit, found).await.with_context(|| format!("waiting for {prefix}"))
}
