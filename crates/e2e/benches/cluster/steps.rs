//! Guarded steps per second of a load manager, against raw transactions of the same shape on the
//! same etcd. A step is a placement: an assignment, what three brokers are told, and a marker that
//! goes. The brokers are only registered: nobody acts on what they are told.

use std::time::Duration;

use anyhow::Context;
use evenkeel_coordination::{
    Guard, Guarded, Outcome, Store, StoreConfig, Token, View, ViewConfig, Write,
};
use evenkeel_e2e::{Cluster, Size};
use evenkeel_model::keys::Keys;
use evenkeel_model::{
    Assignment, AssignmentRecord, BrokerId, BrokerShard, RECORD_VERSION, Role, StreamKey,
};
use evenkeel_proto::admin::Stream;
use evenkeel_testkit::EtcdVersion;
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::time::Instant;

use crate::Args;
use evenkeel_e2e::bench::figures::{Aim, Figures, Sample};

const PART: &str = "steps";
const BROKERS: [&str; 3] = ["b1", "b2", "b3"];
const SIZE: Size = Size { load_managers: 1, migrators: 0, brokers: 0 };
const ROUNDS: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(60);

/// As many as the load manager keeps in flight.
const IN_FLIGHT: usize = 32;

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let cluster = Cluster::start(&args.program, EtcdVersion::V3_4, SIZE).await?;
    let store = Store::open(StoreConfig::urls([cluster.etcd.url()]))?;
    let keys = Keys::default();
    cluster.set_policy(&json!({ "settle_ms": 0 })).await?;
    for broker in BROKERS {
        let registration =
            json!({ "broker": broker, "address": format!("{broker}:1"), "incarnation": 1 });
        let key = keys.registration(&broker.parse()?);
        store.put(&key, registration.to_string().into_bytes(), None).await?;
    }
    let view = View::start(
        store.clone(),
        vec![keys.assignments(), keys.nodes()],
        ViewConfig::per_prefix(),
    );
    wait_for(&view, &keys.nodes(), BROKERS.len()).await?;
    let leader = store.get(&keys.load_manager_leader()).await?.context("nobody leads")?;
    let token = Token { key: leader.key, create_revision: leader.create_revision };
    let (mut raw, mut steps) = (Sample::default(), Sample::default());
    for round in 1..=ROUNDS {
        raw.add(raw_transactions(&store, &token, round, args.steps).await?);
        steps.add(placements(&cluster, &view, round, args.steps).await?);
    }
    let (raw, steps) = (raw.quantile(0.5), steps.quantile(0.5));
    figures.add(PART, "raw transactions, median of 3 rounds", raw, "1/s");
    figures.add(PART, "guarded steps, median of 3 rounds", steps, "1/s");
    figures.add(PART, "steps per raw transaction", steps / raw, "");
    figures.aim(Aim::AtLeast(0.5));
    Ok(())
}

/// Transactions that write what placements write, without anybody planning them.
async fn raw_transactions(
    store: &Store,
    token: &Token,
    round: u32,
    count: u32,
) -> anyhow::Result<f64> {
    let stream: StreamKey = format!("stream/bench/raw{round}").parse()?;
    let txns: Vec<Guarded> =
        (0..count).map(|n| placement(&stream, n, token)).collect::<anyhow::Result<_>>()?;
    let started = Instant::now();
    let mut outcomes = stream::iter(txns).map(|txn| store.commit(txn)).buffer_unordered(IN_FLIGHT);
    while let Some(outcome) = outcomes.next().await {
        anyhow::ensure!(matches!(outcome, Outcome::Written { .. }), "{outcome:?}");
    }
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

fn placement(stream: &StreamKey, number: u32, token: &Token) -> anyhow::Result<Guarded> {
    // Away from the cluster's keys, which are the load manager's to write.
    let keys = Keys::new("/raw");
    let shard = stream.shard(number);
    let [leader, followers @ ..] = &BROKERS;
    let followers: Vec<BrokerId> = followers.iter().map(|b| b.parse()).collect::<Result<_, _>>()?;
    let assignment = Assignment::new(shard.clone(), leader.parse()?, followers);
    let revision = token.create_revision;
    let record = AssignmentRecord {
        v: RECORD_VERSION,
        assignment: assignment.clone(),
        token: revision,
        operation: format!("{revision}-1-{number}"),
        written_at_ms: 1_700_000_000_000,
    };
    let put = |key: String, value| Write::Put { key, value, lease: None };
    let stored = keys.assignment(&shard);
    let mut writes = vec![put(stored.clone(), evenkeel_model::encode(&record))];
    for (broker, role) in assignment.members() {
        let told = BrokerShard {
            v: RECORD_VERSION,
            role,
            assignment: assignment.clone(),
            token: revision,
        };
        debug_assert!(matches!(role, Role::Leader | Role::Follower));
        writes.push(put(keys.broker_shard(broker, &shard), evenkeel_model::encode(&told)));
    }
    writes.push(Write::Delete { key: keys.marker(&shard) });
    let guards = vec![Guard::Absent { key: stored }];
    Ok(Guarded { token: Some(token.clone()), guards, writes })
}

/// From the creation of a stream to the last of its shards' placements.
async fn placements(cluster: &Cluster, view: &View, round: u32, count: u32) -> anyhow::Result<f64> {
    let stream = Stream {
        stream: format!("stream/bench/steps{round}"),
        shards: count,
        replication_factor: BROKERS.len() as u32,
        durable: true,
        ..Stream::default()
    };
    let prefix = Keys::default().assignments();
    let started = Instant::now();
    cluster.create_stream(stream).await?;
    wait_for(view, &prefix, (round * count) as usize).await?;
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
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
    let what = || format!("{count} keys under {prefix} are not there after {PATIENCE:?}");
    tokio::time::timeout(PATIENCE, found).await.with_context(what)
}
