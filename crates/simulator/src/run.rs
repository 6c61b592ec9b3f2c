//! One run: start, trouble, recovery, verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use anyhow::Context;
use evenkeel_model::keys::Keys;
use evenkeel_model::{BrokerId, Kind, StreamKey};
use evenkeel_proto::admin;
use evenkeel_proto::admin::admin_client::AdminClient;
use evenkeel_runtime::{Clock, Network};
use tokio::time::Instant;

use crate::faults::Trouble;
use crate::fleet::Fleet;
use crate::invariants::Invariants;
use crate::observer::{Observer, Seen};
use crate::refusals::Refusals;
use crate::traffic::{Traffic, TrafficPlan};
use crate::{Breach, Scenario};

/// The virtual time at which every run begins.
const EPOCH_MS: i64 = 1_700_000_000_000;

/// How often faults and the end are looked at.
const STEP: Duration = Duration::from_millis(250);

/// A scenario and the seed that decides what happens in it.
#[derive(Debug, Clone)]
pub struct Run {
    /// What is simulated.
    pub scenario: Scenario,
    /// What decides.
    pub seed: u64,
}

/// What a run showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Hash of everything that was written, with its virtual time.
    pub trace: u64,
    /// Revisions of the store.
    pub revisions: u64,
    /// Writes by family of keys.
    pub writes: BTreeMap<String, u64>,
    /// Invariants that did not hold.
    pub breaches: Vec<Breach>,
    /// Rules that plans broke; the load managers did not write those.
    pub refusals: Vec<String>,
    /// What was not whole when the recovery was over; empty if all is well.
    pub unsettled: Vec<String>,
    /// Virtual time from the last fault to whole and even.
    pub settled_after: Option<Duration>,
    /// Widest difference of leaders between two brokers: within a stream, and in total.
    pub spread: (usize, usize),
    /// Records acknowledged.
    pub acknowledged: u64,
    /// Publishes that were given up (never acknowledged).
    pub failed_publishes: u64,
    /// Acknowledged records that were lost, doubled or out of order.
    pub data_faults: Vec<String>,
}

impl Verdict {
    /// Whether everything held.
    pub fn is_good(&self) -> bool {
        self.breaches.is_empty()
            && self.refusals.is_empty()
            && self.unsettled.is_empty()
            && self.data_faults.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "trace {:016x}, {} revisions", self.trace, self.revisions)?;
        for (family, writes) in &self.writes {
            writeln!(f, "  {family}: {writes} writes")?;
        }
        writeln!(f, "records: {} acknowledged", self.acknowledged)?;
        writeln!(f, "settled after: {:?}, spread {:?}", self.settled_after, self.spread)?;
        let breaches = self.breaches.iter().map(ToString::to_string);
        let breaches = breaches.chain(self.refusals.clone());
        let all = breaches.chain(self.unsettled.clone()).chain(self.data_faults.clone());
        all.take(40).try_for_each(|line| writeln!(f, "WRONG: {line}"))
    }
}

