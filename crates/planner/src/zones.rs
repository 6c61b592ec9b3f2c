//! Zones: how many a set of copies spans, and which copies a cut-over keeps.

use crate::world::{NONE, Ord32, Shape, Standing, World};

/// Distinct zones of some brokers. A broker without a zone adds none.
pub(crate) fn span(world: &World<'_>, brokers: impl Iterator<Item = Ord32>) -> usize {
    if world.zones == 0 {
        return 0;
    }
    if world.zones <= 64 {
        let known = brokers.map(|b| world.zone(b)).filter(|zone| *zone != NONE);
        return known.fold(0_u64, |seen, zone| seen | 1 << zone).count_ones() as usize;
    }
    let mut seen: Vec<Ord32> = Vec::with_capacity(8);
    for broker in brokers {
        let zone = world.zone(broker);
        if zone != NONE && !seen.contains(&zone) {
            seen.push(zone);
        }
    }
    seen.len()
}

/// Zones that a shard spans now, copies that still serve counted.
pub(crate) fn span_now(world: &World<'_>, shape: &Shape) -> usize {
    span(world, shape.voters().filter(|b| world.standing(*b).holds()))
}

/// Zones that a set will keep: only copies that are not about to leave count.
pub(crate) fn span_kept(world: &World<'_>, brokers: impl Iterator<Item = Ord32>) -> usize {
    let stays = |b: &Ord32| matches!(world.standing(*b), Standing::Target | Standing::Unregistered);
    span(world, brokers.filter(stays))
}

/// The followers after `successor` took over from the leader of `shape`. The set changes by one
/// member: a transfer keeps the old leader as a follower; a copy pushes one member out when the
/// set is full, and then the zones that would be lost decide which, then how alive each is, and
/// last the old leader goes.
pub(crate) fn followers_after(
    world: &World<'_>,
    shard: Ord32,
    shape: &Shape,
    successor: Ord32,
    factor: usize,
) -> Vec<Ord32> {
    let mut kept: Vec<Ord32> =
        shape.followers.iter().copied().filter(|b| *b != successor).collect();
    if shape.leader != NONE {
        kept.push(shape.leader);
    }
    let transfer = shape.followers.contains(&successor);
    if transfer || kept.len() < factor || kept.is_empty() {
        return kept;
    }
    let worth = |b: Ord32| match world.standing(b) {
        _ if world.halted(shard, b).is_some() => 0,
        Standing::Target | Standing::Unregistered => 2,
        Standing::Draining => 1,
        Standing::Leaving | Standing::Lost => 0,
    };
    // The old leader is last in `kept`: among equals, the last is dropped.
    let dropped = (0..kept.len()).max_by_key(|drop| {
        let rest = kept.iter().enumerate().filter(|(i, _)| i != drop).map(|(_, b)| *b);
        (span_kept(world, rest.chain([successor])), std::cmp::Reverse(worth(kept[*drop])), *drop)
    });
    if let Some(dropped) = dropped {
        kept.remove(dropped);
    }
    kept
}

/// Zones after a leader move to `successor`.
pub(crate) fn span_after_move(
    world: &World<'_>,
    shard: Ord32,
    shape: &Shape,
    successor: Ord32,
    factor: usize,
) -> usize {
    if world.zones == 0 {
        return 0;
    }
    if shape.votes(successor) {
        return span_now(world, shape);
    }
    let after = followers_after(world, shard, shape, successor, factor);
    span_kept(world, after.into_iter().chain([successor]))
}
