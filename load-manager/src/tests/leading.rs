//! The whole service on virtual time: election, passes, hand-over.

use std::time::Duration;

use evenkeel_coordination::{Endpoint, Store, StoreConfig};
use evenkeel_embedded_etcd::EmbeddedEtcd;
use evenkeel_model::{AssignmentRecord, LeaderRecord, Lifecycle, NodeRecord};
use evenkeel_runtime::{Clock, Environment, SimNetwork, StoreFactory};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::stock::registration;
use crate::config::Config;

struct World {
    network: SimNetwork,
    clock: Clock,
    outside: Store,
}

impl World {
    async fn start() -> Self {
        let network = SimNetwork::new(1);
        let incoming = network.host("etcd").listen("etcd:2379").await.unwrap();
        tokio::spawn(EmbeddedEtcd::new(1).serve(incoming, std::future::pending()));
        let clock = Clock::simulated(1_700_000_000_000);
        let outside = store(&network, "test");
        Self { network, clock, outside }
    }

    fn load_manager(&self, name: &'static str) -> (Environment, JoinHandle<anyhow::Result<()>>) {
        let network = self.network.clone();
        let factory = StoreFactory::new(move || store(&network, name));
        let host = self.network.host(name);
        let env = Environment::simulated(host, self.clock.clone(), 1, factory);
        let config = Config {
            instance: name.to_owned(),
            listen: format!("{name}:7100"),
            policy: evenkeel_model::Policy { settle_ms: 0, ..Default::default() },
            ..Config::default()
        };
        (env.clone(), tokio::spawn(crate::run(config, env)))
    }

    async fn put(&self, key: &str, value: serde_json::Value) {
        self.outside.put(key, value.to_string().into_bytes(), None).await.unwrap();
    }

