//! How even the cluster is: scores, classes, leaders per stream and in total, missing replicas.

mod leaders;

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_model::{BrokerId, Snapshot, Strategy, StreamKey};
use serde::Serialize;

pub use leaders::StreamLeaders;

use crate::phases::rebalance::WORTH;
use crate::phases::spread::Reach;
use crate::scores::Scores;
use crate::stats::{BalanceStatus, LoadClass, Spread};
use crate::tiers::Rules;
use crate::world::{Ord32, World};

/// One active broker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BrokerBalance {
    /// The broker.
    pub broker: BrokerId,
    /// Its score under the policy's strategy.
    pub score: f64,
    /// Its class among the active brokers.
    pub class: LoadClass,
    /// Shards it leads, moves in flight taken as finished.
    pub leaders: u32,
    /// Shards it holds in any role, copies in flight too.
    pub replicas: u32,
}

/// One stream's leaders.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamBalance {
    /// The stream.
    pub stream: StreamKey,
    /// Per active broker, zeros included.
    pub leaders: StreamLeaders,
    /// Whether no broker is more than one ahead of another, each counted beyond its part.
    pub level: bool,
}

/// The whole cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Balance {
    /// Mean score of the active brokers.
    pub mean: f64,
    /// Population standard deviation.
    pub std_dev: f64,
    /// Coefficient of variation, percent.
    pub cv_percent: f64,
    /// What that says.
    pub status: BalanceStatus,
    /// The active brokers.
    pub brokers: Vec<BrokerBalance>,
    /// The streams.
    pub streams: Vec<StreamBalance>,
    /// Leaders in total per active broker.
    pub totals: BTreeMap<BrokerId, u32>,
    /// Shards with fewer copies on serving brokers than their replication factor.
    pub under_replicated: u32,
    /// The copies that those lack.
    pub replicas_missing: u32,
    /// Shards that span fewer zones than they could.
    pub crowded: u32,
    /// Shards whose replication factor exceeds the zones there are.
    pub zone_limited: u32,
}

/// One broker's place in the ranking.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranked {
    /// The broker.
    pub broker: BrokerId,
    /// Its score.
    pub score: f64,
    /// Whether the score rests on a usable report, or needs none.
    pub known: bool,
}

/// Active brokers, the least loaded first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranking {
    /// The strategy it was reckoned with.
    pub strategy: Strategy,
    /// Lowest score first, then by id.
    pub rankings: Vec<Ranked>,
}

/// How even the cluster is.
pub fn balance(snapshot: &Snapshot) -> Balance {
    balance_of(&World::new(snapshot, &snapshot.policy))
}

pub(crate) fn balance_of(world: &World<'_>) -> Balance {
    let tally = &world.facts.tally;
    let scores = Scores::new(world, tally, world.policy.assignment_strategy);
    let rules = Rules { world, tally, scores: &scores, stream_tiers: true };
    Balance { streams: streams(&rules), ..overview(world) }
}

/// The same without a row for each stream.
pub(crate) fn overview(world: &World<'_>) -> Balance {
    let tally = &world.facts.tally;
    let scores = Scores::new(world, tally, world.policy.assignment_strategy);
    let active = &world.groups[0].targets;
    let values: Vec<f64> = active.iter().map(|b| scores.score(*b, tally)).collect();
    let spread = Spread::of(&values);
    let id = |b: Ord32| world.brokers[b as usize].id.clone();
    let brokers = active.iter().zip(&values).map(|(b, score)| BrokerBalance {
        broker: id(*b),
        score: *score,
        class: spread.class(*score),
        leaders: tally.leaders[*b as usize],
        replicas: tally.held[*b as usize],
    });
    let replicas = Replicas::count(world);
    Balance {
        mean: spread.mean,
        std_dev: spread.std_dev,
        cv_percent: spread.cv_percent(),
        status: spread.status(),
        brokers: brokers.collect(),
        streams: Vec::new(),
        totals: active.iter().map(|b| (id(*b), tally.leaders[*b as usize])).collect(),
        under_replicated: replicas.under_replicated,
        replicas_missing: replicas.missing,
        crowded: replicas.crowded,
        zone_limited: replicas.zone_limited,
    }
}

fn streams(rules: &Rules<'_, '_>) -> Vec<StreamBalance> {
    let world = rules.world;
    let active = &world.groups[0].targets;
    let ids: Arc<[BrokerId]> =
        active.iter().map(|b| world.brokers[*b as usize].id.clone()).collect();
    let one = |(at, facts): (usize, &crate::facts::StreamFacts)| {
        let row = rules.tally.stream_row(at as Ord32);
        let place =
            |(b, count): &(Ord32, u32)| Some((active.binary_search(b).ok()? as u32, *count));
        StreamBalance {
            stream: facts.key.clone(),
            leaders: StreamLeaders::new(ids.clone(), row.iter().filter_map(place).collect()),
            level: is_level(rules, at as Ord32),
        }
    };
    world.facts.streams.iter().enumerate().map(one).collect()
}

/// Whether no broker is more than one ahead of another, each measured by its part.
fn is_level(rules: &Rules<'_, '_>, stream: Ord32) -> bool {
    let world = rules.world;
    let targets = &world.groups[world.stream(stream).group].targets;
    if world.policy.capacity_weighted {
        let excesses = || targets.iter().map(|b| rules.excess(stream, *b));
        let most = excesses().max_by(f64::total_cmp).unwrap_or(0.0);
        return most - excesses().min_by(f64::total_cmp).unwrap_or(0.0) <= WORTH;
    }
    // With equal parts the counts tell, and those that lead none need not be looked at.
    let row = rules.tally.stream_row(stream).iter();
    let led = || row.clone().filter(|(b, _)| targets.binary_search(b).is_ok()).map(|(_, n)| *n);
    let fewest = if led().count() < targets.len() { 0 } else { led().min().unwrap_or(0) };
    f64::from(led().max().unwrap_or(0).saturating_sub(fewest)) <= WORTH
}

/// Counts over all placed shards.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    pub(crate) under_replicated: u32,
    pub(crate) missing: u32,
    pub(crate) crowded: u32,
    pub(crate) zone_limited: u32,
}

impl Replicas {
    pub(crate) fn count(world: &World<'_>) -> Self {
        let reach = Reach::new(world);
        let mut counts = Self::default();
        for shard in 0..world.shard_count() {
            if !world.is_placed(shard) {
                continue;
            }
            let factor = world.stream_of(shard).factor();
            let missing = factor.saturating_sub(world.live_replicas(shard)) as u32;
            counts.under_replicated += u32::from(missing > 0);
            counts.missing = counts.missing.saturating_add(missing);
            counts.crowded += u32::from(reach.is_crowded(world, shard));
            let zones = reach.of(world, shard);
            counts.zone_limited += u32::from(zones > 0 && factor > zones);
        }
        counts
    }
}

/// Active brokers by score under `strategy`, the least loaded first.
pub fn rank(snapshot: &Snapshot, strategy: Strategy) -> Ranking {
    let world = World::new(snapshot, &snapshot.policy);
    let tally = &world.facts.tally;
    let scores = Scores::new(&world, tally, strategy);
    let mut rankings: Vec<Ranked> = world.groups[0]
        .targets
        .iter()
        .map(|b| Ranked {
            broker: world.brokers[*b as usize].id.clone(),
            score: scores.score(*b, tally),
            known: scores.is_known(*b),
        })
        .collect();
    rankings.sort_by(|a, b| a.score.total_cmp(&b.score).then_with(|| a.broker.cmp(&b.broker)));
    Ranking { strategy, rankings }
}
