//! Two whole migrators over simulated links and an embedded etcd, with an agent spoken by the test:
//! orders and grants come, the standby refuses and names the leader, and when the leader dies the
//! standby goes on where the agent says it is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_coordination::{Endpoint, Store, StoreConfig};
use evenkeel_embedded_etcd::EmbeddedEtcd;
use evenkeel_migrator::config::Config;
use evenkeel_model::keys::Keys;
use evenkeel_model::{
    Assignment, AssignmentRecord, CopyRecord, LeaderRecord, Move, MoveReason, Registration,
    ShardState,
};
use evenkeel_proto::migrations::migrations_client::MigrationsClient;
use evenkeel_proto::migrations::{
    AgentMessage, CopyProgress, Hello, ListLimitsRequest, ListMigrationsRequest,
    ListMigrationsResponse, MigratorMessage, NodeStatus, PauseCopiesRequest, ResumeCopiesRequest,
    SetLimitRequest, ShowMigrationRequest, agent_message, migrator_message,
};
use evenkeel_proto::refusal::Reason;
use evenkeel_runtime::{Clock, Environment, Network, SimNetwork, StoreFactory};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

const SHARD: &str = "stream/default/orders/0";

struct Cluster {
    network: SimNetwork,
    etcd: String,
    store: Store,
    keys: Keys,
}

fn store_over(network: Network, etcd: String) -> Store {
    let channel = move || network.bulk_channel(&etcd);
    let endpoint = Endpoint::Channel(std::sync::Arc::new(channel));
    Store::open(StoreConfig::new([endpoint])).unwrap()
}

impl Cluster {
    async fn start() -> Self {
        let network = SimNetwork::new(5);
        network.set_latency_ms(1..=2);
        let incoming = network.host("etcd").listen("etcd:2379").await.unwrap();
        let etcd = incoming.address().to_owned();
        let serving = EmbeddedEtcd::new(1).serve(incoming, std::future::pending());
        tokio::spawn(serving);
        let store = store_over(network.host("test"), etcd.clone());
        Self { network, etcd, store, keys: Keys::default() }
    }

    /// Runs a migrator on a host of its own.
    fn migrator(&self, host: &str) -> tokio::task::JoinHandle<anyhow::Result<()>> {
        let network = self.network.host(host);
        let (for_store, etcd) = (network.clone(), self.etcd.clone());
        let factory = StoreFactory::new(move || store_over(for_store.clone(), etcd.clone()));
        let env = Environment::simulated(network, Clock::simulated(1_000_000), 1, factory);
        let config = Config {
            instance: host.to_owned(),
            listen: format!("{host}:7300"),
            session_ttl_ms: 2_000,
            ..Config::default()
        };
        tokio::spawn(evenkeel_migrator::run(config, env))
    }

    async fn put(&self, key: String, value: Vec<u8>) {
        self.store.put(&key, value, None).await.unwrap();
    }

    /// `b1` leads, `b2` is to take over.
    async fn stage(&self) {
        for n in 1..=2 {
            let registration = Registration {
                v: 1,
                broker: format!("b{n}").parse().unwrap(),
                address: format!("b{n}:7200"),
                incarnation: 1,
                zone: None,
                region: None,
                labels: Default::default(),
                max_shards: None,
                weight: 1.0,
                network_bytes_per_second: Some(8_000_000),
                disk_bytes_per_second: None,
                stopping: false,
                registered_at_ms: 0,
            };
            let key = self.keys.registration(&registration.broker);
            self.put(key, evenkeel_model::encode(&registration)).await;
        }
        let shard: evenkeel_model::ShardKey = SHARD.parse().unwrap();
        let mut assignment = Assignment::new(shard.clone(), "b1".parse().unwrap(), Vec::new());
        assignment.state = ShardState::Active;
        assignment.generation = 2;
        assignment.successor = Some("b2".parse().unwrap());
        assignment.move_ = Some(Move {
            reason: MoveReason::Drain,
            started_at_ms: 0,
            fenced_at_ms: None,
            progress_at_ms: None,
            give_ups: 0,
            next_try_ms: None,
        });
        let record = AssignmentRecord {
            v: 1,
            assignment,
            token: 1,
            operation: String::new(),
            written_at_ms: 0,
        };
        self.put(self.keys.assignment(&shard), evenkeel_model::encode(&record)).await;
    }

