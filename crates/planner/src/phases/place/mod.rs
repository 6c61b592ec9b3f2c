//! Place: shards without an assignment get a leader by the tiers, then followers. All leaders go
//! first, so that where room is short every shard is served before any has a second copy.

mod ladder;
mod leaders;
mod seats;
mod shelves;

use evenkeel_model::{BrokerId, Marker, MarkerReason, ShardState};

use crate::decision::{Decision, Reason, RefusedBecause, Step, WaitingOn};
use crate::disk::Disk;
use crate::pass::{Draft, Pass};
use crate::world::{NONE, Ord32, Shape};
use leaders::{Leaders, look_through};
use seats::Seats;

pub(crate) fn run(pass: &mut Pass<'_>) {
    let mut leaders = Leaders::new(pass);
    for shard in pass.lists.unplaced.clone() {
        place(pass, Some(&mut leaders), shard, MarkerReason::New);
    }
}

/// Names the leader of one shard; `reason` is what a missing marker means.
pub(crate) fn leader(pass: &mut Pass<'_>, shard: Ord32, reason: MarkerReason) {
    place(pass, None, shard, reason);
}

fn place(
    pass: &mut Pass<'_>,
    mut leaders: Option<&mut Leaders>,
    shard: Ord32,
    reason: MarkerReason,
) {
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
    let asked = hint != source && targets.binary_search(&hint).is_ok() && pass.has_room(hint);
    let chosen = if asked {
        Some((hint, "where its marker asks for"))
    } else {
        let found = match &mut leaders {
            Some(leaders) => leaders.choose(pass, shard, source),
            None => look_through(pass, shard, source),
        };
        found.map(|(b, tier)| (b, tier.as_str()))
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
        detail: detail.to_owned(),
    };
    pass.write(shard, draft);
    if let Some(leaders) = leaders {
        leaders.given(pass, pass.world.shard(shard).stream, leader);
    }
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
    let mut groups: Vec<Option<Seats>> = pass.world.groups.iter().map(|_| None).collect();
    for shard in shards {
        let stream = pass.world.stream_of(shard);
        let (factor, group) = (stream.factor(), stream.group);
        if factor < 2 {
            continue;
        }
        let Some(leader) = led_by(pass, shard) else { continue };
        let mut set = vec![leader];
        let key_hash = pass.world.key_hash(shard);
        while set.len() < factor {
            let targets = &pass.world.groups[group].targets;
            let seats = groups[group].get_or_insert_with(|| Seats::new(pass, targets));
            let Some(follower) = seats.best(&pass.world, key_hash, &set) else { break };
            pass.tally.held[follower as usize] += 1;
            groups.iter_mut().flatten().for_each(|seats| seats.given(pass, follower));
            set.push(follower);
        }
        seat(pass, shard, &set[1..]);
    }
}

/// The leader that a shard is given in this pass.
fn led_by(pass: &Pass<'_>, shard: Ord32) -> Option<Ord32> {
    let write = pass.decisions.get(&shard)?.write()?;
    pass.world.broker_named(write.next.leader.as_ref()?)
}

/// Names the followers of a shard that is given a leader in this pass.
fn seat(pass: &mut Pass<'_>, shard: Ord32, followers: &[Ord32]) {
    let ids: Vec<BrokerId> = followers.iter().filter_map(|b| pass.world.id(*b)).collect();
    if let Some(Decision::Write(write)) = pass.decisions.get_mut(&shard) {
        write.next.followers = ids;
    }
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
        let others = || group.targets.iter().filter(|b| !holds(**b));
        let full: Vec<Ord32> = others()
            .copied()
            .filter(|b| world.disk(*b) == Disk::Full && pass.has_room(*b))
            .collect();
        let all = others().count();
        let detail = match full.first() {
            None => format!("{all} live brokers could take it and all are at max_shards"),
            Some(first) if full.len() == all => {
                let words = world.disk_words(*first);
                format!("{all} live brokers could take it and all have a full disk ({words})")
            }
            Some(first) => format!(
                "{all} live brokers could take it, {} have a full disk ({}) and the others are at \
                 max_shards",
                full.len(),
                world.disk_words(*first)
            ),
        };
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
