//! Who holds what: the real planner, kept, with its writes applied and what brokers would report.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_migrator::world::{Broker, World};
use evenkeel_model::{
    Assignment, BrokerId, BrokerView, Kind, Lifecycle, Millis, Move, MoveReason, Phase, Policy,
    ShardKey, ShardReport, ShardState, Snapshot, Stream, StreamKey,
};
use evenkeel_planner::{Planner, Step, Write};

use crate::scenario::{Cluster, Controls, Order};

/// Virtual time 0 on the load manager's clock.
const START_MS: Millis = 1_700_000_000_000;

/// The end of a whole log, records.
const WHOLE: u64 = 1_000_000;

/// Finished moves that the planner is told of.
const HISTORY: usize = 256;

/// See the module. Nodes and shards go by number.
pub(crate) struct Placement {
    planner: Planner,
    pub(crate) ids: Vec<BrokerId>,
    numbers: BTreeMap<BrokerId, usize>,
    shards: Vec<ShardKey>,
    shard_bytes: u64,
    /// Whose registration is there.
    registered: Vec<bool>,
    moving: BTreeMap<ShardKey, Assignment>,
    level: BTreeSet<(ShardKey, BrokerId)>,
    /// Copies of routine classes that were started, by counts and by latency.
    pub(crate) balance_moves: (u64, u64),
    /// Something changed that the planner or the migrator has not seen.
    pub(crate) unplanned: bool,
    pub(crate) untold: bool,
    /// Voters and leaders changed.
    pub(crate) reseated: bool,
}

impl Placement {
    /// A cluster at rest, as the planner places it.
    pub(crate) fn new(cluster: &Cluster, controls: &Controls) -> Self {
        let mut snapshot = Snapshot::empty(START_MS);
        snapshot.policy = policy(cluster, controls);
        let ids: Vec<BrokerId> = (1..=cluster.nodes).map(id).collect();
        for (number, id) in ids.iter().enumerate() {
            let mut view = BrokerView::live(START_MS - 3_600_000);
            view.zone = Some(format!("z{}", number % cluster.zones + 1));
            view.network_bytes_per_second = Some(cluster.link);
            snapshot.brokers.insert(id.clone(), view);
        }
        let key = StreamKey::new(Kind::Stream, "storm", "data").expect("the names are valid");
        let stream = Stream {
            v: evenkeel_model::RECORD_VERSION,
            stream: key.clone(),
            shards: cluster.shards,
            replication_factor: cluster.replicas,
            durable: true,
            created_at_ms: Some(START_MS - 3_600_000),
            region: None,
        };
        snapshot.streams.insert(key.clone(), stream);
        let shards = (0..cluster.shards).map(|number| ShardKey { stream: key.clone(), number });
        let mut placement = Self {
            planner: Planner::new(snapshot),
            numbers: ids.iter().cloned().zip(0..).collect(),
            registered: vec![true; ids.len()],
            ids,
            shards: shards.collect(),
            shard_bytes: (cluster.data_bytes / u64::from(cluster.shards)).max(1),
            moving: BTreeMap::new(),
            level: BTreeSet::new(),
            balance_moves: (0, 0),
            unplanned: false,
            untold: true,
            reseated: true,
        };
        placement.place();
        placement
    }

    /// Every shard's first assignment, serving and reported.
    fn place(&mut self) {
        let plan = self.planner.plan();
        let writes = plan.decisions.iter().filter_map(|d| d.decision.write());
        let mut placed: BTreeMap<ShardKey, Assignment> =
            writes.map(|write| (write.next.shard.clone(), write.next.clone())).collect();
        placed.values_mut().for_each(|a| a.state = ShardState::Active);
        let reports: BTreeMap<ShardKey, Vec<ShardReport>> =
            placed.values().map(|a| (a.shard.clone(), self.reports(a))).collect();
        self.planner.alter(|snapshot| {
            snapshot.assignments = placed;
            snapshot.reports = reports;
        });
    }

    pub(crate) fn number(&self, id: &BrokerId) -> Option<usize> {
        self.numbers.get(id).copied()
    }

    pub(crate) fn shard_bytes(&self) -> u64 {
        self.shard_bytes
    }

