//! Whole hosts that talk to each other over gRPC.

mod altered;
mod caches;
mod hand_over;
mod unreadable;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_model::{
    Assignment, BrokerId, BrokerShard, Phase, RECORD_VERSION, Role, ShardKey, ShardReport,
    ShardState,
};
use evenkeel_runtime::{Clock, Health, Network, Shutdown, SimNetwork, grpc};
use evenkeel_shard_log::Log;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::disks::{Disks, FileDisks, MemoryDisks};
use super::open_on;
use crate::config::{Fsync, LogConfig};
use crate::host::{
    HostContext, NewRecord, PublishError, ShardError, ShardHost, ShardStatus, Surroundings,
};
use crate::maintenance::admission::Admission;

const LIMIT: Duration = Duration::from_secs(20);

struct Around {
    addresses: BTreeMap<BrokerId, String>,
    alive: AtomicBool,
}

impl Surroundings for Around {
    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    fn address_of(&self, broker: &BrokerId) -> Option<String> {
        self.addresses.get(broker).cloned()
    }
}

struct Member {
    host: Arc<dyn ShardHost>,
    reports: mpsc::UnboundedReceiver<ShardReport>,
    around: Arc<Around>,
    disks: Arc<dyn Disks>,
    network: Network,
    serving: Shutdown,
    maintenance: Admission,
}

struct Fixture {
    members: BTreeMap<BrokerId, Member>,
    addresses: BTreeMap<BrokerId, String>,
    shard: ShardKey,
    assignment: Assignment,
    _directory: Option<tempfile::TempDir>,
}

fn id(name: &str) -> BrokerId {
    name.parse().unwrap()
}

fn record(producer_id: u64, sequence: u64) -> NewRecord {
    let payload = Bytes::from(format!("{producer_id}/{sequence}"));
    NewRecord { key: None, payload, producer_id, sequence }
}

async fn host_on(
    name: &BrokerId,
    disks: Arc<dyn Disks>,
    network: Network,
    addresses: &BTreeMap<BrokerId, String>,
) -> Member {
    let log = LogConfig { segment_bytes: 64 << 10, ..LogConfig::default() };
    host_with(name, disks, network, addresses, log).await
}

async fn host_with(
    name: &BrokerId,
    disks: Arc<dyn Disks>,
    network: Network,
    addresses: &BTreeMap<BrokerId, String>,
    log: LogConfig,
) -> Member {
    host_by(name, disks, network, addresses, log, Clock::simulated(1_700_000_000_000)).await
}

async fn host_by(
    name: &BrokerId,
    disks: Arc<dyn Disks>,
    network: Network,
    addresses: &BTreeMap<BrokerId, String>,
    log: LogConfig,
    clock: Clock,
) -> Member {
    let (sender, reports) = mpsc::unbounded_channel();
    let maintenance = Admission::new(1 << 30);
    let around = Arc::new(Around { addresses: addresses.clone(), alive: AtomicBool::new(true) });
    let opened = open_on(
        HostContext {
            broker: name.clone(),
            data_dir: "unused".into(),
            log,
            clock,
            network: network.clone(),
            surroundings: around.clone(),
            reports: sender,
            maintenance: maintenance.clone(),
        },
        disks.clone(),
    );
    let serving = Shutdown::new();
    let incoming = network.listen(&addresses[name]).await.unwrap();
    let server = (opened.serve)(grpc::Server::new(evenkeel_proto::DESCRIPTORS).unwrap());
    tokio::spawn(server.serve(incoming, Health::new(), serving.clone()));
    Member { host: opened.host, reports, around, disks, network, serving, maintenance }
}

