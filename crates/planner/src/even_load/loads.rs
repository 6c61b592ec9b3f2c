//! What each shard carries.

use crate::scores::usable;
use crate::world::{NONE, Ord32, World};

/// Load of each shard, bytes per second, from its leader's latest report, or else from any.
pub(super) fn sizes(world: &World<'_>) -> Vec<f64> {
    let mut sizes = vec![0.0; world.shard_count() as usize];
    // The leader's own word counts before anybody else's.
    let mut by_leader = vec![false; sizes.len()];
    for (at, (broker, resolved)) in world.brokers.iter().zip(&world.facts.loads).enumerate() {
        let report = broker.view.and_then(|view| view.load.as_ref());
        let (Some(report), Some(resolved)) = (report, resolved) else { continue };
        for (row, &(shard, _)) in report.shards.iter().zip(&resolved.rows) {
            if shard == NONE {
                continue;
            }
            let leads = world.shard(shard).leader == at as Ord32;
            if leads || !by_leader[shard as usize] {
                sizes[shard as usize] = usable(Some(row.bytes_per_second));
                by_leader[shard as usize] = leads;
            }
        }
    }
    sizes
}