    pub(crate) fn assignments(&self) -> impl Iterator<Item = &Assignment> {
        self.shards.iter().filter_map(|shard| self.planner.snapshot().assignments.get(shard))
    }

    /// One pass of the planner.
    pub(crate) fn pass(&mut self, now_ms: f64) {
        self.unplanned = false;
        self.planner.set_time(START_MS + now_ms as Millis);
        let plan = self.planner.plan();
        for decision in &plan.decisions {
            let Some(write) = decision.decision.write() else { continue };
            if starts_balance(write) {
                self.balance_moves.0 += 1;
            }
            self.planner.apply(decision);
            self.follow(&decision.shard);
        }
        let history = &self.planner.snapshot().history;
        if history.len() > 2 * HISTORY {
            let kept = history[history.len() - HISTORY..].to_vec();
            self.planner.set_history(kept);
        }
    }

    /// A node's lease ran out, or it is back.
    pub(crate) fn register(&mut self, node: usize, present: bool, now_ms: f64) {
        let (id, now) = (self.ids[node].clone(), START_MS + now_ms as Millis);
        let Some(mut view) = self.planner.snapshot().brokers.get(&id).cloned() else { return };
        view.lifecycle = if present { Lifecycle::Live } else { Lifecycle::Down };
        view.registered = present;
        view.since_ms = now;
        view.last_seen_ms = now;
        view.incarnation += u64::from(present);
        self.planner.set_broker(&id, view);
        self.registered[node] = present;
        let held: Vec<ShardKey> = self
            .assignments()
            .filter(|a| a.role_of(&id).is_some())
            .map(|a| a.shard.clone())
            .collect();
        held.iter().for_each(|shard| self.follow(shard));
        self.touched();
    }

    /// A copy holds everything.
    pub(crate) fn is_level(&mut self, shard: &ShardKey, destination: usize) {
        self.level.insert((shard.clone(), self.ids[destination].clone()));
        self.follow(shard);
        self.touched();
    }

    /// Starts a leader's move that the planner did not ask for.
    pub(crate) fn stage(&mut self, shard: &ShardKey, destination: usize, now_ms: f64) {
        let Some(mut next) = self.planner.snapshot().assignments.get(shard).cloned() else {
            return;
        };
        next.generation += 1;
        next.successor = Some(self.ids[destination].clone());
        next.move_ = Some(Move {
            reason: MoveReason::Load,
            started_at_ms: START_MS + now_ms as Millis,
            fenced_at_ms: None,
            progress_at_ms: None,
            give_ups: 0,
            next_try_ms: None,
        });
        self.balance_moves.1 += 1;
        self.planner.set_assignment(shard, Some(next));
        self.follow(shard);
        self.touched();
    }

    fn touched(&mut self) {
        self.unplanned = true;
        self.untold = true;
    }

    /// Brokers do at once what an assignment says, and report it.
    fn follow(&mut self, shard: &ShardKey) {
        let Some(mut next) = self.planner.snapshot().assignments.get(shard).cloned() else {
            return;
        };
        let serves = next.leader.as_ref().is_some_and(|leader| self.is_registered(leader));
        if next.state == ShardState::Assigning && serves {
            next.state = ShardState::Active;
            self.planner.set_assignment(shard, Some(next.clone()));
        }
        self.planner.set_reports(shard, self.reports(&next));
        let copies: Vec<&BrokerId> = next.successor.iter().chain(&next.joining).collect();
        self.level.retain(|(other, broker)| other != shard || copies.contains(&broker));
        if copies.is_empty() {
            self.moving.remove(shard);
        } else {
            self.moving.insert(shard.clone(), next);
        }
        self.reseated = true;
        self.touched();
    }

    fn is_registered(&self, id: &BrokerId) -> bool {
        self.number(id).is_some_and(|n| self.registered[n])
    }