impl Fixture {
    /// Brokers a to d, on disks of this machine or in memory over simulated links.
    async fn start(on_disk: bool, followers: &[&str]) -> Self {
        let directory = on_disk.then(|| tempfile::tempdir().unwrap());
        let simulated = SimNetwork::new(7);
        let (mut addresses, mut networks) = (BTreeMap::new(), BTreeMap::new());
        for name in ["a", "b", "c", "d"] {
            let network = if on_disk { Network::tcp() } else { simulated.host(name) };
            let address = match on_disk {
                // Reserved by binding it once: the hosts must know each other from the start.
                true => network.listen("127.0.0.1:0").await.unwrap().address().to_owned(),
                false => format!("{name}:7000"),
            };
            addresses.insert(id(name), address);
            networks.insert(id(name), network);
        }
        let mut members = BTreeMap::new();
        for (name, network) in networks {
            let disks: Arc<dyn Disks> = match &directory {
                Some(d) => Arc::new(FileDisks::open(d.path().join(name.as_str())).unwrap()),
                None => Arc::new(MemoryDisks::new()),
            };
            let member = host_on(&name, disks, network, &addresses).await;
            members.insert(name, member);
        }
        let shard: ShardKey = "stream/default/orders/0".parse().unwrap();
        let followers = followers.iter().map(|f| id(f)).collect();
        let assignment = Assignment::new(shard.clone(), id("a"), followers);
        Self { members, addresses, shard, assignment, _directory: directory }
    }

    fn host(&self, name: &str) -> &Arc<dyn ShardHost> {
        &self.members[&id(name)].host
    }

    /// Tells everyone the assignment, the next generation of it after a change.
    async fn tell(&self) {
        for (name, member) in &self.members {
            match self.assignment.role_of(name) {
                Some(role) => {
                    let assignment = self.assignment.clone();
                    let told = BrokerShard { v: RECORD_VERSION, role, assignment, token: 1 };
                    member.host.apply(told).await;
                }
                None => member.host.release(&self.shard).await,
            }
        }
    }

    async fn change(&mut self, change: impl FnOnce(&mut Assignment)) {
        self.assignment.generation += 1;
        change(&mut self.assignment);
        self.tell().await;
    }

    async fn until(&self, name: &str, wanted: impl Fn(&ShardStatus) -> bool) -> ShardStatus {
        let mut watch = self.host(name).watch(&self.shard).unwrap();
        let found = timeout(LIMIT, watch.wait_for(|status| wanted(status))).await;
        found.expect("the status does not come").unwrap().clone()
    }

    async fn until_serving(&self, name: &str) {
        self.until(name, |status| status.phase == Phase::Serving).await;
    }

    /// Waits for a report of the current generation.
    async fn until_reported(&mut self, name: &str, wanted: impl Fn(&ShardReport) -> bool) {
        let generation = self.assignment.generation;
        let reports = &mut self.members.get_mut(&id(name)).unwrap().reports;
        let found = timeout(LIMIT, async {
            while let Some(report) = reports.recv().await {
                if report.generation == generation && wanted(&report) {
                    return;
                }
            }
        });
        found.await.expect("the report does not come");
    }

    async fn publish(&self, name: &str, sequences: std::ops::Range<u64>) -> Vec<u64> {
        let records = sequences.map(|s| record(9, s)).collect();
        let published = self.host(name).publish(&self.shard, records);
        timeout(LIMIT, published).await.expect("it is not committed").unwrap().offsets
    }

    async fn read_all(&self, name: &str) -> Vec<String> {
        let (mut payloads, mut from) = (Vec::new(), 0);
        loop {
            let batch = self.host(name).read(&self.shard, from, 1000).await.unwrap();
            if batch.records.is_empty() {
                return payloads;
            }
            from = batch.next_offset;
            let texts = batch.records.iter().map(|r| String::from_utf8_lossy(&r.payload));
            payloads.extend(texts.map(|text| text.into_owned()));
        }
    }

