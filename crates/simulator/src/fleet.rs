//! The processes of a simulated cluster: starting, crashing, starting again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_broker_agent::config::LogConfig;
use evenkeel_broker_agent::host::builtin::{self, disks::MemoryDisks};
use evenkeel_coordination::{Endpoint, Store, StoreConfig};
use evenkeel_embedded_etcd::EmbeddedEtcd;
use evenkeel_model::{BrokerId, hash};
use evenkeel_runtime::{Clock, Environment, Network, SimNetwork, StoreFactory};
use tokio::task::JoinHandle;

use crate::Scenario;

const ETCD: &str = "etcd";
const ETCD_ADDRESS: &str = "etcd:2379";

/// Every process by its host's name.
pub(crate) struct Fleet {
    pub(crate) scenario: Scenario,
    pub(crate) network: SimNetwork,
    pub(crate) clock: Clock,
    pub(crate) etcd: EmbeddedEtcd,
    seed: u64,
    lives: BTreeMap<String, u64>,
    running: BTreeMap<String, JoinHandle<()>>,
    disks: BTreeMap<String, Arc<MemoryDisks>>,
    identities: tempfile::TempDir,
}

impl Fleet {
    /// The store and its network; nothing else runs yet.
    pub(crate) async fn new(scenario: Scenario, seed: u64, clock: Clock) -> anyhow::Result<Self> {
        let network = SimNetwork::new(seed);
        network.set_latency_ms(1..=3);
        let etcd = EmbeddedEtcd::new(seed);
        let incoming = network.host(ETCD).listen(ETCD_ADDRESS).await?;
        tokio::spawn(etcd.serve(incoming, std::future::pending()));
        Ok(Self {
            scenario,
            network,
            clock,
            etcd,
            seed,
            lives: BTreeMap::new(),
            running: BTreeMap::new(),
            disks: BTreeMap::new(),
            identities: tempfile::tempdir()?,
        })
    }

    pub(crate) fn brokers(&self) -> Vec<String> {
        (1..=self.scenario.brokers).map(|n| format!("b{n:03}")).collect()
    }

    pub(crate) fn load_managers(&self) -> Vec<String> {
        (1..=self.scenario.load_managers).map(|n| format!("lm{n}")).collect()
    }

    pub(crate) fn migrators(&self) -> Vec<String> {
        (1..=self.scenario.migrators).map(|n| format!("mig{n}")).collect()
    }

    /// Brokers whose process runs.
    pub(crate) fn live_brokers(&self) -> BTreeSet<BrokerId> {
        let running = self.brokers().into_iter().filter(|name| self.running.contains_key(name));
        running.filter_map(|name| name.parse().ok()).collect()
    }

    pub(crate) fn is_running(&self, name: &str) -> bool {
        self.running.contains_key(name)
    }

    pub(crate) fn start_all(&mut self) -> anyhow::Result<()> {
        let names = [self.load_managers(), self.migrators(), self.brokers()].concat();
        names.iter().try_for_each(|name| self.start(name))
    }

    /// Starts a process that does not run.
    pub(crate) fn start(&mut self, name: &str) -> anyhow::Result<()> {
        if self.is_running(name) {
            return Ok(());
        }
        let life = self.lives.entry(name.to_owned()).and_modify(|life| *life += 1).or_insert(1);
        let seed = hash::combine(self.seed, hash::hash64(&format!("{name} {life}")));
        let network = self.network.host(name);
        let store = store_factory(network.clone(), seed);
        let env = Environment::simulated(network, self.clock.clone(), seed, store);
        let task = if name.starts_with("lm") {
            self.load_manager(name, env)
        } else if name.starts_with("mig") {
            self.migrator(name, env)
        } else {
            self.agent(name, env)?
        };
        self.running.insert(name.to_owned(), task);
        Ok(())
    }

    /// The process dies at once; what its disk had not synced is lost.
    pub(crate) fn crash(&mut self, name: &str) {
        if let Some(task) = self.running.remove(name) {
            task.abort();
            self.network.crash(name);
            if let Some(disk) = self.disks.get(name) {
                disk.crash();
            }
        }
    }

    fn load_manager(&self, name: &str, env: Environment) -> JoinHandle<()> {
        let config = evenkeel_load_manager::config::Config {
            instance: name.to_owned(),
            listen: "0.0.0.0:7100".to_owned(),
            session_ttl_ms: 5_000,
            policy: self.scenario.policy.clone(),
            ..Default::default()
        };
        spawn(name, Box::pin(evenkeel_load_manager::run(config, env)))
    }

    fn migrator(&self, name: &str, env: Environment) -> JoinHandle<()> {
        let config = evenkeel_migrator::config::Config {
            instance: name.to_owned(),
            listen: "0.0.0.0:7200".to_owned(),
            ..Default::default()
        };
        spawn(name, evenkeel_migrator::run(config, env))
    }

    fn agent(&mut self, name: &str, env: Environment) -> anyhow::Result<JoinHandle<()>> {
        let number: u32 = name.trim_start_matches('b').parse()?;
        let config = evenkeel_broker_agent::config::Config {
            broker_id: Some(name.parse()?),
            data_dir: self.identities.path().join(name),
            listen: "0.0.0.0:7720".to_owned(),
            metrics_listen: "0.0.0.0:7721".to_owned(),
            zone: Some(format!("z{}", number % self.scenario.zones + 1)),
            lease_ttl_ms: u64::try_from(self.scenario.broker_ttl.as_millis())?,
            measure_machine: false,
            // So little is written that a usual segment would never be closed.
            log: LogConfig { segment_bytes: 2 << 10, ..LogConfig::default() },
            weight: Some(1.0),
            ..Default::default()
        };
        let disks = self.disks.entry(name.to_owned()).or_default().clone();
        Ok(spawn(name, async move {
            let open = |context| async { Ok(builtin::open_on(context, disks)) };
            evenkeel_broker_agent::run_with(config, env, open).await
        }))
    }
}

fn spawn<F>(name: &str, service: F) -> JoinHandle<()>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let name = name.to_owned();
    tokio::spawn(async move {
        if let Err(error) = service.await {
            tracing::warn!(name, error = format!("{error:#}"), "a simulated process ended");
        }
    })
}

/// A store over links of this host, with limits that suit a local etcd.
fn store_factory(network: Network, seed: u64) -> StoreFactory {
    StoreFactory::new(move || {
        let network = network.clone();
        let channel = Endpoint::Channel(Arc::new(move || network.bulk_channel(ETCD_ADDRESS)));
        let mut config = StoreConfig::new([channel]);
        config.seed = seed;
        config.request_timeout = Duration::from_secs(1);
        Store::open(config).expect("one endpoint and limits above zero")
    })
}