    /// Waits until the record at `key` is as wanted, and says how long that took.
    async fn wait<T: DeserializeOwned>(&self, key: &str, wanted: impl Fn(&T) -> bool) -> Duration {
        let started = Instant::now();
        let found = async {
            loop {
                if let Some(entry) = self.outside.get(key).await.unwrap()
                    && wanted(&evenkeel_model::decode(key, &entry.value).unwrap())
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(60), found)
            .await
            .unwrap_or_else(|_| panic!("waited for {key}"));
        started.elapsed()
    }
}

fn store(network: &SimNetwork, host: &str) -> Store {
    let network = network.host(host);
    let channel = move || network.bulk_channel("etcd:2379");
    Store::open(StoreConfig::new([Endpoint::Channel(std::sync::Arc::new(channel))])).unwrap()
}

#[tokio::test(start_paused = true)]
async fn brokers_go_live_and_down_and_a_report_leads_to_the_next_step_at_once() {
    let world = World::start().await;
    let (env, running) = world.load_manager("lm-1");
    for broker in ["b1", "b2"] {
        world.put(&format!("/cluster/register/{broker}"), registration(broker, 1, false)).await;
        let key = format!("/cluster/nodes/{broker}");
        world.wait(&key, |n: &NodeRecord| n.lifecycle == Lifecycle::Live).await;
    }
    let stream = json!({ "stream": "stream/d/s", "shards": 1, "replication_factor": 2 });
    world.put("/cluster/streams/stream/d/s", stream).await;
    let key = "/cluster/shards/stream/d/s/0";
    let took = world.wait(key, |a: &AssignmentRecord| a.assignment.generation == 1).await;
    assert!(took < Duration::from_millis(50), "{took:?}");

    let entry = world.outside.get(key).await.unwrap().unwrap();
    let placed: AssignmentRecord = evenkeel_model::decode(key, &entry.value).unwrap();
    let leader = placed.assignment.leader.unwrap();
    let follower = placed.assignment.followers[0].clone();
    let report = |broker: &str, generation: u64, phase: &str| {
        json!({
            "broker": broker, "shard": "stream/d/s/0", "generation": generation, "phase": phase,
            "caught_up": true, "lag_records": 0, "log_end": 1, "incarnation": 1,
            "drained": phase == "drained",
        })
    };
    let report_key = |broker: &str| format!("/cluster/reports/{broker}/stream/d/s/0");
    world.put(&report_key(leader.as_str()), report(leader.as_str(), 1, "serving")).await;
    world.put(&report_key(follower.as_str()), report(follower.as_str(), 1, "following")).await;

    // Told to stop: drained, fenced, and cut over as soon as the reports allow.
    let stopping = registration(leader.as_str(), 1, true);
    world.put(&format!("/cluster/register/{leader}"), stopping).await;
    world.wait(key, |a: &AssignmentRecord| a.assignment.generation == 2).await;
    world.put(&report_key(follower.as_str()), report(follower.as_str(), 2, "following")).await;
    world.put(&report_key(leader.as_str()), report(leader.as_str(), 2, "drained")).await;
    let led = |a: &AssignmentRecord| a.assignment.leader.as_ref() == Some(&follower);
    let took = world.wait(key, led).await;
    assert!(took < Duration::from_millis(20), "{took:?}");

    // Its registration goes: down half a second later.
    world.outside.delete(&format!("/cluster/register/{leader}")).await.unwrap();
    let key = format!("/cluster/nodes/{leader}");
    let took = world.wait(&key, |n: &NodeRecord| n.lifecycle == Lifecycle::Down).await;
    assert!((490..650).contains(&took.as_millis()), "{took:?}");

    env.shutdown.trigger();
    running.await.unwrap().unwrap();
    let left = world.outside.get("/cluster/leader/load-manager").await.unwrap();
    assert_eq!(left, None, "leadership is handed back on a clean stop");
}

#[tokio::test(start_paused = true)]
async fn readers_of_the_admin_service_do_not_hold_a_pass_back() {
    let world = World::start().await;
    let (env, running) = world.load_manager("lm-1");
    world.wait("/cluster/leader/load-manager", |l: &LeaderRecord| l.instance == "lm-1").await;
    let channel = world.network.host("test").channel("lm-1:7100");
    let mut client = evenkeel_proto::admin::admin_client::AdminClient::new(channel);
    let polling = tokio::spawn(async move {
        while client.status(evenkeel_proto::admin::StatusRequest {}).await.is_ok() {
            // The paused clock only goes on while nobody is busy.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    for round in 0..20 {
        let broker = format!("b{round}");
        world.put(&format!("/cluster/register/{broker}"), registration(&broker, 1, false)).await;
        let live = |n: &NodeRecord| n.lifecycle == Lifecycle::Live;
        let took = world.wait(&format!("/cluster/nodes/{broker}"), live).await;
        assert!(took < Duration::from_millis(100), "{broker} {took:?}");
    }
    env.shutdown.trigger();
    running.await.unwrap().unwrap();
    polling.abort();
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_at_once_when_the_leader_stops() {
    let world = World::start().await;
    let (first, running) = world.load_manager("lm-1");
    let leader = "/cluster/leader/load-manager";
    world.wait(leader, |l: &LeaderRecord| l.instance == "lm-1").await;
    let (second, standby) = world.load_manager("lm-2");
    tokio::time::sleep(Duration::from_secs(3)).await;
    first.shutdown.trigger();
    let took = world.wait(leader, |l: &LeaderRecord| l.instance == "lm-2").await;
    assert!(took < Duration::from_millis(500), "{took:?}");
    running.await.unwrap().unwrap();
    world.put("/cluster/register/b1", registration("b1", 1, false)).await;
    let live = |n: &NodeRecord| n.lifecycle == Lifecycle::Live;
    let took = world.wait("/cluster/nodes/b1", live).await;
    assert!(took < Duration::from_millis(100), "{took:?}");
    second.shutdown.trigger();
    standby.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_skew_is_repaired_when_only_time_has_passed() {
    let world = World::start().await;
    let (_env, _running) = world.load_manager("lm-1");
    for broker in ["b1", "b2"] {
        world.put(&format!("/cluster/register/{broker}"), registration(broker, 1, false)).await;
        let key = format!("/cluster/nodes/{broker}");
        world.wait(&key, |n: &NodeRecord| n.lifecycle == Lifecycle::Live).await;
    }
    // Both are led by one broker, and no copy is made where one was given up for ten minutes.
    let now_ms = world.clock.now_ms();
    for (number, ago) in [(0, 580_000), (1, 1_000)] {
        let shard = format!("stream/d/s/{number}");
        let at_ms = now_ms - ago;
        let entry = json!({
            "at_ms": at_ms, "shard": shard, "from": "b1", "to": "b2", "reason": "stream_balance",
            "outcome": "given_up",
        });
        world.put(&format!("/cluster/rebalancing_history/{at_ms:015}-{shard}"), entry).await;
        let assignment = json!({ "shard": shard, "leader": "b1", "generation": 1 });
        world.put(&format!("/cluster/shards/{shard}"), assignment).await;
        let report = json!({
            "broker": "b1", "shard": shard, "generation": 1, "phase": "serving", "incarnation": 1,
        });
        world.put(&format!("/cluster/reports/b1/{shard}"), report).await;
    }
    let stream = json!({ "stream": "stream/d/s", "shards": 2, "replication_factor": 1 });
    world.put("/cluster/streams/stream/d/s", stream).await;
    let staged = |a: &AssignmentRecord| a.assignment.successor.is_some();
    let took = world.wait("/cluster/shards/stream/d/s/0", staged).await;
    // No later than the interval between passes after the ten minutes.
    let (due, interval) = (Duration::from_secs(20), Duration::from_secs(5));
    assert!(took > due && took < due + interval + Duration::from_secs(1), "{took:?}");
}