    /// Stops a host and starts it again on the same disk.
    async fn restart(&mut self, name: &str) {
        let member = self.members.remove(&id(name)).unwrap();
        member.serving.trigger();
        member.host.close().await;
        let Member { disks, network, host, .. } = member;
        drop(host);
        let address = self.addresses[&id(name)].clone();
        // The listener of the old one goes with its server.
        timeout(LIMIT, async {
            while network.listen(&address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap();
        let member = host_on(&id(name), disks, network, &self.addresses).await;
        self.members.insert(id(name), member);
    }
}

fn expected(sequences: std::ops::Range<u64>) -> Vec<String> {
    sequences.map(|s| format!("9/{s}")).collect()
}

/// Publishes, repeats, follows, and survives the restart of each broker.
async fn publishes_and_restarts(on_disk: bool) {
    let mut f = Fixture::start(on_disk, &["b", "c"]).await;
    f.tell().await;
    f.until_serving("a").await;
    assert_eq!(f.publish("a", 0..3).await, [1, 2, 3]);
    assert_eq!(f.publish("a", 2..4).await, [3, 4], "a repetition is not written again");
    f.until("b", |status| status.committed == 5).await;
    assert_eq!(f.read_all("b").await, expected(0..4));
    f.until_reported("b", |report| report.caught_up).await;
    let refused = f.host("b").publish(&f.shard, vec![record(9, 4)]).await;
    assert_eq!(refused, Err(PublishError::NotLeading));

    for name in ["b", "a"] {
        f.restart(name).await;
        f.tell().await;
        f.until_serving("a").await;
    }
    assert_eq!(f.publish("a", 3..5).await[0], 4, "what was written is known after a restart");
    assert_eq!(f.read_all("a").await, expected(0..5));
    f.members[&id("a")].around.alive.store(false, Ordering::Relaxed);
    let refused = f.host("a").publish(&f.shard, vec![record(9, 5)]).await;
    assert!(matches!(refused, Err(PublishError::NotServing(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishes_and_restarts_on_disks_over_tcp() {
    publishes_and_restarts(true).await;
}

#[tokio::test(start_paused = true)]
async fn publishes_and_restarts_in_memory_on_virtual_time() {
    publishes_and_restarts(false).await;
}

/// Copies what the leader does not ship itself, as the migrator's orders make brokers do.
async fn copy(f: &Fixture, from: &str, to: &str) {
    let generation = f.assignment.generation;
    let (source, destination) = (f.host(from), f.host(to));
    loop {
        let at = destination.copy_position(&f.shard).await.unwrap();
        let (end, last) = (at.end_offset, at.last_generation);
        let chunk = source.copy_read(&f.shard, generation, end, last, 2000).await.unwrap();
        if chunk.frames.is_empty() {
            return;
        }
        let frames = chunk.frames;
        destination.copy_append(&f.shard, generation, end, vec![frames]).await.unwrap();
    }
}

/// Of the records up to 1400, in steps.
async fn whole_digest(f: &Fixture, name: &str) -> Vec<crate::host::RangeDigest> {
    let mut steps: Vec<crate::host::RangeDigest> = Vec::new();
    loop {
        let from = steps.last().map_or(0, |step| step.to_offset);
        let step = f.host(name).digest(&f.shard, from, 1400, 10_000).await.unwrap();
        if step.to_offset == from {
            assert!(steps.len() > 1 && from == 1400, "{steps:?}");
            return steps;
        }
        steps.push(step);
    }
}

/// A leader moves to a broker that has to be copied to first; publishes go on meanwhile.
async fn moves(on_disk: bool) {
    let mut f = Fixture::start(on_disk, &["b"]).await;
    f.tell().await;
    f.until_serving("a").await;
    for batch in 0..15 {
        f.publish("a", batch * 100..(batch + 1) * 100).await;
    }
    f.change(|a| a.successor = Some(id("d"))).await;
    f.publish("a", 1500..1501).await;
    copy(&f, "b", "d").await;
    let generation = f.assignment.generation;
    assert_eq!(f.host("d").copy_position(&f.shard).await.unwrap().copied_from, Some(0));
    let compared = f.host("d").copy_verified(&f.shard, generation).await.unwrap();
    assert_eq!(compared.copied_from, None);
    f.until_reported("d", |r| r.lag_records.is_some_and(|lag| lag <= 1000)).await;
    let (here, there) = (whole_digest(&f, "a").await, whole_digest(&f, "d").await);
    assert_eq!(here, there);
    f.change(|a| a.state = ShardState::Draining).await;
    let refused = f.host("a").publish(&f.shard, vec![record(9, 1501)]).await;
    assert_eq!(refused, Err(PublishError::Fenced));
    f.until_reported("a", |report| report.drained).await;
    f.change(|a| {
        a.leader = a.successor.take();
        a.state = ShardState::Assigning;
    })
    .await;
    f.until_serving("d").await;
    f.publish("d", 1501..1502).await;
    assert_eq!(f.read_all("d").await, expected(0..1502));
    assert_eq!(f.host("a").copy_position(&f.shard).await, Err(ShardError::NotHeld));
    assert_eq!(f.host("a").stored(), std::slice::from_ref(&f.shard));
    f.host("a").erase(&f.shard).await;
    f.host("d").erase(&f.shard).await;
    assert!(f.host("a").stored().is_empty() && !f.host("d").stored().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_moves_on_disks_over_tcp() {
    moves(true).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_moves_in_memory_on_virtual_time() {
    moves(false).await;
}

/// What was acknowledged, then lost by a crash of the whole machine, under each policy.
#[tokio::test(start_paused = true)]
async fn a_policy_says_what_a_power_failure_may_take() {
    for (fsync, wait_ms, kept) in [
        (Fsync::Always, 0, true),
        (Fsync::Interval, 0, false),
        (Fsync::Interval, 1100, true),
        (Fsync::Never, 1100, false),
    ] {
        let disks = MemoryDisks::new();
        let (simulated, me) = (SimNetwork::new(7), id("a"));
        let addresses = BTreeMap::from([(me.clone(), "a:7000".to_owned())]);
        let shard: ShardKey = "stream/d/s/0".parse().unwrap();
        let assignment = Assignment::new(shard.clone(), me.clone(), Vec::new());
        let told = BrokerShard { v: 1, role: Role::Leader, assignment, token: 1 };
        let log = LogConfig { fsync, ..LogConfig::default() };
        let member =
            host_with(&me, Arc::new(disks.clone()), simulated.host("a"), &addresses, log).await;
        member.host.apply(told).await;
        member.host.publish(&shard, vec![record(9, 0)]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        let storage = disks.shard(&shard).unwrap();
        storage.crash(|_| 0);
        let end = Log::open(Arc::new(storage), Default::default()).unwrap().0.end();
        assert_eq!(end == 2, kept, "{fsync:?} after {wait_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_log_halts_its_replica_and_the_others_go_on() {
    let mut f = Fixture::start(false, &["b", "c"]).await;
    let disks = MemoryDisks::new();
    let network = f.members[&id("b")].network.clone();
    f.members[&id("b")].serving.trigger();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let member = host_on(&id("b"), Arc::new(disks.clone()), network, &f.addresses).await;
    f.members.insert(id("b"), member);
    f.tell().await;
    f.until_serving("a").await;
    f.publish("a", 0..50).await;
    f.until("b", |status| status.committed == 51).await;
    let log = disks.shard(&f.shard).unwrap();
    log.flip_bit("00000000000000000000.log", 1000, 3);
    f.restart("b").await;
    f.tell().await;
    f.until_reported("b", |r| {
        r.phase == Some(Phase::Halted)
            && r.halted.as_ref().is_some_and(|why| why.contains(".log is damaged at byte"))
    })
    .await;
    assert_eq!(f.publish("a", 50..51).await, [51]);
}
