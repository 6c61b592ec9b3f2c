//! The copies: the real migrator's engine, and agents that pull what it grants.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use evenkeel_migrator::bucket::Bucket;
use evenkeel_migrator::engine::{Action, Engine, Event, Now, Settings};
use evenkeel_migrator::queue::Slots;
use evenkeel_model::ShardKey;
use evenkeel_proto::migrations::{CopyProgress, Hello, NodeStatus, migrator_message::Message};

use crate::placement::Placement;
use crate::scenario::{Controls, LawChoice, Order};

/// Time between two rounds of the migrator; also the step of the simulation.
pub(crate) const ROUND: Duration = Duration::from_millis(250);

/// A pull that holds credit and gets nothing for so long has failed, as an agent sees it.
const SILENCE: Duration = Duration::from_secs(10);

/// More copies than there are.
const NO_LIMIT: usize = 1_000_000;

/// The most that an engine gives of a link.
const ENGINE_SHARE: f64 = evenkeel_throttle::MAX_SHARE;

/// One copy at its destination.
struct Pull {
    destination: usize,
    source: usize,
    generation: u64,
    done: u64,
    credit: VecDeque<(Duration, u64)>,
    starved: Duration,
    level: bool,
}

/// One node's link as copies may use it.
struct Link {
    session: Option<u64>,
    egress: Bucket,
    ingress: Bucket,
    /// Bytes of this step, and of the second so far.
    out: u64,
    into: u64,
    second: (u64, u64),
    /// The highest rate of the second so far.
    allowed: u64,
}

/// See the module.
pub(crate) struct Migration {
    engine: Engine,
    links: Vec<Link>,
    sessions: u64,
    pulls: BTreeMap<ShardKey, Pull>,
    cuts: BTreeSet<(usize, usize)>,
    order: Order,
    told_link: u64,
    target_ms: f64,
    /// Bytes that reached a destination.
    pub(crate) copied: u64,
    /// The most that passed a node's end in one second, over what it allowed.
    pub(crate) busiest: f64,
}

impl Migration {
    pub(crate) fn new(nodes: usize, link: u64, controls: &Controls) -> Self {
        let slots = match controls.order {
            Order::AllAtOnce => Slots { cluster: NO_LIMIT, per_node: NO_LIMIT },
            Order::Priority | Order::Fifo => {
                Slots { cluster: controls.at_once, per_node: controls.per_node }
            }
        };
        let settings = Settings {
            instance: "storm".to_owned(),
            token: 1,
            slots,
            round: ROUND,
            record_every: Duration::from_secs(5),
            stall: SILENCE,
        };
        // Without a law the engine is told a link of which its largest share is the whole.
        let told_link = match controls.law {
            LawChoice::Off => (link as f64 * controls.off_share / ENGINE_SHARE) as u64,
            LawChoice::Plain | LawChoice::Steady => link,
        };
        let mut migration = Self {
            engine: Engine::new(settings),
            links: Vec::new(),
            sessions: 0,
            pulls: BTreeMap::new(),
            cuts: BTreeSet::new(),
            order: controls.order,
            told_link,
            target_ms: controls.target_ms,
            copied: 0,
            busiest: 0.0,
        };
        for _ in 0..nodes {
            migration.links.push(Link {
                session: None,
                egress: Bucket::new(0, Duration::ZERO),
                ingress: Bucket::new(0, Duration::ZERO),
                out: 0,
                into: 0,
                second: (0, 0),
                allowed: 0,
            });
        }
        migration
    }

    /// A node's agent opens its session, or it is gone.
    pub(crate) fn connect(
        &mut self,
        now: Duration,
        node: usize,
        up: bool,
        placement: &mut Placement,
    ) {
        let broker = placement.ids[node].clone();
        let event = if up {
            let session = self.sessions;
            self.sessions += 1;
            self.links[node].session = Some(session);
            let hello = Hello {
                broker: broker.to_string(),
                incarnation: 1,
                network_bytes_per_second: self.told_link,
                target_p99_ms: self.target_ms,
            };
            Event::Opened { broker, session, hello }
        } else {
            self.pulls.retain(|_, pull| pull.destination != node);
            let Some(session) = self.links[node].session.take() else { return };
            Event::Closed { broker, session }
        };
        self.tell(now, event, placement);
    }

