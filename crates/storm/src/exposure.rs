//! How many shards are short of replicas, and how short.

use crate::bound::{Link, Missing, least_seconds};
use crate::placement::Placement;

/// Shards by how many live replicas they have left, of those that should have more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Exposure {
    /// Fewer than they should, the next two included.
    pub(crate) short: usize,
    /// One.
    pub(crate) one: usize,
    /// None.
    pub(crate) none: usize,
}

/// What every node leads, and the exposure, with these nodes up.
pub(crate) fn look(placement: &Placement, up: &[bool], replicas: usize) -> (Vec<f64>, Exposure) {
    let mut leads = vec![0.0; up.len()];
    let mut exposure = Exposure::default();
    for assignment in placement.assignments() {
        let numbers = assignment.voters().filter_map(|id| placement.number(id));
        let live = numbers.filter(|node| up[*node]).count();
        exposure.short += usize::from(live < replicas);
        exposure.one += usize::from(live == 1 && replicas > 1);
        exposure.none += usize::from(live == 0);
        if let Some(leader) = assignment.leader.as_ref().and_then(|id| placement.number(id)) {
            leads[leader] += 1.0;
        }
    }
    (leads, exposure)
}

/// The least seconds in which every replica that is missing could be copied, over links that give
/// copies so many bytes per second each way.
pub(crate) fn least_repair_s(
    placement: &Placement,
    up: &[bool],
    replicas: usize,
    bytes_per_second: f64,
) -> Option<f64> {
    let rate = |up: &bool| if *up { bytes_per_second } else { 0.0 };
    let links: Vec<Link> =
        up.iter().map(rate).map(|rate| Link { egress: rate, ingress: rate }).collect();
    let allowed: Vec<usize> = (0..up.len()).filter(|node| up[*node]).collect();
    let mut copies = Vec::new();
    for assignment in placement.assignments() {
        let numbers = assignment.voters().filter_map(|id| placement.number(id));
        let holders: Vec<usize> = numbers.filter(|node| up[*node]).collect();
        let copy = Missing {
            bytes: placement.shard_bytes() as f64,
            allowed: allowed.iter().copied().filter(|n| !holders.contains(n)).collect(),
            holders,
        };
        // What nobody holds any more cannot be copied.
        if !copy.holders.is_empty() {
            let missing = replicas.saturating_sub(copy.holders.len());
            copies.extend(std::iter::repeat_n(copy, missing));
        }
    }
    least_seconds(&links, &copies)
}
