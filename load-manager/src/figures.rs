//! The cluster in numbers, for the status screen and the gauges.

use std::collections::BTreeMap;

use evenkeel_model::{Assignment, BrokerId, Lifecycle, Phase, ShardState, Snapshot, StreamKey};
use evenkeel_planner::{Balance, Plan, Planner, WaitingOn};

use crate::metrics;
use crate::records::Records;

/// What holds a move that has begun, or that could begin but for a limit. Time that must pass
/// first, such as the delay before a repair, is no trouble and not counted.
const HOLDS_A_MOVE: [WaitingOn; 5] = [
    WaitingOn::CopyBehind,
    WaitingOn::CopyPaused,
    WaitingOn::LeaderStopping,
    WaitingOn::MoveSlots,
    WaitingOn::BrokerSlots,
];

/// Counts of one snapshot and the plan made from it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Figures {
    /// Brokers per lifecycle.
    pub(crate) live: u32,
    /// Giving their shards away.
    pub(crate) draining: u32,
    /// Lost.
    pub(crate) down: u32,
    /// Gone with a farewell.
    pub(crate) left: u32,
    /// Shards of all streams.
    pub(crate) shards: u32,
    /// Shards whose leader reports that it serves.
    pub(crate) serving: u32,
    /// Copies in flight with a leader to hand over to.
    pub(crate) staged: u32,
    /// Fenced shards.
    pub(crate) fenced: u32,
    /// Followers being copied in.
    pub(crate) joining: u32,
    /// Moves that could not advance.
    pub(crate) waiting: u32,
    /// Widest difference of leaders between two brokers within one stream.
    pub(crate) stream_spread: u32,
}

impl Figures {
    /// Counts.
    pub(crate) fn of(snapshot: &Snapshot, plan: &Plan) -> Self {
        let mut figures = Self::default();
        for broker in snapshot.brokers.values() {
            match broker.lifecycle {
                Lifecycle::Live => figures.live += 1,
                Lifecycle::Draining => figures.draining += 1,
                Lifecycle::Down => figures.down += 1,
                Lifecycle::Left => figures.left += 1,
            }
        }
        figures.shards = snapshot.streams.values().map(|s| s.shards).fold(0, u32::saturating_add);
        for assignment in snapshot.assignments.values() {
            figures.serving += u32::from(is_served(snapshot, assignment));
            figures.fenced += u32::from(assignment.state == ShardState::Draining);
            let staged = assignment.successor.is_some() && assignment.state != ShardState::Draining;
            figures.staged += u32::from(staged);
            figures.joining += u32::from(assignment.joining.is_some());
        }
        figures.waiting = HOLDS_A_MOVE.iter().filter_map(|on| plan.report.waiting.get(on)).sum();
        figures.stream_spread = stream_spread(snapshot);
        figures
    }

    /// Moves and copies in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.staged + self.fenced + self.joining
    }
}

/// Whether the leader is there and reports that it serves this generation.
pub(crate) fn is_served(snapshot: &Snapshot, assignment: &Assignment) -> bool {
    assignment.leader.as_ref().is_some_and(|leader| {
        let alive = snapshot.brokers.get(leader).is_some_and(|b| b.is_serving());
        let report = snapshot.report(&assignment.shard, leader, assignment.generation);
        alive && report.is_some_and(|r| r.phase == Some(Phase::Serving))
    })
}

fn stream_spread(snapshot: &Snapshot) -> u32 {
    let targets: Vec<&BrokerId> =
        snapshot.brokers.iter().filter(|(_, b)| b.is_target()).map(|(id, _)| id).collect();
    let mut led: BTreeMap<&StreamKey, BTreeMap<&BrokerId, u32>> = BTreeMap::new();
    for assignment in snapshot.assignments.values() {
        if let Some(leader) = &assignment.leader {
            let stream = led.entry(&assignment.shard.stream).or_default();
            *stream.entry(leader).or_default() += 1;
        }
    }
    let spread = |counts: &BTreeMap<&BrokerId, u32>| {
        let of = |broker: &&&BrokerId| counts.get(**broker).copied().unwrap_or_default();
        let most = targets.iter().map(|b| of(&b)).max().unwrap_or_default();
        let least = targets.iter().map(|b| of(&b)).min().unwrap_or_default();
        most - least
    };
    led.values().map(spread).max().unwrap_or_default()
}

/// Sets every gauge that a pass can tell.
pub(crate) fn publish(records: &Records, planner: &Planner, plan: &Plan) {
    let snapshot = planner.snapshot();
    let figures = Figures::of(snapshot, plan);
    publish_balance(&planner.overview());
    metrics::set("evenkeel_shards_under_replicated", f64::from(plan.report.under_replicated));
    metrics::set("evenkeel_shard_replicas_missing", f64::from(plan.report.replicas_missing));
    metrics::brokers(snapshot);
    for (word, value) in [
        ("live", figures.live),
        ("draining", figures.draining),
        ("down", figures.down),
        ("left", figures.left),
    ] {
        metrics::set_labelled("evenkeel_brokers", "lifecycle", word, f64::from(value));
    }
    let stages =
        [("staged", figures.staged), ("fenced", figures.fenced), ("joining", figures.joining)];
    for (word, value) in stages {
        metrics::set_labelled("evenkeel_shard_moves", "stage", word, f64::from(value));
    }
    for on in WaitingOn::ALL {
        let count = plan.report.waiting.get(&on).copied().unwrap_or_default();
        metrics::set_labelled("evenkeel_shards_waiting", "on", on.as_str(), f64::from(count));
    }
    let other = figures.shards.saturating_sub(figures.serving);
    metrics::set_labelled("evenkeel_shards", "state", "serving", f64::from(figures.serving));
    metrics::set_labelled("evenkeel_shards", "state", "not_serving", f64::from(other));
    metrics::set_labelled(
        "evenkeel_placement_spread",
        "scope",
        "stream",
        f64::from(figures.stream_spread),
    );
    metrics::set("evenkeel_shard_moves_waiting", f64::from(figures.waiting));
    metrics::set("evenkeel_placement_paused", if snapshot.paused { 1.0 } else { 0.0 });
    let targets = snapshot.brokers.values().filter(|b| b.is_target()).count();
    metrics::set("evenkeel_cluster_active_brokers", targets as f64);
    let unreadable = records.unreadable();
    for family in records.family_names() {
        let count = unreadable.iter().filter(|(name, _)| *name == family).count();
        metrics::unreadable(family, count);
    }
}

fn publish_balance(balance: &Balance) {
    metrics::set("evenkeel_cluster_balance_cv", balance.cv_percent / 100.0);
    metrics::set("evenkeel_cluster_balance_mean_load", balance.mean);
    metrics::set("evenkeel_cluster_balance_std_dev", balance.std_dev);
    let scores = || balance.brokers.iter().map(|b| b.score);
    metrics::set("evenkeel_cluster_balance_max_load", scores().reduce(f64::max).unwrap_or(0.0));
    metrics::set("evenkeel_cluster_balance_min_load", scores().reduce(f64::min).unwrap_or(0.0));
    let totals = || balance.totals.values().copied().map(f64::from);
    let most = totals().reduce(f64::max).unwrap_or(0.0);
    let spread = most - totals().reduce(f64::min).unwrap_or(0.0);
    metrics::set_labelled("evenkeel_placement_spread", "scope", "total", spread);
}
