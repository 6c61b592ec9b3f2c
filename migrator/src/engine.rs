//! The migrator's one state machine: what it knows in, messages and records out. No I/O.
//!
//! Time is what has passed since this instance was elected. Early, late and repeated calls are
//! harmless; nothing but the caps of operators outlives it.

mod holds;
mod rounds;
mod sources;
mod stalls;
mod views;

pub use views::{Page, pause};

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_model::{BrokerId, CopyRecord, Millis, ShardKey};
use evenkeel_proto::migrations::{
    CopyCancel, CopyProgress, Hello, NodeStatus, Welcome, migrator_message::Message,
};

use crate::copies::{Copy, State};
use crate::jobs;
use crate::metrics;
use crate::nodes::Node;
use crate::queue::Slots;
use crate::world::World;

/// The engine's clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Since the start; never falls.
    pub at: Duration,
    /// For records.
    pub wall_ms: Millis,
}

/// What does not change while this instance leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of this instance.
    pub instance: String,
    /// Its leadership token.
    pub token: i64,
    /// Copies at once.
    pub slots: Slots,
    /// Time between two rounds of grants; a grant lives two.
    pub round: Duration,
    /// Least time between two writes of one copy's numbers.
    pub record_every: Duration,
    /// A copy that could have had a byte for so long and had none is tried from another source; 0
    /// never.
    pub stall: Duration,
}

/// What the engine is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The cluster as it is now.
    World(World),
    /// An agent opened a session; an earlier one of the same broker is over.
    Opened {
        /// The broker.
        broker: BrokerId,
        /// Never used before.
        session: u64,
        /// What it said of itself.
        hello: Hello,
    },
    /// A session ended.
    Closed {
        /// The broker.
        broker: BrokerId,
        /// Which.
        session: u64,
    },
    /// A node's word on itself.
    Status {
        /// The broker.
        broker: BrokerId,
        /// Which session it came by.
        session: u64,
        /// The word.
        status: NodeStatus,
    },
    /// A destination's word on one copy.
    Progress {
        /// The broker.
        broker: BrokerId,
        /// Which session it came by.
        session: u64,
        /// The word.
        progress: CopyProgress,
    },
    /// It is time for another round of grants.
    Round,
    /// Records must be written anew: the lease that they were on is gone, or a write failed.
    Rewrite,
}

/// What the engine wants done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send to an agent.
    Send {
        /// In which session.
        session: u64,
        /// What.
        message: Message,
    },
    /// Write a copy's record.
    Write(CopyRecord),
    /// Remove the record of a copy that is over.
    Remove(ShardKey),
}

/// See the module.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    world: World,
    nodes: BTreeMap<BrokerId, Node>,
    copies: BTreeMap<ShardKey, Copy>,
    arrivals: u64,
    /// The cluster was seen once: copies that come later are new.
    seen: bool,
    /// How long this leadership took to its first grant.
    first_grant: Option<Duration>,
    /// When agents were last told to hold maintenance back.
    held_at: Option<Duration>,
}

