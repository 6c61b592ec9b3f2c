//! The guard against mass loss: when many brokers vanish at once, copies would only add to the
//! trouble, so that no repair starts but those of shards down to one live replica.

use evenkeel_model::{Lifecycle, Millis, Policy, Snapshot};

use crate::world::{NONE, Ord32, World};

/// What the guard found.
pub(crate) struct LossGuard {
    /// Why no repair copy starts, if so.
    pub(crate) held: Option<String>,
    /// Brokers that went down from here on went down around the load manager's election.
    elected: Option<(Millis, Millis)>,
}

impl LossGuard {
    pub(crate) fn new(world: &World<'_>) -> Self {
        let expiry = world.policy.broker_expiry_ms;
        let elected_at = world.snapshot.elected_at_ms;
        let settled = elected_at.saturating_add(expiry);
        Self {
            held: mass_loss(world.snapshot, world.policy),
            elected: (world.now < settled).then_some((elected_at, settled)),
        }
    }

    /// Why a repair of a shard with two live replicas may not start now: `lost` are the brokers
    /// whose copies are missing.
    pub(crate) fn holds(
        &self,
        world: &World<'_>,
        lost: impl Iterator<Item = Ord32>,
    ) -> Option<String> {
        if let Some(held) = &self.held {
            return Some(held.clone());
        }
        let (from, until) = self.elected?;
        for broker in lost.filter(|b| *b != NONE) {
            let Some(view) = world.brokers[broker as usize].view else { continue };
            if view.lifecycle == Lifecycle::Down && (from..=until).contains(&view.since_ms) {
                let id = world.name(broker);
                return Some(format!("{id} went down while the load manager was being elected"));
            }
        }
        None
    }
}

/// Whether so many brokers are missing that only last copies are restored, in words.
pub(crate) fn mass_loss(snapshot: &Snapshot, policy: &Policy) -> Option<String> {
    let views = || snapshot.brokers.values();
    let count = |l: Lifecycle| views().filter(|v| v.lifecycle == l).count();
    let down = count(Lifecycle::Down);
    let all = count(Lifecycle::Live) + count(Lifecycle::Draining) + down;
    if down < 2 {
        return None;
    }
    let mut since: Vec<Millis> =
        views().filter(|v| v.lifecycle == Lifecycle::Down).map(|v| v.since_ms).collect();
    since.sort_unstable();
    let released = policy.mass_loss_released_at_ms;
    let expiry = policy.broker_expiry_ms;
    let mut first = 0;
    let mut worst = 0;
    for last in 0..since.len() {
        while since[last].saturating_sub(since[first]) > expiry {
            first += 1;
        }
        if released.is_none_or(|at| at <= since[last]) {
            worst = worst.max(last - first + 1);
        }
    }
    let share = worst as f64 * 100.0 / all as f64;
    (worst >= 2 && share >= policy.mass_loss_percent).then(|| {
        format!("{worst} of {all} brokers vanished at once; only last copies are restored")
    })
}
