//! Bytes of shards that this broker holds no more.
//!
//! They are erased only when the store says that others hold the shard. Without an assignment, as
//! in a store that was lost or restored, they may be the last copy, and stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::{Assignment, BrokerId, ShardKey, ShardState};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::host::ShardHost;
use crate::routes::Routes;

/// How often stored shards are compared with assignments.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Erases what is left over once it has been so for a time. Runs for ever.
pub(crate) async fn erase_leftovers(
    me: BrokerId,
    host: Arc<dyn ShardHost>,
    routes: Routes,
    held: watch::Receiver<BTreeSet<ShardKey>>,
    after: Duration,
) {
    let mut since: BTreeMap<ShardKey, Instant> = BTreeMap::new();
    loop {
        let now = Instant::now();
        let held = held.borrow().clone();
        let left: Vec<ShardKey> = host
            .stored()
            .into_iter()
            .filter(|shard| !held.contains(shard))
            .filter(|shard| routes.assignment(shard).is_some_and(|a| is_elsewhere(&a, &me)))
            .collect();
        since.retain(|shard, _| left.contains(shard));
        for shard in left {
            let first = *since.entry(shard.clone()).or_insert(now);
            if now.duration_since(first) >= after {
                tracing::info!(%shard, "giving up the bytes of a shard that others hold");
                host.erase(&shard).await;
            }
        }
        tokio::time::sleep(LOOK_EVERY.min(after.max(Duration::from_millis(100)))).await;
    }
}

/// Others hold the shard in full, and nothing is under way.
fn is_elsewhere(assignment: &Assignment, me: &BrokerId) -> bool {
    assignment.leader.is_some()
        && assignment.state != ShardState::Draining
        && assignment.role_of(me).is_none()
        && assignment.leaving.as_ref() != Some(me)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shard_that_others_hold_is_left_over() {
        let id = |s: &str| s.parse::<BrokerId>().unwrap();
        let me = id("b1");
        let mut assignment =
            Assignment::new("stream/d/s/0".parse().unwrap(), id("b2"), vec![id("b3")]);
        assert!(is_elsewhere(&assignment, &me));
        assignment.joining = Some(me.clone());
        assert!(!is_elsewhere(&assignment, &me));
        assignment.joining = None;
        assignment.leader = None;
        assert!(!is_elsewhere(&assignment, &me), "its bytes may be needed");
    }
}
