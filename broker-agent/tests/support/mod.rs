//! Agents in this process, each in a runtime of its own so that it can be killed, over an embedded
//! etcd on loopback. The tests write the assignments that a load manager would.

#![allow(dead_code, reason = "not every test file uses all of it")]

pub(crate) mod damaging;
pub(crate) mod migrator;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use evenkeel_broker_agent::config::{Config, Fsync};
use evenkeel_coordination::{Entry, Guarded, Outcome, Store, StoreConfig, View, ViewConfig, Write};
use evenkeel_embedded_etcd::EmbeddedEtcd;
use evenkeel_model::keys::Keys;
use evenkeel_model::{
    Assignment, AssignmentRecord, BrokerId, BrokerShard, Phase, Registration, ReportRecord,
    ShardKey, ShardReport, decode, encode,
};
use evenkeel_proto::data::shards_client::ShardsClient;
use evenkeel_proto::data::{PublishRequest, PublishResponse, Record};
use evenkeel_proto::migrations::CopyOrder;
use evenkeel_runtime::{Clock, Environment, MetricsHandle, Network, Shutdown};
use tonic::Status;
use tonic::transport::Channel;

/// Longest wait for anything that is expected to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn id(text: &str) -> BrokerId {
    text.parse().unwrap()
}

pub(crate) fn shard(number: u32) -> ShardKey {
    format!("stream/default/orders/{number}").parse().unwrap()
}

/// An agent in a runtime of its own.
pub(crate) struct Running {
    runtime: Option<tokio::runtime::Runtime>,
    shutdown: Shutdown,
    ended: tokio::sync::oneshot::Receiver<anyhow::Result<()>>,
}

impl Running {
    /// As `kill -9` would: nothing more is done, the lease runs out.
    pub(crate) fn kill(mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }

    /// As SIGSTOP and, later, SIGCONT would: its only thread does nothing else for so long.
    pub(crate) fn freeze(&self, time: Duration) {
        let runtime = self.runtime.as_ref().unwrap();
        runtime.spawn(async move { std::thread::sleep(time) });
    }

    /// As SIGTERM would.
    pub(crate) fn ask_to_stop(&self) {
        self.shutdown.trigger();
    }