impl Run {
    /// Runs it on a runtime of its own.
    ///
    /// # Errors
    /// The simulation itself could not be set up.
    pub fn execute(self) -> anyhow::Result<Verdict> {
        // Libraries that ask the machine's clock must not learn how busy it is.
        let _held = evenkeel_held_clock::hold();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true);
        // Who of several waiters goes first is tokio's own choice, and must be the seed's.
        #[cfg(tokio_unstable)]
        builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&self.seed.to_le_bytes()));
        let runtime = builder.build()?;
        let refusals = Refusals::default();
        let mut verdict = refusals.listen(|| runtime.block_on(self.run()))?;
        verdict.refusals = refusals.take();
        Ok(verdict)
    }

    async fn run(self) -> anyhow::Result<Verdict> {
        let clock = Clock::simulated(EPOCH_MS);
        let mut fleet = Fleet::new(self.scenario.clone(), self.seed, clock.clone()).await?;
        let moves = self.scenario.policy.moves_max_concurrent;
        let invariants = Invariants::new(Keys::default(), moves);
        let observer = Observer::start(&fleet.etcd, clock, invariants);
        fleet.start_all()?;
        let network = fleet.network.host("client");
        let streams = self.create_streams(&network).await?;
        self.until_settled(&fleet, &observer, Duration::from_secs(120)).await;

        let traffic = Traffic::start(&network, &self.traffic(&fleet, streams))?;
        let mut trouble = Trouble::new(self.seed, self.scenario.fault_every);
        let end = Instant::now() + self.scenario.trouble;
        while Instant::now() < end {
            trouble.step(&mut fleet)?;
            tokio::time::sleep(STEP).await;
        }
        trouble.end(&mut fleet)?;
        let settled = self.until_settled(&fleet, &observer, self.scenario.recovery).await;
        let reading = traffic.finish().await;

        let live = fleet.live_brokers();
        let seen = observer.seen();
        Ok(Verdict {
            trace: seen.trace,
            revisions: seen.revisions,
            writes: seen.writes.clone(),
            breaches: seen.breaches.clone(),
            refusals: Vec::new(),
            unsettled: match settled {
                Some(_) => Vec::new(),
                None => left(&seen, &self.scenario, &live),
            },
            settled_after: settled,
            spread: seen.invariants.spread(&live),
            acknowledged: reading.acknowledged,
            failed_publishes: reading.failed,
            data_faults: reading.faults,
        })
    }

    fn traffic(&self, fleet: &Fleet, streams: Vec<StreamKey>) -> TrafficPlan {
        let brokers = fleet.brokers().into_iter().take(8);
        TrafficPlan {
            bootstrap: brokers.map(|broker| format!("{broker}:7720")).collect(),
            streams,
            shards: self.scenario.shards,
            producers: self.scenario.producers,
            pause: Duration::from_millis(200),
            seed: self.seed,
        }
    }

    /// Waits until every shard is whole, served and even; answers how long it took.
    async fn until_settled(
        &self,
        fleet: &Fleet,
        observer: &Observer,
        patience: Duration,
    ) -> Option<Duration> {
        let began = Instant::now();
        let live = fleet.live_brokers();
        while began.elapsed() < patience {
            if left(&observer.seen(), &self.scenario, &live).is_empty() {
                return Some(began.elapsed());
            }
            tokio::time::sleep(STEP).await;
        }
        None
    }

    async fn create_streams(&self, network: &Network) -> anyhow::Result<Vec<StreamKey>> {
        let mut created = Vec::new();
        for number in 0..self.scenario.streams {
            let stream = StreamKey::new(Kind::Stream, "sim", &format!("s{number}"))?;
            let message = admin::Stream {
                stream: stream.to_string(),
                shards: self.scenario.shards,
                replication_factor: self.scenario.replication_factor,
                durable: true,
                created_at_ms: None,
                region: None,
            };
            self.create_stream(network, message).await.context("create a stream")?;
            created.push(stream);
        }
        Ok(created)
    }

    /// Asks one load manager after the other until the elected one has answered.
    async fn create_stream(&self, network: &Network, stream: admin::Stream) -> anyhow::Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            for number in 1..=self.scenario.load_managers {
                let mut client = AdminClient::new(network.channel(&format!("lm{number}:7100")));
                let request = admin::CreateStreamRequest { stream: Some(stream.clone()) };
                match client.create_stream(request).await {
                    Ok(_) => return Ok(()),
                    Err(status) if status.code() == tonic::Code::AlreadyExists => return Ok(()),
                    Err(status) if Instant::now() >= end => return Err(status.into()),
                    Err(_) => {}
                }
            }
            tokio::time::sleep(STEP).await;
        }
    }
}

/// What is not yet whole, served and even.
fn left(seen: &Seen, scenario: &Scenario, live: &BTreeSet<BrokerId>) -> Vec<String> {
    let shards = (scenario.streams * scenario.shards) as usize;
    let factor = scenario.replication_factor as usize;
    let mut found = seen.invariants.unsettled(shards, factor, live);
    let (stream, total) = seen.invariants.spread(live);
    if stream > 1 || total > 1 {
        found.push(format!("leaders differ by {stream} within a stream, by {total} in total"));
    }
    found
}