    /// No byte passes between two nodes, or does again.
    pub(crate) fn cut(&mut self, a: usize, b: usize, cut: bool) {
        let pair = (a.min(b), a.max(b));
        if cut {
            self.cuts.insert(pair)
        } else {
            self.cuts.remove(&pair)
        };
    }

    /// What a node's controller allows from now on.
    pub(crate) fn allow(&mut self, node: usize, bytes_per_second: u64) {
        let link = &mut self.links[node];
        link.egress.set_rate(bytes_per_second);
        link.ingress.set_rate(bytes_per_second);
        link.allowed = link.allowed.max(bytes_per_second);
    }

    /// A node's word on itself, once a second.
    pub(crate) fn status(
        &mut self,
        now: Duration,
        node: usize,
        status: NodeStatus,
        placement: &mut Placement,
    ) {
        let Some(session) = self.links[node].session else { return };
        let broker = placement.ids[node].clone();
        self.tell(now, Event::Status { broker, session, status }, placement);
    }

    /// One round and the bytes that flow until the next.
    pub(crate) fn step(&mut self, now: Duration, placement: &mut Placement) {
        if placement.untold {
            let world = placement.world(self.order, self.told_link);
            self.tell(now, Event::World(world), placement);
        }
        self.tell(now, Event::Round, placement);
        for link in &mut self.links {
            (link.out, link.into) = (0, 0);
        }
        let shards: Vec<ShardKey> =
            self.pulls.iter().filter(|(_, p)| !p.level).map(|(shard, _)| shard.clone()).collect();
        let size = placement.shard_bytes();
        let each_second = now.subsec_millis() == 0;
        for shard in shards {
            let Some(word) = self.pull(now, &shard, size) else { continue };
            if word == "level"
                && let Some(pull) = self.pulls.get(&shard)
            {
                placement.is_level(&shard, pull.destination);
            }
            if word != "running" || each_second {
                self.report(now, &shard, size, word, placement);
            }
        }
    }

