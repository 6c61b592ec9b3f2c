//! A rebalancer that takes latency for imbalance: what a node must not be moved for. Only the
//! simulator has one.

use evenkeel_model::ShardKey;

use crate::placement::Placement;

/// Time between two looks, milliseconds.
pub(crate) const EVERY_MS: f64 = 5_000.0;

/// A node slower than the median times this looks as if it held too much.
const SLOW: f64 = 1.5;

/// Leaders that it takes off a slow node at a time.
const AT_A_TIME: usize = 2;

/// Moves leaders from slow nodes to the fastest ones. Answers how many it started.
pub(crate) fn look(
    placement: &mut Placement,
    p99_ms: &[Option<f64>],
    now_ms: f64,
    at_once: usize,
) -> usize {
    let mut known: Vec<(usize, f64)> =
        p99_ms.iter().enumerate().filter_map(|(node, p99)| Some((node, (*p99)?))).collect();
    known.sort_by(|a, b| a.1.total_cmp(&b.1));
    let Some((_, median)) = known.get(known.len() / 2).copied() else { return 0 };
    let fast: Vec<usize> = known.iter().map(|(node, _)| *node).take(known.len() / 2).collect();
    let mut started = 0;
    for (node, _) in known.iter().rev().filter(|(_, p99)| *p99 > SLOW * median) {
        for shard in led_by(placement, *node) {
            if placement.copies() >= at_once {
                return started;
            }
            // The fast ones in turn.
            let turn = fast.iter().cycle().skip(started).take(fast.len());
            let Some(to) = turn.copied().find(|n| !placement.holds(&shard, *n)) else { continue };
            placement.stage(&shard, to, now_ms);
            started += 1;
        }
    }
    started
}

fn led_by(placement: &Placement, node: usize) -> Vec<ShardKey> {
    let id = &placement.ids[node];
    let led = placement.assignments().filter(|a| a.leader.as_ref() == Some(id));
    let resting = led.filter(|a| !placement.is_moving(&a.shard));
    resting.take(AT_A_TIME).map(|a| a.shard.clone()).collect()
}