    /// Waits until somebody other than `not` is elected.
    async fn leader(&self, not: &str) -> LeaderRecord {
        let found = async {
            loop {
                let key = self.keys.migrator_leader();
                if let Some(entry) = self.store.get(&key).await.unwrap() {
                    let leader: LeaderRecord = evenkeel_model::decode(&key, &entry.value).unwrap();
                    if leader.instance != not {
                        return leader;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(30), found).await.expect("nobody is elected")
    }

    fn client(&self, address: &str) -> MigrationsClient<tonic::transport::Channel> {
        MigrationsClient::new(self.network.host("b2").channel(address))
    }
}

/// `b2`'s agent.
struct Agent {
    say: mpsc::Sender<AgentMessage>,
    heard: Streaming<MigratorMessage>,
}

impl Agent {
    async fn connect(cluster: &Cluster, address: &str) -> Result<Self, tonic::Status> {
        let (say, said) = mpsc::channel(16);
        let mut client = cluster.client(address);
        let opening = client.session(ReceiverStream::new(said));
        let hello = Hello {
            broker: "b2".to_owned(),
            incarnation: 1,
            network_bytes_per_second: 8_000_000,
            target_p99_ms: 100.0,
        };
        let hello = agent_message::Message::Hello(hello);
        say.send(AgentMessage { message: Some(hello) }).await.unwrap();
        Ok(Self { say, heard: opening.await?.into_inner() })
    }

    /// Reconnects until the instance takes the session: it is elected a moment before it works.
    async fn insist(cluster: &Cluster, address: &str) -> Self {
        let connecting = async {
            loop {
                match Self::connect(cluster, address).await {
                    Ok(agent) => return agent,
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        timeout(Duration::from_secs(30), connecting).await.expect("no session")
    }

    async fn say(&self, message: agent_message::Message) {
        self.say.send(AgentMessage { message: Some(message) }).await.unwrap();
    }

    async fn verified(&self, bytes_verified: u64) {
        self.say(agent_message::Message::Progress(CopyProgress {
            shard: SHARD.to_owned(),
            generation: 2,
            state: "running".to_owned(),
            durable_offset: bytes_verified / 100,
            bytes_verified,
            bytes_remaining: 100_000_000 - bytes_verified,
            ..CopyProgress::default()
        }))
        .await;
    }

    async fn next(&mut self) -> migrator_message::Message {
        let message = timeout(Duration::from_secs(30), self.heard.message()).await;
        message.expect("nothing is said").unwrap().expect("the stream ended").message.unwrap()
    }

    /// The welcome's token, the order's source, and the bytes of the first grant.
    async fn ordered(&mut self) -> (i64, String, u64) {
        let migrator_message::Message::Welcome(welcome) = self.next().await else {
            panic!("no welcome");
        };
        let migrator_message::Message::Order(order) = self.next().await else {
            panic!("no order");
        };
        assert_eq!((order.shard.as_str(), order.token), (SHARD, 1), "the load manager's token");
        assert_eq!((order.class.as_str(), order.source_address.as_str()), ("drain", "b1:7200"));
        let migrator_message::Message::Grant(grant) = self.next().await else {
            panic!("no grant");
        };
        assert_eq!(grant.expires_in_ms, 500);
        (welcome.token, order.source, grant.bytes)
    }
}

#[expect(clippy::too_many_lines, reason = "one story, told in order")]
#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_where_the_agent_says_it_is() {
    let cluster = Cluster::start().await;
    cluster.stage().await;
    let first_run = cluster.migrator("m1");
    let first = cluster.leader("").await;
    assert_eq!((first.instance.as_str(), first.address.as_str()), ("m1", "m1:7300"));
    let mut agent = Agent::insist(&cluster, &first.address).await;
    let (token, source, bytes) = agent.ordered().await;
    assert_eq!(source, "b1");
    // 20 % of the link for a round, and up to the burst.
    assert!((400_000..=480_000).contains(&bytes), "{bytes}");
    agent.verified(1_000_000).await;

    // The standby names the leader.
    let second_run = cluster.migrator("m2");
    let refused = async {
        loop {
            match Agent::connect(&cluster, "m2:7300").await.err() {
                Some(status) if Reason::of(&status).is_some() => return status,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let refused = timeout(Duration::from_secs(30), refused).await.unwrap();
    let (mut reason, mut metadata) = Reason::of(&refused).unwrap();
    while reason == Reason::NoLeader {
        // It has not read the leader's key yet.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let refused = Agent::connect(&cluster, "m2:7300").await.err().unwrap();
        (reason, metadata) = Reason::of(&refused).unwrap();
    }
    assert_eq!((reason, metadata["leader"].as_str()), (Reason::NotLeader, "m1:7300"));

    // An operator's cap is stored, progress is recorded.
    let cap = SetLimitRequest { broker: "b2".to_owned(), bytes_per_second: 100_000 };
    cluster.client("m1:7300").set_limit(cap).await.unwrap();
    let unknown = SetLimitRequest { broker: "b9".to_owned(), bytes_per_second: 1 };
    let unknown = cluster.client("m1:7300").set_limit(unknown).await.unwrap_err();
    assert_eq!(Reason::of(&unknown).unwrap().0, Reason::NotFound);
    let low = SetLimitRequest { broker: "b2".to_owned(), bytes_per_second: 1 };
    let low = cluster.client("m1:7300").set_limit(low).await.unwrap_err();
    assert!(low.message().starts_with("bytes_per_second: 1 is too low: expected at least 65536"));
    let record_key = cluster.keys.copy(&SHARD.parse().unwrap());
    let recorded = async {
        for step in 2.. {
            agent.verified(step * 100_000).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let entry = cluster.store.get(&record_key).await.unwrap().unwrap();
            let record: CopyRecord = evenkeel_model::decode(&record_key, &entry.value).unwrap();
            assert!(entry.lease.is_some(), "it goes with the migrator");
            if record.bytes_done >= 1_000_000 {
                return;
            }
        }
    };
    timeout(Duration::from_secs(60), recorded).await.expect("progress is not recorded");

    first_run.abort();
    cluster.network.crash("m1");
    let second = cluster.leader("m1").await;
    assert_eq!(second.instance, "m2");
    let mut agent = Agent::insist(&cluster, &second.address).await;
    let (next_token, _, bytes) = agent.ordered().await;
    assert!(next_token > token);
    // The cap of 100 kB/s for a round, and up to the burst.
    assert!((25_000..=30_000).contains(&bytes), "{bytes}");
    agent.verified(2_000_000).await;
    let status = NodeStatus { share: 0.5, state: "ceiling".to_owned(), ..NodeStatus::default() };
    agent.say(agent_message::Message::Status(status)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let listed = cluster.client("m2:7300").list_migrations(ListMigrationsRequest::default()).await;
    let listed = listed.unwrap().into_inner().migrations;
    assert_eq!(
        (listed.len(), listed[0].state.as_str(), listed[0].bytes_done, listed[0].bytes_total),
        (1, "running", Some(2_000_000), Some(100_000_000))
    );
    assert_eq!(listed[0].limited_by, "ingress b2");
    let limits = cluster.client("m2:7300").list_limits(ListLimitsRequest {}).await;
    let limits = limits.unwrap().into_inner().limits;
    let of_b2 = limits.iter().find(|limit| limit.broker == "b2").unwrap();
    assert_eq!(
        (of_b2.owner.as_str(), of_b2.effective_bytes_per_second, of_b2.cap_bytes_per_second),
        ("operator", 100_000, Some(100_000))
    );
    second_run.abort();
}

impl Cluster {
    async fn listed(&self, address: &str) -> ListMigrationsResponse {
        let listed = self.client(address).list_migrations(ListMigrationsRequest::default()).await;
        listed.unwrap().into_inner()
    }

    /// Waits until the copy is in a state, as the instance tells it.
    async fn until(&self, address: &str, state: &str) {
        let reached = async {
            while self.listed(address).await.migrations.first().is_none_or(|m| m.state != state) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(30), reached).await.expect("the state is not reached");
    }
}

fn pause(scopes: &[&str]) -> PauseCopiesRequest {
    PauseCopiesRequest {
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        all: false,
        by: "ann".to_owned(),
        reason: "rack work".to_owned(),
        for_ms: Some(3_600_000),
    }
}

/// The reason and the message of a refusal.
fn refused<T: std::fmt::Debug>(
    answer: Result<tonic::Response<T>, tonic::Status>,
) -> (Reason, String) {
    let status = answer.unwrap_err();
    (Reason::of(&status).unwrap().0, status.message().to_owned())
}

#[tokio::test(start_paused = true)]
async fn grants_stop_for_a_lease_and_a_pause_outlives_the_migrator() {
    let cluster = Cluster::start().await;
    cluster.stage().await;
    let first_run = cluster.migrator("m1");
    let first = cluster.leader("").await;
    let mut agent = Agent::insist(&cluster, &first.address).await;
    agent.ordered().await;
    let second_run = cluster.migrator("m2");
    tokio::time::sleep(Duration::from_secs(5)).await;
    agent.verified(1_000_000).await;

    first_run.abort();
    cluster.network.crash("m1");
    let crashed = Instant::now();
    let second = cluster.leader("m1").await;
    let mut agent = Agent::insist(&cluster, &second.address).await;
    agent.ordered().await;
    let gap = crashed.elapsed();
    println!("from the crash to the next migrator's first grant: {gap:?}");
    // The lease lives 2 s from its last renewal, and etcd looks twice a second for those that ended.
    assert!(gap <= Duration::from_millis(2_000 + 2 * 250), "{gap:?}");

    let mut client = cluster.client(&second.address);
    let answer = client.pause_copies(pause(&["class/drain"])).await.unwrap().into_inner();
    assert_eq!((answer.pauses.len(), answer.pauses[0].scope.as_str()), (1, "class/drain"));
    cluster.until(&second.address, "held").await;
    let third_run = cluster.migrator("m3");
    second_run.abort();
    cluster.network.crash("m2");
    let third = cluster.leader("m2").await;
    let mut agent = Agent::insist(&cluster, &third.address).await;
    assert!(matches!(agent.next().await, migrator_message::Message::Welcome(_)));
    agent.verified(1_000_000).await;
    cluster.until(&third.address, "held").await;
    let silent = timeout(Duration::from_secs(3), agent.heard.message()).await;
    assert!(silent.is_err(), "no order and no grant: {silent:?}");
    let listed = cluster.listed(&third.address).await;
    assert_eq!(
        (listed.pauses[0].by.as_str(), listed.migrations[0].bytes_done),
        ("ann", Some(1_000_000))
    );

    let mut client = cluster.client(&third.address);
    let shown = client.show_migration(ShowMigrationRequest { shard: SHARD.to_owned() }).await;
    let shown = shown.unwrap().into_inner();
    assert_eq!((shown.class_reason.as_str(), shown.pauses.len()), ("a move for drain", 1));
    let resume = ResumeCopiesRequest { scopes: Vec::new(), by: "ann".to_owned() };
    // Another pause just before counts as well, though no round has seen it.
    client.pause_copies(pause(&["class/spread"])).await.unwrap();
    let ended = client.resume_copies(resume.clone()).await.unwrap().into_inner().ended;
    assert_eq!(ended.len(), 2);
    assert!(matches!(agent.next().await, migrator_message::Message::Order(_)));
    assert!(matches!(agent.next().await, migrator_message::Message::Grant(_)));
    assert_eq!(client.resume_copies(resume).await.unwrap().into_inner().ended, []);
    third_run.abort();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_paused_or_shown_is_refused_with_the_field_and_the_value() {
    let cluster = Cluster::start().await;
    cluster.stage().await;
    let run = cluster.migrator("m1");
    let leader = cluster.leader("").await;
    let _agent = Agent::insist(&cluster, &leader.address).await;
    let mut client = cluster.client(&leader.address);
    let refusals = [
        (pause(&["drain"]), "scopes[0]: scope 'drain' is not valid: expected class/CLASS or"),
        (pause(&["class/drain", "class/slow"]), "scopes[1]: scope 'class/slow' is not valid"),
        (PauseCopiesRequest { by: String::new(), ..pause(&[]) }, "by: it is empty"),
        (PauseCopiesRequest { for_ms: Some(0), ..pause(&[]) }, "for_ms: 0 is out of range"),
        (PauseCopiesRequest { all: true, ..pause(&["class/drain"]) }, "all: it was asked for"),
        (PauseCopiesRequest { reason: " ".to_owned(), ..pause(&[]) }, "reason: 0 characters"),
        (PauseCopiesRequest { reason: "a\nb".to_owned(), ..pause(&[]) }, "reason: 3 characters"),
        (PauseCopiesRequest { reason: "a".repeat(201), ..pause(&[]) }, "reason: 201 characters"),
    ];
    for (request, expected) in refusals {
        let (reason, message) = refused(client.pause_copies(request).await);
        assert_eq!(reason, Reason::InvalidArgument);
        assert!(message.starts_with(expected), "{message}");
    }
    let absent = pause(&["class/drain", "shard/stream/default/orders/999"]);
    let (reason, message) = refused(client.pause_copies(absent).await);
    assert_eq!(reason, Reason::NotFound);
    assert_eq!(message, "there is no shard stream/default/orders/999");
    // What cannot be read is no pause, and in nobody's way.
    let damaged = cluster.keys.copy_pause(&"class/drain".parse().unwrap());
    cluster.put(damaged, b"{".to_vec()).await;
    let classes = client.pause_copies(pause(&[])).await.unwrap().into_inner().pauses;
    let classes: Vec<&str> = classes.iter().map(|pause| pause.scope.as_str()).collect();
    let routine = ["class/drain", "class/spread", "class/balance", "class/maintenance"];
    assert_eq!(classes, routine, "repairs go on");
    let unknown = ShowMigrationRequest { shard: "stream/default/orders/9".to_owned() };
    assert_eq!(refused(client.show_migration(unknown).await).0, Reason::NotFound);
    let bad = ListMigrationsRequest { class: Some("fast".to_owned()), ..Default::default() };
    let (reason, message) = refused(client.list_migrations(bad).await);
    assert_eq!(reason, Reason::InvalidArgument);
    assert!(message.starts_with("class: copy class 'fast' is not valid"), "{message}");
    let bad = ListMigrationsRequest { page_token: "x".to_owned(), ..Default::default() };
    assert!(refused(client.list_migrations(bad).await).1.starts_with("page_token: "));
    run.abort();
}
