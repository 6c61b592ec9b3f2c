//! The processes of one cluster under test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use evenkeel_coordination::{Store, StoreConfig};
use evenkeel_model::keys::Keys;
use evenkeel_model::{BrokerId, LeaderRecord, ShardKey};
use evenkeel_proto::admin::admin_client::AdminClient;
use evenkeel_proto::admin::{CreateStreamRequest, SetPolicyRequest, Stream};
use evenkeel_proto::migrations::migrations_client::MigrationsClient;
use evenkeel_runtime::Network;
use evenkeel_testkit::{Etcd, EtcdVersion};
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::Process;

/// Life of every lease, milliseconds.
pub const LEASE_TTL_MS: u64 = 2_000;

/// Longest wait for a leader or its answer.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// How many of each.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Load managers.
    pub load_managers: u32,
    /// Migrators.
    pub migrators: u32,
    /// Brokers, in two zones in turn.
    pub brokers: u32,
}

/// Processes by name, on an etcd of their own.
pub struct Cluster {
    /// The etcd.
    pub etcd: Etcd,
    /// Connections to the processes.
    pub network: Network,
    program: PathBuf,
    folder: tempfile::TempDir,
    addresses: BTreeMap<String, String>,
    metrics: BTreeMap<String, String>,
    processes: BTreeMap<String, Process>,
    flags: Flags,
    store: Store,
}

/// Further flags of processes, by name; they win over ours.
pub type Flags = BTreeMap<String, Vec<String>>;

impl Cluster {
    /// Starts an etcd of this version and everything on it.
    pub async fn start(program: &str, version: EtcdVersion, size: Size) -> anyhow::Result<Self> {
        Self::start_with(program, version, size, Flags::new()).await
    }

    /// The same, with further flags for some of the processes.
    pub async fn start_with(
        program: &str,
        version: EtcdVersion,
        size: Size,
        flags: Flags,
    ) -> anyhow::Result<Self> {
        let etcd = Etcd::start(version).await?;
        let (mut addresses, mut metrics) = (BTreeMap::new(), BTreeMap::new());
        // Held until all are known, so that none is given twice.
        let mut held = Vec::new();
        let names = [("lm", size.load_managers), ("mig", size.migrators), ("b", size.brokers)];
        for name in names.iter().flat_map(|(kind, n)| (1..=*n).map(move |i| format!("{kind}{i}"))) {
            metrics.insert(name.clone(), free_address(&mut held)?);
            addresses.insert(name, free_address(&mut held)?);
        }
        drop(held);
        let store = Store::open(StoreConfig::urls([etcd.url()]))?;
        let mut cluster = Self {
            etcd,
            network: Network::tcp(),
            program: program.into(),
            folder: tempfile::tempdir()?,
            addresses,
            metrics,
            processes: BTreeMap::new(),
            flags,
            store,
        };
        for name in cluster.addresses.keys().cloned().collect::<Vec<_>>() {
            cluster.start_process(&name)?;
        }
        Ok(cluster)
    }

    /// Starts a process that does not run, on the address and the data it had before.
    pub fn start_process(&mut self, name: &str) -> anyhow::Result<()> {
        if self.processes.contains_key(name) {
            return Ok(());
        }
        let address = self.addresses.get(name).context("no such process")?;
        let (service, own) = self.own_flags(name);
        let mut arguments = vec!["serve".to_owned(), service.to_owned()];
        arguments.push(format!("--listen={address}"));
        let metrics = self.metrics.get(name).context("no such process")?;
        arguments.push(format!("--metrics-listen={metrics}"));
        arguments.push(format!("--etcd={}", self.etcd.url()));
        let further: Vec<String> = self.flags.get(name).cloned().unwrap_or_default();
        let key = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
        let given: BTreeSet<String> = further.iter().map(|flag| key(flag)).collect();
        arguments.extend(own.into_iter().filter(|flag| !given.contains(&key(flag))));
        arguments.extend(further);
        let log = self.folder.path().join(format!("{name}.log"));
        let process = Process::start(&self.program, &arguments, log)?;
        self.processes.insert(name.to_owned(), process);
        Ok(())
    }

    fn own_flags(&self, name: &str) -> (&'static str, Vec<String>) {
        if name.starts_with("lm") {
            let ttl = format!("--session-ttl-ms={LEASE_TTL_MS}");
            // All brokers are on one disk, however full it is.
            return ("load-manager", vec![ttl, "--set=policy.disk_full_percent=0".to_owned()]);
        }
        if name.starts_with("mig") {
            return ("migrator", vec![format!("--session-ttl-ms={LEASE_TTL_MS}")]);
        }
        let number: u32 = name.trim_start_matches('b').parse().unwrap_or(0);
        let data = self.folder.path().join(name);
        let flags = vec![
            format!("--broker-id={name}"),
            format!("--zone=z{}", number % 2 + 1),
            format!("--data-dir={}", data.display()),
            format!("--lease-ttl-ms={LEASE_TTL_MS}"),
            "--load-report-interval-seconds=2".to_owned(),
        ];
        ("broker-agent", flags)
    }