    /// One step of one pull; answers its state.
    fn pull(&mut self, now: Duration, shard: &ShardKey, size: u64) -> Option<&'static str> {
        let pull = self.pulls.get_mut(shard)?;
        while pull.credit.front().is_some_and(|(expires, _)| *expires <= now) {
            pull.credit.pop_front();
        }
        let credit: u64 = pull.credit.iter().map(|(_, bytes)| bytes).sum();
        let (source, destination) = (pull.source, pull.destination);
        let pair = (source.min(destination), source.max(destination));
        let cut = self.cuts.contains(&pair) || self.links[source].session.is_none();
        let room = |bucket: &Bucket| bucket.available(now, ROUND);
        let ends = room(&self.links[source].egress).min(room(&self.links[destination].ingress));
        let bytes = if cut { 0 } else { credit.min(size - pull.done).min(ends) };
        if bytes == 0 && credit > 0 {
            pull.starved += ROUND;
        } else if bytes > 0 {
            pull.starved = Duration::ZERO;
        }
        pull.done += bytes;
        let mut left = bytes;
        while let Some((_, held)) = pull.credit.front_mut().filter(|_| left > 0) {
            let taken = left.min(*held);
            (*held, left) = (*held - taken, left - taken);
            if *held == 0 {
                pull.credit.pop_front();
            }
        }
        pull.level = pull.done >= size;
        let word = match (pull.level, cut && pull.starved >= SILENCE) {
            (true, _) => "level",
            (false, true) => "failed",
            (false, false) => "running",
        };
        self.links[source].egress.take(now, bytes);
        self.links[source].out += bytes;
        self.links[destination].ingress.take(now, bytes);
        self.links[destination].into += bytes;
        self.copied += bytes;
        Some(word)
    }

    fn report(
        &mut self,
        now: Duration,
        shard: &ShardKey,
        size: u64,
        state: &str,
        placement: &mut Placement,
    ) {
        let Some(pull) = self.pulls.get_mut(shard) else { return };
        let progress = CopyProgress {
            shard: shard.to_string(),
            generation: pull.generation,
            state: state.to_owned(),
            durable_offset: pull.done,
            bytes_verified: pull.done,
            bytes_remaining: size - pull.done,
            credit_left: pull.credit.iter().map(|(_, bytes)| bytes).sum(),
            detail: String::new(),
            size_unknown: false,
        };
        let destination = pull.destination;
        if state == "failed" {
            pull.starved = Duration::ZERO;
            pull.credit.clear();
        }
        let Some(session) = self.links[destination].session else { return };
        let broker = placement.ids[destination].clone();
        self.tell(now, Event::Progress { broker, session, progress }, placement);
    }

    fn tell(&mut self, now: Duration, event: Event, placement: &mut Placement) {
        let clocks = Now { at: now, wall_ms: i64::try_from(now.as_millis()).unwrap_or(i64::MAX) };
        for action in self.engine.on_event(clocks, event) {
            if let Action::Send { session, message } = action {
                self.hear(now, session, message, placement);
            }
        }
    }

    /// What an agent is told.
    fn hear(&mut self, now: Duration, session: u64, message: Message, placement: &Placement) {
        let Some(node) = self.links.iter().position(|link| link.session == Some(session)) else {
            return;
        };
        match message {
            Message::Order(order) => {
                let Ok(shard) = order.shard.parse::<ShardKey>() else { return };
                let source = order.source.parse().ok().and_then(|id| placement.number(&id));
                let Some(source) = source else { return };
                // A copy goes on where it was, whoever sends the rest.
                let done = self.pulls.get(&shard).filter(|p| p.destination == node);
                let done = done.map_or(0, |pull| pull.done);
                let pull = Pull {
                    destination: node,
                    source,
                    generation: order.generation,
                    done,
                    credit: VecDeque::new(),
                    starved: Duration::ZERO,
                    level: false,
                };
                self.pulls.insert(shard, pull);
            }
            Message::Cancel(cancel) => {
                let Ok(shard) = cancel.shard.parse::<ShardKey>() else { return };
                let named = |p: &Pull| p.destination == node && p.generation <= cancel.generation;
                if self.pulls.get(&shard).is_some_and(named) {
                    self.pulls.remove(&shard);
                }
            }
            Message::Grant(grant) => {
                let Ok(shard) = grant.shard.parse::<ShardKey>() else { return };
                if let Some(pull) = self.pulls.get_mut(&shard).filter(|p| p.destination == node) {
                    let expires = now + Duration::from_millis(u64::from(grant.expires_in_ms));
                    pull.credit.push_back((expires, grant.bytes));
                }
            }
            // Nobody pauses anything here.
            Message::Welcome(_) | Message::MaintenanceHold(_) => {}
        }
    }

    /// Bytes out of and into a node in this step.
    pub(crate) fn flow(&self, node: usize) -> (u64, u64) {
        (self.links[node].out, self.links[node].into)
    }

    /// Ends a step: notes what passed each node.
    pub(crate) fn note(&mut self) {
        for link in &mut self.links {
            link.second.0 += link.out;
            link.second.1 += link.into;
        }
    }

    /// Ends a second: bytes out of and into a node in it.
    pub(crate) fn second(&mut self, node: usize) -> (u64, u64) {
        let link = &mut self.links[node];
        let passed = std::mem::take(&mut link.second);
        if link.allowed > 0 {
            let most = passed.0.max(passed.1) as f64 / link.allowed as f64;
            self.busiest = self.busiest.max(most);
        }
        link.allowed = link.egress.rate();
        passed
    }
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
