//! Place: shards without an assignment get a leader by the tiers, then followers. All leaders go
//! first, so that where room is short every shard is served before any has a second copy.

use std::cmp::Reverse;

use evenkeel_model::{Marker, MarkerReason, ShardState};

use crate::decision::{Decision, Reason, RefusedBecause, Step, WaitingOn};
use crate::pass::{Draft, Pass};
use crate::world::{NONE, Ord32, Shape};

pub(crate) fn run(pass: &mut Pass<'_>) {
    for shard in pass.lists.unplaced.clone() {
        leader(pass, shard, MarkerReason::New);
    }
}

/// Names the leader of a shard; `reason` is what a missing marker means.
pub(crate) fn leader(pass: &mut Pass<'_>, shard: Ord32, reason: MarkerReason) {
    let world = &pass.world;
    let marker = marker(pass, shard).cloned();
    let reason = marker.as_ref().map_or(reason, |m| m.reason);
    let live = world.group_of(shard).targets.len();
    let factor = world.stream_of(shard).factor();
    let young = world.now.saturating_sub(world.snapshot.first_registered_ms);
    if live < factor && young < world.policy.settle_ms {
        let detail =
            format!("{live} of {factor} brokers are live and the cluster is {young} ms old");
        return pass.wait(shard, WaitingOn::Settling, detail);
    }
    let ordinal =
        |id: &Option<_>| id.as_ref().and_then(|id| world.broker_named(id)).unwrap_or(NONE);
    let source = marker.as_ref().map_or(NONE, |m| ordinal(&m.from_broker));
    let hint = marker.as_ref().map_or(NONE, |m| ordinal(&m.to_broker));
    let targets = &world.group_of(shard).targets;
    let legal: Vec<Ord32> =
        targets.iter().copied().filter(|b| *b != source && pass.has_room(*b)).collect();
    let chosen = if legal.contains(&hint) {
        Some((hint, "where its marker asks for".to_owned()))
    } else {
        let stream = world.shard(shard).stream;
        let chosen = pass.rules().choose(stream, world.key_hash(shard), &legal);
        chosen.map(|(b, tier)| (b, tier.as_str().to_owned()))
    };
    let Some((leader, detail)) = chosen else {
        return refuse(pass, shard, |b| b == source);
    };
    let shape =
        Shape { leader, followers: Vec::new(), successor: NONE, joining: NONE, leaving: NONE };
    let draft = Draft {
        step: Step::Place,
        reason: Reason::Marker(reason),
        from: NONE,
        to: leader,
        shape,
        state: ShardState::Assigning,
        move_: None,
        flight: None,
        outcome: None,
        detail,
    };
    pass.write(shard, draft);
}

/// The marker of a shard, as far as it still speaks of a shard without a leader.
fn marker<'p>(pass: &'p Pass<'_>, shard: Ord32) -> Option<&'p Marker> {
    let snapshot = pass.world.snapshot;
    if snapshot.unassigned.is_empty() {
        return None;
    }
    snapshot.unassigned.get(&pass.world.key(shard))
}

/// Fills the sets of the shards placed in this pass.
pub(crate) fn followers(pass: &mut Pass<'_>) {
    let placed = |(shard, decision): (&Ord32, &Decision)| {
        decision.write().filter(|w| w.step == Step::Place).map(|_| *shard)
    };
    let shards: Vec<Ord32> = pass.decisions.iter().filter_map(placed).collect();
    for shard in shards {
        let factor = pass.world.stream_of(shard).factor();
        if factor > 1 {
            let key_hash = pass.world.key_hash(shard);
            while add_follower(pass, shard, key_hash, factor) {}
        }
    }
}

fn add_follower(pass: &mut Pass<'_>, shard: Ord32, key_hash: u64, factor: usize) -> bool {
    let Some(Decision::Write(write)) = pass.decisions.get(&shard) else { return false };
    let world = &pass.world;
    let set: Vec<Ord32> = write.next.voters().filter_map(|id| world.broker_named(id)).collect();
    if set.len() >= factor {
        return false;
    }
    let Some(follower) = best_follower(pass, shard, key_hash, &set) else { return false };
    let id = pass.world.id(follower);
    pass.tally.held[follower as usize] += 1;
    if let (Some(Decision::Write(write)), Some(id)) = (pass.decisions.get_mut(&shard), id) {
        write.next.followers.push(id);
    }
    true
}

/// A zone that the set lacks first, then fewest roles, then the rendezvous score.
fn best_follower(pass: &Pass<'_>, shard: Ord32, key_hash: u64, set: &[Ord32]) -> Option<Ord32> {
    let world = &pass.world;
    let lacks = |zone: Ord32| zone != NONE && set.iter().all(|b| world.zone(*b) != zone);
    let mut best = (true, u32::MAX);
    let mut equals: Vec<Ord32> = Vec::new();
    for &broker in &world.group_of(shard).targets {
        let roles = pass.tally.held[broker as usize];
        let rank = (world.zones == 0 || !lacks(world.zone(broker)), roles);
        if rank > best || !pass.has_room(broker) || set.contains(&broker) {
            continue;
        }
        if rank < best {
            best = rank;
            equals.clear();
        }
        equals.push(broker);
    }
    equals.into_iter().min_by_key(|b| (Reverse(world.rendezvous(key_hash, *b)), *b))
}

/// Says why no broker can take a copy. `holds` are brokers that are no candidates anyway.
pub(crate) fn refuse(pass: &mut Pass<'_>, shard: Ord32, holds: impl Fn(Ord32) -> bool) {
    let (because, detail) = why_no_broker(pass, shard, holds);
    pass.refuse(shard, because, detail);
}

pub(crate) fn why_no_broker(
    pass: &Pass<'_>,
    shard: Ord32,
    holds: impl Fn(Ord32) -> bool,
) -> (RefusedBecause, String) {
    let world = &pass.world;
    let group = world.group_of(shard);
    let others = group.targets.iter().filter(|b| !holds(**b)).count();
    if others > 0 {
        let detail = format!("{others} live brokers could take it and all are at max_shards");
        return (RefusedBecause::AllFull, detail);
    }
    match &group.region {
        Some(region) if group.targets.is_empty() && !world.groups[0].targets.is_empty() => {
            let detail = format!("no live broker is in region {region}");
            (RefusedBecause::NoBrokerInRegion, detail)
        }
        region => {
            let live = group.targets.len();
            let factor = world.stream_of(shard).factor();
            let there = region.as_ref().map_or(String::new(), |r| format!(" in region {r}"));
            let detail = if live < factor {
                format!("{factor} replicas need {factor} live brokers{there} and there are {live}")
            } else {
                format!("none of the {live} live brokers{there} is free to take it")
            };
            (RefusedBecause::NoLiveBroker, detail)
        }
    }
}
