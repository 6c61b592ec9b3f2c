//! What a check has to know of the brokers.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::{
    Assignment, BrokerId, BrokerView, CopyClass, Millis, MoveReason, Phase, ShardReport,
    ShardState, Snapshot, StreamKey,
};

use crate::loss::mass_loss;
use crate::standing::{Standing, standing};

pub(super) struct Cluster<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// Why no repair copy starts, if many brokers are missing.
    pub(super) mass_loss: Option<String>,
}

impl<'a> Cluster<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        Self { snapshot, mass_loss: mass_loss(snapshot, &snapshot.policy) }
    }

    /// A broker that is not listed, or nobody, is lost.
    pub(super) fn standing(&self, broker: Option<&BrokerId>) -> Standing {
        let view = broker.and_then(|b| self.snapshot.brokers.get(b));
        let of = |v: &BrokerView| standing(v, self.snapshot.as_of_ms, &self.snapshot.policy);
        view.map_or(Standing::Lost, of)
    }

    /// Whether the broker serves and its copy of the shard has not halted.
    pub(super) fn holds(&self, a: &Assignment, broker: &BrokerId) -> bool {
        self.standing(Some(broker)).holds() && !self.has_halted(a, broker)
    }

    /// Whether the broker's last word about the shard is that its copy halted.
    pub(super) fn has_halted(&self, a: &Assignment, broker: &BrokerId) -> bool {
        let reports = self.snapshot.reports.get(&a.shard).into_iter().flatten();
        let last = reports.filter(|r| r.broker == *broker).max_by_key(|r| r.generation);
        last.is_some_and(|r| r.halted.is_some() || r.phase == Some(Phase::Halted))
    }

    /// Whether it serves and is not about to leave.
    pub(super) fn stays(&self, broker: &BrokerId) -> bool {
        matches!(self.standing(Some(broker)), Standing::Target | Standing::Unregistered)
    }

    pub(super) fn is_in_region(&self, stream: &StreamKey, broker: &BrokerId) -> bool {
        let region = self.snapshot.streams.get(stream).and_then(|s| s.region.as_ref());
        let there = self.snapshot.brokers.get(broker).and_then(|b| b.region.as_ref());
        region.is_none() || region == there
    }

    /// Whether the broker's last report, if it is not too old, says that its disk is full.
    pub(super) fn has_full_disk(&self, broker: &BrokerId) -> bool {
        let policy = &self.snapshot.policy;
        let load = self.snapshot.brokers.get(broker).and_then(|b| b.load.as_ref());
        let since = self.snapshot.as_of_ms.saturating_sub(policy.load_stale_after_ms);
        let used = load.filter(|l| l.reported_at_ms >= since).and_then(|l| l.disk_used_percent);
        policy.disk_full_percent > 0.0 && used.is_some_and(|used| used >= policy.disk_full_percent)
    }

    /// Live, registered brokers of the stream's region, or of all, with their weights.
    pub(super) fn eligible(&self, stream: Option<&StreamKey>) -> BTreeMap<&'a BrokerId, f64> {
        let fits = |(id, view): &(&BrokerId, &BrokerView)| {
            view.is_target() && stream.is_none_or(|s| self.is_in_region(s, id))
        };
        let all = self.snapshot.brokers.iter();
        all.filter(fits).map(|(id, view)| (id, view.weight)).collect()
    }

    pub(super) fn factor(&self, stream: &StreamKey) -> usize {
        self.snapshot.streams.get(stream).map_or(1, |s| s.replication_factor as usize)
    }

    /// What `broker` says about the shard at the generation of `a`.
    pub(super) fn report(&self, a: &Assignment, broker: &BrokerId) -> Option<&'a ShardReport> {
        self.snapshot.report(&a.shard, broker, a.generation)
    }

    /// Whether an operator holds the copy that `next` names, by what the shard was as `old`.
    pub(super) fn is_copy_paused(&self, old: &Assignment, next: &Assignment) -> bool {
        if super::copy_of(next).is_none() || next.state == ShardState::Draining {
            return false;
        }
        let (all, live) =
            (old.voters().count(), old.voters().filter(|b| self.holds(old, b)).count());
        let reason = next.move_.as_ref().map_or(MoveReason::Restore, |m| m.reason);
        let exchanges = next.leaving.as_ref().is_some_and(|b| self.holds(old, b));
        let adds = next.successor.is_none() && !exchanges;
        let class = match reason {
            _ if adds && live < all => CopyClass::of_loss(all, live),
            MoveReason::Restore if adds && live == 1 => CopyClass::LastCopy,
            reason => CopyClass::from(reason),
        };
        let now = self.snapshot.as_of_ms;
        let on = self.snapshot.copy_pauses.iter().filter(|p| p.at_ms <= now && p.is_on(now));
        on.filter(|p| p.scope.holds(class, &old.shard)).count() > 0
    }

    pub(super) fn holds_everything(&self, a: &Assignment, broker: &BrokerId) -> bool {
        let caught_up = self.report(a, broker).is_some_and(|r| r.caught_up);
        caught_up && !self.has_halted(a, broker)
    }

    /// Whether it says nothing else, and has not started again since the fence without a word.
    pub(super) fn may_hold_everything(&self, a: &Assignment, broker: &BrokerId) -> bool {
        let since = self.snapshot.brokers.get(broker).map_or(Millis::MAX, |v| v.since_ms);
        let fenced = a.move_.as_ref().and_then(|m| m.fenced_at_ms);
        let runs_on = fenced.is_none_or(|at| since <= at);
        let caught_up = self.report(a, broker).map_or(runs_on, |r| r.caught_up);
        caught_up && !self.has_halted(a, broker)
    }

    /// Whether its copy is within the lag bound.
    pub(super) fn is_close(&self, a: &Assignment, broker: &BrokerId) -> bool {
        let bound = self.snapshot.policy.move_fence_max_lag_records;
        !self.has_halted(a, broker)
            && self
                .report(a, broker)
                .is_some_and(|r| r.caught_up || r.lag_records.is_some_and(|lag| lag <= bound))
    }

    pub(super) fn span<'b>(&self, brokers: impl Iterator<Item = &'b BrokerId>) -> usize {
        let zone = |b: &BrokerId| self.snapshot.brokers.get(b).and_then(|v| v.zone.as_ref());
        brokers.filter_map(zone).collect::<BTreeSet<_>>().len()
    }

    /// The most zones that the set can span once `successor` leads it: one member goes if the set
    /// is full, and copies that leave anyway do not count.
    pub(super) fn widest_after(&self, a: &Assignment, successor: &BrokerId) -> usize {
        let stays = |b: &&BrokerId| self.stays(b);
        let after = |without: Option<&BrokerId>| {
            let kept = a.voters().filter(|b| Some(*b) != without && *b != successor);
            self.span(kept.chain([successor]).filter(stays))
        };
        if a.voters().any(|v| v == successor) || a.voters().count() < self.factor(&a.shard.stream) {
            return after(None);
        }
        a.voters().map(|b| after(Some(b))).max().unwrap_or(0)
    }
}