    /// Waits for its end.
    pub(crate) async fn ended(mut self) -> anyhow::Result<()> {
        let result = tokio::time::timeout(PATIENCE, &mut self.ended).await.unwrap().unwrap();
        self.runtime.take().unwrap().shutdown_background();
        result
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The store, a view of everything, and the agents' directories.
pub(crate) struct Cluster {
    pub(crate) keys: Keys,
    pub(crate) store: Store,
    pub(crate) view: View,
    pub(crate) url: String,
    dir: tempfile::TempDir,
    network: Network,
    members: BTreeMap<ShardKey, Vec<BrokerId>>,
    pub(crate) etcd: EmbeddedEtcd,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let (etcd, address) = EmbeddedEtcd::listen("127.0.0.1:0", 7).await.unwrap();
        let url = format!("http://{address}");
        let store = Store::open(StoreConfig::urls(vec![url.clone()])).unwrap();
        let view = View::start(store.clone(), vec!["/cluster/".into()], ViewConfig::default());
        view.ready().await;
        Self {
            keys: Keys::default(),
            store,
            view,
            url,
            dir: tempfile::tempdir().unwrap(),
            network: Network::tcp(),
            members: BTreeMap::new(),
            etcd,
        }
    }

    pub(crate) fn data_dir(&self, broker: &str) -> PathBuf {
        self.dir.path().join(broker)
    }

    pub(crate) fn config(&self, broker: &str) -> Config {
        let mut config = Config {
            etcd: self.url.parse().unwrap(),
            broker_id: Some(id(broker)),
            data_dir: self.data_dir(broker),
            listen: "127.0.0.1:0".to_owned(),
            metrics_listen: "127.0.0.1:0".to_owned(),
            lease_ttl_ms: 2000,
            load_report_interval_seconds: 1,
            load_sample_interval_ms: 200,
            shutdown_handoff_timeout_ms: 10_000,
            leftover_erase_after_ms: 500,
            // How full the machine's disk is must decide nothing here.
            disk_high_water_percent: 0,
            ..Config::default()
        };
        config.log.fsync = Fsync::Never;
        config
    }

    pub(crate) fn run(&self, config: Config) -> Running {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let shutdown = Shutdown::new();
        let env = Environment {
            clock: Clock::system(),
            network: Network::tcp(),
            shutdown: shutdown.clone(),
            seed: 1,
            store: None,
            metrics: MetricsHandle::none(),
        };
        let (end, ended) = tokio::sync::oneshot::channel();
        runtime.spawn(async move {
            let _ = end.send(evenkeel_broker_agent::run(config, env).await);
        });
        Running { runtime: Some(runtime), shutdown, ended }
    }

    /// Starts agents and waits until they are registered.
    pub(crate) async fn agents(&self, brokers: &[&str]) -> BTreeMap<String, Running> {
        let mut running = BTreeMap::new();
        for broker in brokers {
            running.insert((*broker).to_owned(), self.run(self.config(broker)));
        }
        for broker in brokers {
            self.registered(broker).await;
        }
        running
    }

    /// Waits for a broker's registration.
    pub(crate) async fn registered(&self, broker: &str) -> Registration {
        let key = self.keys.registration(&id(broker));
        self.until(&format!("registration of {broker}"), |get| Some(parse(get(&key)?))).await
    }

    /// Waits until the store shows something.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&dyn Fn(&str) -> Option<Entry>) -> Option<T>,
    ) -> T {
        let mut changed = self.view.changed();
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                changed.mark_unchanged();
                let found = self.view.read(|state| look(&|key: &str| state.get(key).cloned()));
                if let Some(found) = found {
                    return found;
                }
                changed.changed().await.unwrap();
            }
        });
        match found.await {
            Ok(found) => found,
            Err(_) => {
                let all: Vec<String> = self.view.read(|s| {
                    let entries = s.range("/cluster/reports/");
                    entries.map(|e| String::from_utf8_lossy(&e.value).into_owned()).collect()
                });
                panic!("waited in vain for {what}; reports:\n{}", all.join("\n"))
            }
        }
    }

    /// Waits for a broker's report about a shard that satisfies a condition.
    pub(crate) async fn report(
        &self,
        broker: &str,
        shard: &ShardKey,
        what: &str,
        mut holds: impl FnMut(&ShardReport) -> bool,
    ) -> ShardReport {
        let key = self.keys.report(&id(broker), shard);
        let what = format!("{broker} to report {what} about {shard}");
        self.until(&what, |get| {
            let record: ReportRecord = parse(get(&key)?);
            Some(record.report).filter(|report| holds(report))
        })
        .await
    }

    /// Waits until a leader serves at a generation.
    pub(crate) async fn serving(&self, broker: &str, shard: &ShardKey, generation: u64) {
        self.report(broker, shard, "serving", |report| {
            report.generation == generation && report.phase == Some(Phase::Serving)
        })
        .await;
    }

    /// Writes an assignment as a load manager does: the record and every member's, at once.
    pub(crate) async fn assign(&mut self, assignment: &Assignment) {
        let shard = &assignment.shard;
        let record = AssignmentRecord {
            v: 1,
            assignment: assignment.clone(),
            token: 1,
            operation: format!("test-{}", assignment.generation),
            written_at_ms: 0,
        };
        let put = |key, value| Write::Put { key, value, lease: None };
        let mut writes = vec![put(self.keys.assignment(shard), encode(&record))];
        let mut members = Vec::new();
        for (broker, role) in assignment.members() {
            let told = BrokerShard { v: 1, role, assignment: assignment.clone(), token: 1 };
            writes.push(put(self.keys.broker_shard(broker, shard), encode(&told)));
            members.push(broker.clone());
        }
        for former in self.members.insert(shard.clone(), members.clone()).unwrap_or_default() {
            if !members.contains(&former) {
                writes.push(Write::Delete { key: self.keys.broker_shard(&former, shard) });
            }
        }
        let guarded = Guarded { token: None, guards: Vec::new(), writes };
        assert!(matches!(self.store.commit(guarded).await, Outcome::Written { .. }));
    }

    pub(crate) async fn address(&self, broker: &str) -> String {
        self.registered(broker).await.address
    }

    /// The migrator's order to repair the first shard from `b2`.
    pub(crate) async fn repair_order(&self) -> CopyOrder {
        CopyOrder {
            shard: shard(0).to_string(),
            generation: 2,
            class: "under_replicated".to_owned(),
            source: "b2".to_owned(),
            source_address: self.address("b2").await,
            token: 1,
        }
    }

    pub(crate) async fn client(&self, broker: &str) -> ShardsClient<Channel> {
        ShardsClient::new(self.network.channel(&self.address(broker).await))
    }
}

pub(crate) fn parse<T: serde::de::DeserializeOwned>(entry: Entry) -> T {
    decode(&entry.key, &entry.value).unwrap()
}

/// One record of a named producer.
pub(crate) async fn publish(
    client: &mut ShardsClient<Channel>,
    shard: &ShardKey,
    sequence: u64,
) -> Result<PublishResponse, Status> {
    let record = Record {
        payload: format!("record {sequence}").into_bytes().into(),
        producer_id: 9,
        sequence,
        key: None,
    };
    let request =
        PublishRequest { shard: shard.to_string(), records: vec![record], forwarded: false };
    client.publish(request).await.map(tonic::Response::into_inner)
}

/// Records of a named producer, each of so many bytes.
pub(crate) async fn publish_batch(
    client: &mut ShardsClient<Channel>,
    shard: &ShardKey,
    first: u64,
    count: u64,
    payload: usize,
) {
    let record = |sequence| Record {
        payload: vec![sequence as u8; payload].into(),
        producer_id: 9,
        sequence,
        key: None,
    };
    let request = PublishRequest {
        shard: shard.to_string(),
        records: (first..first + count).map(record).collect(),
        forwarded: false,
    };
    client.publish(request).await.unwrap();
}
