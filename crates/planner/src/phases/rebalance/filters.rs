//! Which shards load rebalancing may take: filters in a fixed order, each with its reason.

use std::collections::BTreeMap;

use evenkeel_model::{Millis, MoveReason};

use crate::globs;
use crate::pass::Pass;
use crate::scores::{fresh, topic_load};
use crate::stats::{LoadClass, Spread};
use crate::world::{Ord32, World};

/// The active brokers as load rebalancing sees them.
pub(super) struct Field {
    pub(super) spread: Spread,
    /// Brokers with a usable report, the least loaded first.
    pub(super) known: Vec<Ord32>,
    /// Who may give a shard away, the most loaded first.
    pub(super) sources: Vec<Ord32>,
    /// Shards that rest after a load move, and how long ago it was.
    cooling: BTreeMap<Ord32, Millis>,
}

impl Field {
    /// None if there are too few brokers.
    pub(super) fn new(pass: &Pass<'_>) -> Option<Self> {
        let active = &pass.world.groups[0].targets;
        if active.len() < least_brokers(&pass.world) {
            return None;
        }
        let score = |b: Ord32| pass.scores.score(b, &pass.tally);
        let scores: Vec<f64> = active.iter().map(|b| score(*b)).collect();
        let spread = Spread::of(&scores);
        let mut known: Vec<Ord32> =
            active.iter().copied().filter(|b| pass.scores.is_known(*b)).collect();
        known.sort_by(|a, b| score(*a).total_cmp(&score(*b)).then(a.cmp(b)));
        let overloaded = |b: &Ord32| spread.class(score(*b)) == LoadClass::Overloaded;
        let mut sources: Vec<Ord32> = known.iter().rev().copied().filter(overloaded).collect();
        if sources.is_empty() {
            sources = known.iter().rev().copied().filter(|b| score(*b) > spread.mean).collect();
        }
        Some(Self { spread, known, sources, cooling: cooling(&pass.world) })
    }

    /// Whether scores vary enough for a move.
    pub(super) fn is_uneven(&self, world: &World<'_>) -> bool {
        self.spread.cv_percent() >= world.policy.rebalancing.cv_threshold() - 1e-9
    }

    /// Why a shard is left alone whoever leads it: age, blacklist, cooldown, in this order.
    pub(super) fn left_alone(&self, world: &World<'_>, shard: Ord32) -> Option<String> {
        let rests = || {
            let (age, rest) = (self.cooling.get(&shard)?, world.policy.rebalancing.cooldown_ms());
            Some(format!("it was moved {age} ms ago and rests {rest} ms"))
        };
        young(world, shard).or_else(|| listed(world, shard)).or_else(rests)
    }

    /// Whether the broker may not give a shard away, and why.
    fn spares(&self, pass: &Pass<'_>, leader: Ord32) -> Option<String> {
        if self.sources.contains(&leader) {
            return None;
        }
        let name = pass.world.name(leader);
        Some(match self.sources.first() {
            Some(first) => format!("{name} is no source beside {}", pass.world.name(*first)),
            None => format!("{name} is no source"),
        })
    }
}

fn least_brokers(world: &World<'_>) -> usize {
    (world.policy.rebalancing.min_brokers_for_rebalance as usize).max(2)
}

fn young(world: &World<'_>, shard: Ord32) -> Option<String> {
    let created = world.stream_of(shard).stream.created_at_ms?;
    let age = world.now.saturating_sub(created);
    let least = world.policy.rebalancing.min_topic_age_ms();
    (age < least).then(|| format!("its stream is {age} ms old and the least age is {least} ms"))
}

fn listed(world: &World<'_>, shard: Ord32) -> Option<String> {
    let globs = &world.policy.rebalancing.blacklist_topics;
    if globs.is_empty() {
        return None;
    }
    let key = &world.stream_of(shard).key;
    let path = format!("/{}/{}", key.namespace, key.name);
    let glob = globs.iter().find(|glob| globs::matches(glob, &path))?;
    Some(format!("the blacklist has '{glob}'"))
}

fn cooling(world: &World<'_>) -> BTreeMap<Ord32, Millis> {
    let rest = world.policy.rebalancing.cooldown_ms();
    let moves = world.snapshot.history.iter().filter(|h| h.reason == MoveReason::Load);
    let ages = moves.map(|h| (h, world.now.saturating_sub(h.at_ms)));
    // The history is in order of time, so that the latest move of a shard stands.
    ages.filter(|(_, age)| *age < rest)
        .filter_map(|(h, age)| Some((world.shard_named(&h.shard)?, age)))
        .collect()
}

/// What load rebalancing makes of a shard, as a sentence; none if it is switched off.
pub(crate) fn verdict(pass: &Pass<'_>, shard: Ord32) -> Option<String> {
    let world = &pass.world;
    if !world.policy.rebalancing.enabled || !world.is_placed(shard) {
        return None;
    }
    let Some(field) = Field::new(pass) else {
        return Some(format!(
            "Load rebalancing waits for brokers: {} are active and it takes {}.",
            world.groups[0].targets.len(),
            least_brokers(world)
        ));
    };
    if field.known.len() < 2 {
        return Some(format!(
            "Load rebalancing knows too little: {} of {} active brokers have a load report that is \
             not too old.",
            field.known.len(),
            world.groups[0].targets.len()
        ));
    }
    if !field.is_uneven(world) {
        return Some(format!(
            "Load rebalancing wants nothing: scores vary by {:.1} % and the threshold is {} %.",
            field.spread.cv_percent(),
            world.policy.rebalancing.cv_threshold()
        ));
    }
    let leader = world.shard(shard).leader;
    let why = field.spares(pass, leader).or_else(|| field.left_alone(world, shard));
    Some(match why {
        Some(why) => format!("Load rebalancing passes it over: {why}."),
        None => {
            let report = world.brokers[leader as usize].view.and_then(|v| fresh(world, v));
            let key = world.key(shard);
            let row = report.and_then(|r| r.shards.iter().find(|row| row.shard == key));
            let load = row.map_or(0.2, topic_load);
            format!(
                "Load rebalancing may take it: its load is {load:.3}, and the lightest goes first."
            )
        }
    })
}
