//! What no plan can do without, and what a plan left behind.

use std::collections::BTreeMap;

use evenkeel_model::{BrokerId, ShardKey, Snapshot};
use evenkeel_planner::LoadAim;

/// What brokers carry, their replicas' loads.
pub(crate) struct Carried {
    replicas: BTreeMap<BrokerId, Vec<f64>>,
    loads: BTreeMap<BrokerId, f64>,
    pub(crate) mean: f64,
    pub(crate) total: f64,
}

impl Carried {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let mut sizes: BTreeMap<&ShardKey, f64> = BTreeMap::new();
        for row in snapshot.brokers.values().flat_map(|b| &b.load).flat_map(|l| &l.shards) {
            sizes.insert(&row.shard, row.bytes_per_second);
        }
        let mut replicas: BTreeMap<BrokerId, Vec<f64>> =
            snapshot.brokers.keys().map(|b| (b.clone(), Vec::new())).collect();
        for (shard, a) in &snapshot.assignments {
            let size = sizes.get(shard).copied().unwrap_or_default();
            for broker in a.voters() {
                if let Some(all) = replicas.get_mut(broker) {
                    all.push(size);
                }
            }
        }
        replicas.values_mut().for_each(|all| all.sort_by(|a, b| b.total_cmp(a)));
        let loads: BTreeMap<BrokerId, f64> =
            replicas.iter().map(|(b, all)| (b.clone(), all.iter().sum())).collect();
        let total: f64 = loads.values().sum();
        Self { mean: total / loads.len() as f64, total, replicas, loads }
    }

    pub(crate) fn highest_over_mean(&self) -> f64 {
        self.loads.values().fold(0.0, |most: f64, l| most.max(*l)) / self.mean
    }

    pub(crate) fn lowest_over_mean(&self) -> f64 {
        self.loads.values().fold(f64::MAX, |least: f64, l| least.min(*l)) / self.mean
    }

    /// The least loaded of the brokers that carried nothing in `before`, over the mean.
    pub(crate) fn lowest_joined_over_mean(&self, before: &Self) -> f64 {
        let joined = self.loads.iter().filter(|(b, _)| before.loads[*b] <= 0.0);
        joined.fold(f64::MAX, |least, (_, l)| least.min(*l)) / self.mean
    }

    /// The least number of moves and the least load that reach the aim. Every broker that is too
    /// high gives its largest replicas, at least until it no longer is; those that must be filled
    /// take at least what they lack, in the largest replicas that are left anywhere. Room, zones and
    /// whether the pieces fit are left out of account.
    pub(crate) fn least(&self, tolerance: f64, aim: LoadAim) -> (usize, f64) {
        let (high, low) = (self.mean * (1.0 + tolerance), self.mean * (1.0 - tolerance));
        let (mut moves, mut carried, mut over, mut under) = (0, 0.0, 0.0, 0.0);
        let mut receivers = 0;
        let mut left: Vec<f64> = Vec::new();
        for (broker, load) in &self.loads {
            let excess = load - high;
            over += excess.max(0.0);
            if aim == LoadAim::BothSides || *load <= 0.0 {
                under += (low - load).max(0.0);
                receivers += usize::from(*load < low);
            }
            let mut given = 0.0;
            for size in &self.replicas[broker] {
                if given < excess {
                    moves += 1;
                    given += size;
                } else {
                    left.push(*size);
                }
            }
            carried += given;
        }
        left.sort_by(|a, b| b.total_cmp(a));
        for size in left {
            if carried >= under {
                break;
            }
            moves += 1;
            carried += size;
        }
        (moves.max(receivers), over.max(under))
    }
}

/// Shards that span fewer zones than before.
pub(crate) fn narrowed(before: &Snapshot, after: &Snapshot) -> usize {
    let span = |s: &Snapshot, shard: &ShardKey| {
        let voters = s.assignments.get(shard).into_iter().flat_map(|a| a.voters());
        let mut zones: Vec<&str> =
            voters.filter_map(|b| s.brokers.get(b)?.zone.as_deref()).collect();
        zones.sort_unstable();
        zones.dedup();
        zones.len()
    };
    before.assignments.keys().filter(|shard| span(after, shard) < span(before, shard)).count()
}