impl Engine {
    /// Knows nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            world: World::default(),
            nodes: BTreeMap::new(),
            copies: BTreeMap::new(),
            arrivals: 0,
            seen: false,
            first_grant: None,
            held_at: None,
        }
    }

    /// Takes one event.
    pub fn on_event(&mut self, now: Now, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::World(world) => self.see(now, world, &mut actions),
            Event::Opened { broker, session, hello } => {
                self.open(now, broker, session, &hello, &mut actions);
            }
            Event::Closed { broker, session } => self.close(&broker, session),
            Event::Status { broker, session, status } => {
                let repairing = self.is_repairing(&broker);
                if let Some(node) = self.node_in(&broker, session) {
                    metrics::status(&broker, &status);
                    node.hear(now.at, status, repairing);
                }
            }
            Event::Progress { broker, session, progress } => {
                if self.node_in(&broker, session).is_some() {
                    self.progress(now, &broker, session, &progress, &mut actions);
                }
            }
            Event::Round => self.round(now, &mut actions),
            Event::Rewrite => self.copies.values_mut().for_each(Copy::forget_written),
        }
        actions
    }

    /// Whether a session of this life of an agent may begin: one of an older life must not take the
    /// place of a newer one that is there.
    pub fn admits(&self, broker: &BrokerId, incarnation: u64) -> bool {
        let present = self.nodes.get(broker).filter(|node| node.session.is_some());
        present.is_none_or(|node| incarnation >= node.incarnation)
    }

    /// The leadership is over: what is told of its brokers ends with it.
    pub fn retire(self) {
        self.nodes.keys().for_each(metrics::forgotten);
    }

    fn is_repairing(&self, broker: &BrokerId) -> bool {
        self.copies.values().any(|copy| {
            let here = copy.job.destination == *broker || copy.source.as_ref() == Some(broker);
            here && copy.state == State::Running && copy.job.class.is_repair()
        })
    }

    fn node_in(&mut self, broker: &BrokerId, session: u64) -> Option<&mut Node> {
        self.nodes.get_mut(broker).filter(|node| node.session == Some(session))
    }

    fn see(&mut self, now: Now, world: World, actions: &mut Vec<Action>) {
        self.world = world;
        self.see_nodes(now);
        let mut jobs = jobs::derive(&self.world);
        let known: Vec<ShardKey> = self.copies.keys().cloned().collect();
        for shard in known {
            let Some(copy) = self.copies.get_mut(&shard) else { continue };
            match jobs.remove(&shard) {
                Some(job) if job.destination == copy.job.destination => {
                    let (was, is) = (copy.job.class.as_str(), job.class.as_str());
                    if was != is {
                        tracing::info!(%shard, was, is, "copy changes its class where it is");
                    }
                    copy.follow(job);
                }
                other => {
                    self.finish(now, &shard, actions);
                    if let Some(job) = other {
                        jobs.insert(shard, job);
                    }
                }
            }
        }
        for (shard, job) in jobs {
            tracing::info!(
                %shard, destination = %job.destination, class = job.class.as_str(), "copy queued"
            );
            let mut copy = Copy::new(job, self.arrivals, now.at);
            copy.inherited = !self.seen;
            self.copies.insert(shard, copy);
            self.arrivals += 1;
        }
        self.seen = true;
    }

    fn see_nodes(&mut self, now: Now) {
        for (id, broker) in &self.world.brokers {
            let link = broker.link_bytes_per_second;
            let node = self.nodes.entry(id.clone()).or_insert_with(|| Node::new(link, now.at));
            // Without a registration nothing is known of it: what it said last holds.
            if broker.address.is_some() {
                node.link_bytes_per_second = link;
            }
            node.cap = self.world.limits.get(id).copied();
        }
        let world = &self.world;
        self.nodes.retain(|id, node| {
            let kept = node.session.is_some() || world.brokers.contains_key(id);
            if !kept {
                metrics::forgotten(id);
            }
            kept
        });
    }

    /// The copy is over: done, or not wanted any more.
    fn finish(&mut self, now: Now, shard: &ShardKey, actions: &mut Vec<Action>) {
        let Some(copy) = self.copies.remove(shard) else { return };
        if let Some(ordered) = &copy.ordered {
            let message = cancel(shard, ordered.generation);
            actions.push(Action::Send { session: ordered.session, message });
        }
        if copy.is_written() {
            actions.push(Action::Remove(shard.clone()));
        }
        metrics::finished(&copy, now.at);
        tracing::info!(
            %shard, destination = %copy.job.destination, bytes = copy.done,
            state = copy.state.as_str(), "copy over"
        );
    }

    fn open(
        &mut self,
        now: Now,
        broker: BrokerId,
        session: u64,
        hello: &Hello,
        actions: &mut Vec<Action>,
    ) {
        let link = hello.network_bytes_per_second;
        let node = self.nodes.entry(broker).or_insert_with(|| Node::new(link, now.at));
        node.greet(session, hello);
        let welcome =
            Welcome { instance: self.settings.instance.clone(), token: self.settings.token };
        actions.push(Action::Send { session, message: Message::Welcome(welcome) });
    }

    fn close(&mut self, broker: &BrokerId, session: u64) {
        if let Some(node) = self.node_in(broker, session) {
            node.session = None;
        }
    }

    fn progress(
        &mut self,
        now: Now,
        broker: &BrokerId,
        session: u64,
        progress: &CopyProgress,
        actions: &mut Vec<Action>,
    ) {
        let Ok(shard) = progress.shard.parse::<ShardKey>() else {
            tracing::warn!(%broker, shard = progress.shard, "progress of what is no shard");
            return;
        };
        match self.copies.get_mut(&shard).filter(|copy| copy.job.destination == *broker) {
            // A word about another generation says nothing about this copy: an older one is
            // replaced by the next order, and of a newer one the assignment will tell.
            Some(copy) if copy.job.generation != progress.generation => metrics::stale_word(),
            Some(copy) => {
                let before = copy.state;
                let more = copy.progressed(now.at, progress);
                metrics::verified(copy.job.class, more);
                if copy.state == State::Failed && before != State::Failed {
                    tracing::warn!(%shard, %broker, detail = progress.detail, "copy failed");
                }
            }
            // A copy that nobody wants any more, still running since before the last take-over.
            None if progress.state != "level" => {
                let message = cancel(&shard, progress.generation);
                actions.push(Action::Send { session, message });
            }
            None => {}
        }
    }
}

fn cancel(shard: &ShardKey, generation: u64) -> Message {
    Message::Cancel(CopyCancel { shard: shard.to_string(), generation })
}

#[cfg(test)]
mod tests;
