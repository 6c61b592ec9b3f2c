//! Where each copy is read from.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_model::BrokerId;
use evenkeel_proto::migrations::SourceCandidate;

use super::Engine;
use crate::copies::{Copy, State};
use crate::nodes::Node;
use crate::world::World;

/// How long a source is kept before a better one is looked for.
const SOURCE_KEPT: Duration = Duration::from_secs(10);

/// Bytes that a copy is reckoned with beyond those that are known.
const LEAST_EXPECTED: u64 = 1 << 20;

impl Engine {
    /// The candidate expected to finish first; the leader, and followers that are behind
    /// themselves, only when nobody else is left. A source is kept as long as it is a candidate and
    /// no other could send at twice its rate.
    pub(super) fn choose_sources(&mut self, now: Duration) {
        let mut queued = self.queued(None);
        for copy in self.copies.values_mut() {
            let kept = copy.source.as_ref().is_some_and(|s| copy.job.sources.contains(s));
            if kept && now.saturating_sub(copy.source_since) < SOURCE_KEPT {
                continue;
            }
            let best = choose_source(copy, &self.world, &self.nodes, &queued, now);
            if kept && !is_much_better(best.as_ref(), copy, &self.nodes, now) {
                continue;
            }
            copy.source = best;
            copy.source_since = now;
            if let Some(source) = &copy.source {
                add(&mut queued, source, copy);
            }
        }
    }

    /// Who a copy could be read from, in the order of preference.
    pub(super) fn candidates(&self, copy: &Copy, now: Duration) -> Vec<SourceCandidate> {
        let queued = self.queued(Some(copy));
        let of = |(rank, source): (Rank<'_>, &BrokerId)| SourceCandidate {
            broker: source.to_string(),
            role: match rank.1 {
                ..0 => "follower",
                0 => "leader",
                1.. => "behind",
            }
            .to_owned(),
            expected_seconds: u64::try_from(rank.2 / NANOS).unwrap_or(u64::MAX),
            failed: rank.0 > 0,
        };
        let mut ranked = ranked(copy, &self.world, &self.nodes, &queued, now);
        ranked.sort();
        ranked.into_iter().map(of).collect()
    }

    /// Bytes still to be read from each source, but for those of one copy.
    fn queued(&self, except: Option<&Copy>) -> BTreeMap<BrokerId, u64> {
        let mut queued: BTreeMap<BrokerId, u64> = BTreeMap::new();
        let copies = self.copies.values().filter(|copy| copy.state != State::Level);
        for copy in copies.filter(|copy| except.is_none_or(|e| e.job.shard != copy.job.shard)) {
            if let Some(source) = &copy.source {
                add(&mut queued, source, copy);
            }
        }
        queued
    }
}

/// What is left is an agent's word, and may be anything.
fn add(queued: &mut BTreeMap<BrokerId, u64>, source: &BrokerId, copy: &Copy) {
    let sum = queued.entry(source.clone()).or_insert(0);
    *sum = sum.saturating_add(copy.remaining().unwrap_or(0));
}

/// How often it failed since the last byte came, its group, and nanoseconds until it would be
/// through.
type Rank<'a> = (u32, i8, u128, &'a BrokerId);

const NANOS: u128 = 1_000_000_000;

/// Whether a follower could send at more than twice the rate of the present source.
fn is_much_better(
    best: Option<&BrokerId>,
    copy: &Copy,
    nodes: &BTreeMap<BrokerId, Node>,
    now: Duration,
) -> bool {
    let rate = |broker: &BrokerId| nodes.get(broker).map_or(0, |node| node.bytes_per_second(now));
    match (best, &copy.source) {
        (Some(best), Some(present)) if best != present => rate(best) / 2 > rate(present),
        _ => false,
    }
}

fn choose_source(
    copy: &Copy,
    world: &World,
    nodes: &BTreeMap<BrokerId, Node>,
    queued: &BTreeMap<BrokerId, u64>,
    now: Duration,
) -> Option<BrokerId> {
    let best = ranked(copy, world, nodes, queued, now).into_iter().min();
    best.map(|(_, source)| source.clone())
}

fn ranked<'a>(
    copy: &'a Copy,
    world: &World,
    nodes: &BTreeMap<BrokerId, Node>,
    queued: &BTreeMap<BrokerId, u64>,
    now: Duration,
) -> Vec<(Rank<'a>, &'a BrokerId)> {
    let leader = world.moving.get(&copy.job.shard).and_then(|a| a.leader.as_ref());
    let leader_at = copy.job.sources.iter().position(|b| leader == Some(b));
    let expected_nanos = |source: &BrokerId| {
        let bytes = queued.get(source).copied().unwrap_or(0);
        let bytes = bytes.saturating_add(copy.remaining().unwrap_or(0));
        // While sizes are not known the faster one is still the better one.
        let bytes = bytes.saturating_add(LEAST_EXPECTED);
        let rate = nodes.get(source).map_or(0, |node| node.bytes_per_second(now)).max(1);
        u128::from(bytes) * NANOS / u128::from(rate)
    };
    let sources = copy.job.sources.iter().enumerate();
    sources
        .map(|(position, source)| {
            // Sources come in groups: caught-up followers, the leader, followers that are behind.
            let group = leader_at.map_or(0, |leader| position.cmp(&leader) as i8);
            let failures = copy.failures_of.get(source).copied().unwrap_or(0);
            ((failures, group, expected_nanos(source), source), source)
        })
        .collect()
}
