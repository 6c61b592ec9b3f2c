//! The demo's story over real processes and a real etcd, with kills at random points, judged by
//! what was acknowledged and by what was written.
//!
//! `EVENKEEL_E2E_SEEDS=20` runs more than the three seeds of the ordinary test run, and
//! `EVENKEEL_E2E_FIRST_SEED` begins elsewhere.

use std::time::Duration;

use evenkeel_e2e::{Cluster, Size, Witness};
use evenkeel_model::keys::Keys;
use evenkeel_proto::admin::{ActivateBrokerRequest, DrainBrokerRequest, Stream};
use evenkeel_simulator::traffic::{Traffic, TrafficPlan};
use evenkeel_testkit::EtcdVersion;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_evenkeel-under-test");
const SHARDS: u32 = 12;
const FACTOR: usize = 3;
const MOVES: u32 = 4;
const SIZE: Size = Size { load_managers: 2, migrators: 2, brokers: 5 };

fn number(variable: &str, default: u64) -> u64 {
    std::env::vars()
        .find(|(name, _)| name == variable)
        .map_or(default, |(_, value)| value.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_survives_kills_at_random_points() {
    let first = number("EVENKEEL_E2E_FIRST_SEED", 1);
    for seed in first..first + number("EVENKEEL_E2E_SEEDS", 3) {
        let version = if seed % 2 == 0 && EtcdVersion::V3_5.find().is_some() {
            EtcdVersion::V3_5
        } else {
            EtcdVersion::V3_4
        };
        let mut cluster = Cluster::start(PROGRAM, version, SIZE).await.unwrap();
        if let Err(error) = story(&mut cluster, seed).await {
            panic!("seed {seed}: {error:#}\n{}", cluster.logs());
        }
        println!("seed {seed}: held");
    }
}

async fn story(cluster: &mut Cluster, seed: u64) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let witness = Witness::start(&cluster.etcd.url(), MOVES).await?;
    cluster
        .set_policy(&json!({
            "broker_expiry_ms": 2000, "settle_ms": 1500, "reconcile_interval_ms": 300,
            "restore_after_ms": 2000, "moves_max_concurrent": MOVES, "mass_loss_percent": 80,
            "fence_timeout_ms": 10_000, "restore_stall_ms": 10_000, "move_timeout_ms": 30_000,
        }))
        .await?;
    let stream = Stream {
        stream: "stream/e2e/story".to_owned(),
        shards: SHARDS,
        replication_factor: FACTOR as u32,
        durable: true,
        ..Stream::default()
    };
    cluster.create_stream(stream).await?;
    settle(cluster, &witness, "fresh placement").await?;
    let plan = TrafficPlan {
        bootstrap: cluster.broker_addresses(),
        streams: vec!["stream/e2e/story".parse()?],
        shards: SHARDS,
        producers: 6,
        pause: Duration::from_millis(5),
        seed,
    };
    let traffic = Traffic::start(&cluster.network, &plan)?;
    let rounds = 6;
    for _ in 0..rounds {
        trouble(cluster, &mut rng).await?;
        pause(&mut rng, 200..1500).await;
    }
    for name in cluster.brokers() {
        cluster.start_process(&name)?;
    }
    settle(cluster, &witness, "recovery").await?;
    let reading = traffic.finish().await;
    anyhow::ensure!(reading.acknowledged > 0, "nothing was acknowledged");
    anyhow::ensure!(
        reading.faults.is_empty(),
        "{} faults: {:#?}",
        reading.faults.len(),
        &reading.faults[..reading.faults.len().min(20)]
    );
    let breaches = witness.breaches();
    anyhow::ensure!(breaches.is_empty(), "invariants broken: {breaches:#?}");
    Ok(())
}

/// One of: a broker killed and started again, a broker drained and put back, the leading load
/// manager killed, the active migrator killed.
async fn trouble(cluster: &mut Cluster, rng: &mut StdRng) -> anyhow::Result<()> {
    let brokers = cluster.brokers();
    let broker = brokers[rng.random_range(0..brokers.len())].clone();
    match rng.random_range(0..4) {
        0 => {
            cluster.kill9(&broker)?;
            pause(rng, 0..5000).await;
            cluster.start_process(&broker)?;
        }
        1 => {
            let request = DrainBrokerRequest { broker: broker.clone() };
            // Nobody may lead at this moment; then the round is without a drain.
            let drained = cluster.admin().await?.drain_broker(request).await.is_ok();
            pause(rng, 0..4000).await;
            if drained {
                activate(cluster, &broker).await?;
            }
        }
        2 => {
            let request = DrainBrokerRequest { broker: broker.clone() };
            let _ = cluster.admin().await?.drain_broker(request).await;
            pause(rng, 0..600).await;
            let leader = cluster.leading_load_manager().await?;
            cluster.kill9(&leader)?;
            pause(rng, 0..2000).await;
            cluster.start_process(&leader)?;
            activate(cluster, &broker).await?;
        }
        _ => {
            let key = Keys::default().migrator_leader();
            if let Some(active) = cluster.leader(&key).await? {
                cluster.kill9(&active)?;
                pause(rng, 0..2000).await;
                cluster.start_process(&active)?;
            }
        }
    }
    Ok(())
}

async fn activate(cluster: &Cluster, broker: &str) -> anyhow::Result<()> {
    cluster
        .ask("put the broker back", async |mut admin| {
            let request = ActivateBrokerRequest { broker: broker.to_owned() };
            admin.activate_broker(request).await.map(drop)
        })
        .await
}

/// Random points in time are what is tested here: nothing is waited for.
async fn pause(rng: &mut StdRng, range: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(rng.random_range(range))).await;
}

async fn settle(cluster: &Cluster, witness: &Witness, when: &str) -> anyhow::Result<()> {
    let live = cluster.live();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
    loop {
        let left = witness.unsettled(SHARDS as usize, FACTOR, &live);
        if left.is_empty() {
            return Ok(());
        }
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "{when}: not settled: {left:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