    fn reports(&self, a: &Assignment) -> Vec<ShardReport> {
        let report = |broker: &BrokerId, phase: Phase| {
            let copying = phase == Phase::Copying;
            let whole = !copying || self.level.contains(&(a.shard.clone(), broker.clone()));
            ShardReport {
                broker: broker.clone(),
                shard: a.shard.clone(),
                generation: a.generation,
                phase: Some(phase),
                caught_up: whole,
                lag_records: Some(if whole { 0 } else { WHOLE }),
                drained: phase == Phase::Drained,
                halted: None,
                log_end: Some(if whole { WHOLE } else { 0 }),
                declined: false,
            }
        };
        let fenced = a.state == ShardState::Draining;
        let leading = if fenced { Phase::Drained } else { Phase::Serving };
        let leader = a.leader.iter().map(|b| (b, leading));
        let followers = a.followers.iter().map(|b| (b, Phase::Following));
        let copies = a.successor.iter().chain(&a.joining);
        let copies = copies.filter(|b| !a.followers.contains(b)).map(|b| (b, Phase::Copying));
        let mut reports: Vec<ShardReport> = leader
            .chain(followers)
            .chain(copies)
            .filter(|(broker, _)| self.is_registered(broker))
            .map(|(broker, phase)| report(broker, phase))
            .collect();
        reports.sort_by(|a, b| a.broker.cmp(&b.broker));
        reports
    }

    /// What the migrator reads of it.
    pub(crate) fn world(&mut self, order: Order, told_link: u64) -> World {
        self.untold = false;
        let mut world = World::default();
        for (id, registered) in self.ids.iter().zip(&self.registered) {
            let broker = Broker {
                lifecycle: if *registered { Lifecycle::Live } else { Lifecycle::Down },
                address: registered.then(|| format!("{id}:7000")),
                link_bytes_per_second: told_link,
            };
            world.brokers.insert(id.clone(), broker);
        }
        for (shard, assignment) in &self.moving {
            for report in self.planner.snapshot().reports.get(shard).into_iter().flatten() {
                world.reports.insert((shard.clone(), report.broker.clone()), report.clone());
            }
            world.sizes.insert(shard.clone(), self.shard_bytes);
            let mut assignment = assignment.clone();
            if order != Order::Priority {
                self.hide_class(&mut assignment);
            }
            world.moving.insert(shard.clone(), assignment);
        }
        world
    }

    /// A migrator without classes is one to which every copy looks like a balance move: a copy
    /// beside a live replica, asked for by an operator. Those it serves in order of arrival.
    fn hide_class(&self, a: &mut Assignment) {
        if a.joining.is_some() {
            let live = a.voters().find(|b| self.is_registered(b)).cloned();
            a.leaving = live;
        }
        if let Some(record) = &mut a.move_ {
            record.reason = MoveReason::Operator;
        }
    }

    pub(crate) fn is_moving(&self, shard: &ShardKey) -> bool {
        self.moving.contains_key(shard)
    }

    /// Whether a node is anything to a shard.
    pub(crate) fn holds(&self, shard: &ShardKey, node: usize) -> bool {
        let assignment = self.planner.snapshot().assignments.get(shard);
        assignment.is_some_and(|a| a.role_of(&self.ids[node]).is_some())
    }

    /// Copies under way.
    pub(crate) fn copies(&self) -> usize {
        self.moving.len()
    }
}

fn id(number: usize) -> BrokerId {
    BrokerId::new(&format!("n{number}")).expect("a letter and a number are a valid id")
}

/// A write that starts a copy or a hand-over for evenness' sake.
fn starts_balance(write: &Write) -> bool {
    let reason = write.next.move_.as_ref().map(|m| m.reason);
    let even = [MoveReason::StreamBalance, MoveReason::TotalBalance, MoveReason::Load];
    matches!(write.step, Step::Stage | Step::Reseat) && reason.is_some_and(|r| even.contains(&r))
}

/// Moves are never given up for their age here: how long they take is what is asked.
fn policy(cluster: &Cluster, controls: &Controls) -> Policy {
    let at_once = match controls.order {
        Order::Priority => u32::try_from(controls.at_once).unwrap_or(u32::MAX),
        Order::Fifo | Order::AllAtOnce => u32::MAX,
    };
    Policy {
        moves_max_concurrent: at_once,
        repairs_max_concurrent: at_once,
        restore_after_ms: cluster.restore_delay_ms.max(1.0) as Millis,
        restore_stall_ms: 0,
        move_timeout_ms: 0,
        broker_expiry_ms: cluster.detection_ms.max(1.0) as Millis,
        settle_ms: 0,
        ..Policy::default()
    }
}
