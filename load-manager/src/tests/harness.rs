//! A cluster over an embedded etcd, driven one pass at a time.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_coordination::{
    Election, ElectionConfig, Entry, Session, SessionConfig, Store, StoreConfig,
};
use evenkeel_embedded_etcd::EmbeddedEtcd;
use evenkeel_model::keys::Keys;
use evenkeel_model::{AssignmentRecord, BrokerShard, LeaderRecord, NodeRecord, Policy};
use evenkeel_runtime::Clock;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::stock::registration;
use crate::cluster::{Cluster, ClusterParts, Leading};
use crate::pass::{self, Memory, PassReport};
use crate::records::Records;

/// One elected load manager whose passes the test runs itself.
pub(super) struct Harness {
    pub(super) etcd: EmbeddedEtcd,
    pub(super) cluster: Arc<Cluster>,
    pub(super) election: Election,
    pub(super) leading: Leading,
    pub(super) memory: Memory,
    /// A client beside the load manager: agents, rivals, vandals.
    pub(super) outside: Store,
}

fn open(address: &str) -> Store {
    Store::open(StoreConfig::urls([format!("http://{address}")])).unwrap()
}

impl Harness {
    pub(super) async fn start() -> Self {
        Self::with(Policy { settle_ms: 0, ..Policy::default() }).await
    }

    pub(super) async fn with(configured: Policy) -> Self {
        let (etcd, address) = EmbeddedEtcd::listen("127.0.0.1:0", 7).await.unwrap();
        let store = open(&address);
        let keys = Keys::default();
        let session =
            Session::start(store.clone(), SessionConfig::new("test", Duration::from_secs(30)));
        let leader = LeaderRecord {
            v: 1,
            instance: "lm-1".to_owned(),
            address: "lm-1:7100".to_owned(),
            elected_at_ms: 1,
        };
        let config = ElectionConfig::new(
            "test",
            keys.load_manager_leader(),
            evenkeel_model::encode(&leader),
        );
        let election = Election::start(store.clone(), session.clone(), config);
        let view = Records::view(store.clone(), &keys);
        let cluster = Arc::new(Cluster::new(ClusterParts {
            store,
            view,
            keys,
            clock: Clock::system(),
            instance: "lm-1".to_owned(),
            configured,
        }));
        let token = election.elected().await.unwrap();
        assert!(cluster.seen(token.create_revision).await);
        let leading = Leading { token, elected_at_ms: cluster.clock.now_ms() };
        cluster.set_leading(Some(leading.clone()));
        let memory = Memory::new(500);
        let outside = open(&address);
        Self { etcd, cluster, election, leading, memory, outside }
    }

    /// An instance over the same store that is not elected.
    pub(super) async fn beside(&self) -> Arc<Cluster> {
        let (store, keys) = (self.outside.clone(), Keys::default());
        let view = Records::view(store.clone(), &keys);
        let cluster = Arc::new(Cluster::new(ClusterParts {
            store,
            view,
            keys,
            clock: Clock::system(),
            instance: "lm-2".to_owned(),
            configured: Policy::default(),
        }));
        assert!(cluster.seen(self.etcd.revision()).await);
        cluster
    }

    /// This very instance, with a view that stays as the store is now.
    pub(super) async fn frozen(&self) -> Cluster {
        let (copy, address) = EmbeddedEtcd::listen("127.0.0.1:0", 8).await.unwrap();
        let store = open(&address);
        for entry in self.outside.list("/cluster/").await.unwrap().entries {
            store.put(&entry.key, entry.value, None).await.unwrap();
        }
        // So that the copy shows every revision that the pass will wait for.
        while copy.revision() < self.etcd.revision() + 100 {
            store.put("/cluster/leader/x", b"{}".to_vec(), None).await.unwrap();
        }
        let keys = Keys::default();
        let view = Records::view(store, &keys);
        view.ready().await;
        Cluster::new(ClusterParts {
            store: self.cluster.store.clone(),
            view,
            keys,
            clock: Clock::system(),
            instance: "lm-1".to_owned(),
            configured: Policy { settle_ms: 0, ..Policy::default() },
        })
    }

    /// Registers brokers and runs the pass that makes them live.
    pub(super) async fn brokers(&mut self, brokers: &[&str]) {
        for broker in brokers {
            self.put(&format!("/cluster/register/{broker}"), registration(broker, 1, false)).await;
        }
        let report = self.pass().await;
        assert_eq!(report.lifecycles, brokers.len());
    }

    /// Stores a stream without going through the admin service.
    pub(super) async fn stream(&self, name: &str, shards: u32, factor: u32) {
        let key = format!("stream/d/{name}");
        let now_ms = self.cluster.clock.now_ms();
        let record = json!({
            "stream": key, "shards": shards, "replication_factor": factor, "created_at_ms": now_ms,
        });
        self.put(&format!("/cluster/streams/{key}"), record).await;
    }

    pub(super) async fn put(&self, key: &str, value: Value) {
        let revision = self.outside.put(key, value.to_string().into_bytes(), None).await.unwrap();
        assert!(self.cluster.seen(revision).await);
    }

    /// A report of an agent about its shard.
    pub(super) async fn report(&self, broker: &str, shard: &str, fields: Value) {
        let mut report = json!({ "broker": broker, "shard": shard, "incarnation": 1 });
        for (key, value) in fields.as_object().unwrap() {
            report[key] = value.clone();
        }
        self.put(&format!("/cluster/reports/{broker}/{shard}"), report).await;
    }

    pub(super) async fn pass(&mut self) -> PassReport {
        pass::run(&self.cluster, &self.leading, &mut self.memory, &|| {}).await
    }

    pub(super) async fn entry(&self, key: &str) -> Option<Entry> {
        self.outside.get(key).await.unwrap()
    }

    async fn record<T: DeserializeOwned>(&self, key: &str) -> T {
        let entry = self.entry(key).await.unwrap_or_else(|| panic!("nothing at {key}"));
        evenkeel_model::decode(key, &entry.value).unwrap()
    }

    pub(super) async fn assignment(&self, shard: &str) -> AssignmentRecord {
        self.record(&format!("/cluster/shards/{shard}")).await
    }

    pub(super) async fn told(&self, broker: &str, shard: &str) -> BrokerShard {
        self.record(&format!("/cluster/brokers/{broker}/{shard}")).await
    }

    pub(super) async fn node(&self, broker: &str) -> NodeRecord {
        self.record(&format!("/cluster/nodes/{broker}")).await
    }

    /// Every key under a prefix.
    pub(super) async fn keys(&self, prefix: &str) -> Vec<String> {
        let listing = self.outside.list(prefix).await.unwrap();
        listing.entries.into_iter().map(|e| e.key).collect()
    }
}