    /// A running process.
    pub fn process(&mut self, name: &str) -> Option<&mut Process> {
        self.processes.get_mut(name)
    }

    /// Kills a process without warning.
    pub fn kill9(&mut self, name: &str) -> anyhow::Result<()> {
        let mut process =
            self.processes.remove(name).ok_or_else(|| anyhow!("{name} does not run"))?;
        Ok(process.kill9()?)
    }

    /// The process that leads a service, if one does.
    pub async fn leader(&self, leader_key: &str) -> anyhow::Result<Option<String>> {
        let Some(entry) = self.store.get(leader_key).await? else { return Ok(None) };
        let record: LeaderRecord = evenkeel_model::decode(&entry.key, &entry.value)?;
        Ok(self.addresses.iter().find(|(_, a)| **a == record.address).map(|(name, _)| name.clone()))
    }

    /// The leading load manager, waited for.
    pub async fn leading_load_manager(&self) -> anyhow::Result<String> {
        let key = Keys::default().load_manager_leader();
        let deadline = Instant::now() + PATIENCE;
        loop {
            // An etcd that does not answer now is asked again.
            if let Ok(Some(leader)) = self.leader(&key).await {
                return Ok(leader);
            }
            anyhow::ensure!(Instant::now() < deadline, "no load manager is elected");
            tokio::time::sleep(POLL).await;
        }
    }

    /// A client of the leading load manager.
    pub async fn admin(&self) -> anyhow::Result<AdminClient<Channel>> {
        let leader = self.leading_load_manager().await?;
        let address = self.addresses.get(&leader).context("an unknown leader")?;
        Ok(AdminClient::new(self.network.channel(address)))
    }

    /// Sets policy; retried while the leadership settles.
    pub async fn set_policy(&self, policy: &serde_json::Value) -> anyhow::Result<()> {
        self.ask("set the policy", async |mut admin| {
            admin.set_policy(SetPolicyRequest { json: policy.to_string() }).await.map(drop)
        })
        .await
    }

    /// Creates a stream; retried while the leadership settles.
    pub async fn create_stream(&self, stream: Stream) -> anyhow::Result<()> {
        self.ask("create the stream", async |mut admin| {
            let request = CreateStreamRequest { stream: Some(stream.clone()) };
            admin.create_stream(request).await.map(drop)
        })
        .await
    }

    /// Asks whoever leads, again and again until it is done.
    pub async fn ask(
        &self,
        what: &str,
        call: impl AsyncFn(AdminClient<Channel>) -> Result<(), tonic::Status>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Err(status) = call(self.admin().await?).await else { return Ok(()) };
            anyhow::ensure!(Instant::now() < deadline, "cannot {what}: {status}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// A client of the elected migrator, waited for.
    pub async fn migrations(&self) -> anyhow::Result<MigrationsClient<Channel>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(Some(leader)) = self.leading_migrator().await {
                let address = self.addresses.get(&leader).context("an unknown leader")?;
                return Ok(MigrationsClient::new(self.network.channel(address)));
            }
            anyhow::ensure!(Instant::now() < deadline, "no migrator is elected");
            tokio::time::sleep(POLL).await;
        }
    }

    /// The elected migrator, if one is.
    pub async fn leading_migrator(&self) -> anyhow::Result<Option<String>> {
        self.leader(&Keys::default().migrator_leader()).await
    }

    /// `host:port` of a process's services.
    pub fn address(&self, name: &str) -> anyhow::Result<&str> {
        self.addresses.get(name).map(String::as_str).with_context(|| format!("no process {name}"))
    }

    /// `host:port` of a process's metrics.
    pub fn metrics_address(&self, name: &str) -> anyhow::Result<&str> {
        self.metrics.get(name).map(String::as_str).with_context(|| format!("no process {name}"))
    }

    /// Where a broker keeps a shard's log.
    pub fn shard_folder(&self, broker: &str, shard: &ShardKey) -> PathBuf {
        let stream = &shard.stream;
        let mut path = self.folder.path().join(broker).join("shards");
        path.extend([stream.kind.as_str(), &stream.namespace, &stream.name]);
        path.join(shard.number.to_string())
    }

    /// Names of all brokers, running or not.
    pub fn brokers(&self) -> Vec<String> {
        self.addresses.keys().filter(|name| name.starts_with('b')).cloned().collect()
    }

    /// `host:port` of every broker.
    pub fn broker_addresses(&self) -> Vec<String> {
        self.brokers().iter().filter_map(|name| self.addresses.get(name)).cloned().collect()
    }

    /// Ids of the brokers that run.
    pub fn live(&self) -> BTreeSet<BrokerId> {
        let running = self.processes.keys().filter(|name| name.starts_with('b'));
        running.filter_map(|name| name.parse().ok()).collect()
    }

    /// The last lines of every log, for a test that failed.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for (name, process) in &self.processes {
            let log = process.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(25)..];
            text.push_str(&format!("--- {name}\n{}\n", tail.join("\n")));
        }
        text
    }
}

/// An address that is free and not among those held. Once released, another process could take it,
/// which shows as a clear error.
fn free_address(held: &mut Vec<TcpListener>) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    held.push(listener);
    Ok(address)
}
