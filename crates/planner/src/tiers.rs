//! Tiers: who is preferred for a leader. First the stream's floor, then its ceiling, then the
//! cluster share; load only orders brokers within a tier.

use crate::scores::Scores;
use crate::tally::Tally;
use crate::world::{Group, Ord32, World};

/// Rounding slack of weighted shares.
const SLACK: f64 = 1e-9;

/// How well a broker suits as the leader of a stream's shard; the first is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Under the stream's floor and under the cluster share.
    FloorAndShare,
    /// Under the stream's floor.
    Floor,
    /// Under the stream's ceiling and under the cluster share.
    CeilingAndShare,
    /// Under the stream's ceiling.
    Ceiling,
    /// Under the cluster share.
    Share,
    /// Has room.
    Room,
}

impl Tier {
    /// 1 is the best.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// What it says of the broker.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FloorAndShare => "under the floor and under the share",
            Self::Floor => "under the floor",
            Self::CeilingAndShare => "under the ceiling and under the share",
            Self::Ceiling => "under the ceiling",
            Self::Share => "under the share",
            Self::Room => "has room",
        }
    }

    /// 0 under the floor, 1 under the ceiling, 2 at or above it.
    pub(crate) fn of_stream(self) -> u8 {
        match self {
            Self::FloorAndShare | Self::Floor => 0,
            Self::CeilingAndShare | Self::Ceiling => 1,
            Self::Share | Self::Room => 2,
        }
    }

    /// Whether it is under the stream's ceiling and under the cluster share.
    pub(crate) fn under_both(self) -> bool {
        matches!(self, Self::FloorAndShare | Self::CeilingAndShare)
    }
}

/// What decides about leaders: counts, scores, and the switches for mutation checks.
pub(crate) struct Rules<'r, 'a> {
    pub(crate) world: &'r World<'a>,
    pub(crate) tally: &'r Tally,
    pub(crate) scores: &'r Scores,
    /// Off only in tests that show what the stream tiers are for.
    pub(crate) stream_tiers: bool,
}

impl Rules<'_, '_> {
    /// A broker's part of `n` shards, before rounding.
    pub(crate) fn part(&self, group: &Group, broker: Ord32, n: u32) -> f64 {
        let weight = self.world.brokers[broker as usize].weight;
        if self.world.policy.capacity_weighted && group.weight > 0.0 {
            f64::from(n) * weight / group.weight
        } else {
            f64::from(n) / (group.targets.len().max(1) as f64)
        }
    }

    /// Leaders of a stream above (or below) a broker's part of it.
    pub(crate) fn excess(&self, stream: Ord32, broker: Ord32) -> f64 {
        let facts = &self.world.streams[stream as usize];
        let part = self.part(&self.world.groups[facts.group], broker, facts.stream.shards);
        f64::from(self.tally.of_stream(stream, broker)) - part
    }

    /// Leaders in total above (or below) a broker's part of all shards.
    pub(crate) fn total_excess(&self, group: &Group, broker: Ord32) -> f64 {
        let part = self.part(group, broker, self.tally.shards);
        f64::from(self.tally.leaders[broker as usize]) - part
    }

    pub(crate) fn tier(&self, stream: Ord32, broker: Ord32) -> Tier {
        let facts = &self.world.streams[stream as usize];
        let group = &self.world.groups[facts.group];
        let share = (self.part(group, broker, self.tally.shards) - SLACK).ceil();
        let under_share = f64::from(self.tally.leaders[broker as usize]) < share;
        let led = f64::from(self.tally.of_stream(stream, broker));
        let part = self.part(group, broker, facts.stream.shards);
        let floor = self.stream_tiers && led < (part + SLACK).floor();
        let ceiling = self.stream_tiers && led < (part - SLACK).ceil();
        match (floor, ceiling, under_share) {
            (true, _, true) => Tier::FloorAndShare,
            (true, _, false) => Tier::Floor,
            (_, true, true) => Tier::CeilingAndShare,
            (_, true, false) => Tier::Ceiling,
            (_, _, true) => Tier::Share,
            _ => Tier::Room,
        }
    }

    /// The best of `candidates` for a shard of `stream`, and its tier.
    pub(crate) fn choose(
        &self,
        stream: Ord32,
        key_hash: u64,
        candidates: &[Ord32],
    ) -> Option<(Ord32, Tier)> {
        let mut tiered: Vec<(Tier, Ord32)> =
            candidates.iter().map(|b| (self.tier(stream, *b), *b)).collect();
        if self.world.policy.capacity_weighted {
            self.keep_largest_remainders(stream, &mut tiered);
        }
        let best = tiered.iter().map(|(tier, _)| *tier).min()?;
        let within: Vec<Ord32> =
            tiered.iter().filter(|(tier, _)| *tier == best).map(|(_, b)| *b).collect();
        self.least_loaded(key_hash, &within).map(|b| (b, best))
    }

    /// With unequal parts, whoever lacks most of its part goes first once the floors are filled;
    /// otherwise a fresh stream would ask for moves at once.
    fn keep_largest_remainders(&self, stream: Ord32, tiered: &mut Vec<(Tier, Ord32)>) {
        let best = tiered.iter().map(|(tier, _)| tier.of_stream()).min();
        if best != Some(1) {
            return;
        }
        tiered.retain(|(tier, _)| tier.of_stream() == 1);
        let lack = |b: Ord32| self.excess(stream, b);
        let least = tiered.iter().map(|(_, b)| lack(*b)).fold(f64::INFINITY, f64::min);
        tiered.retain(|(_, b)| lack(*b) <= least + SLACK);
    }

    /// Brokers whose score is within the band of the lowest are equals; then fewer leaders given
    /// since the last report, then the rendezvous score, then the id.
    pub(crate) fn least_loaded(&self, key_hash: u64, within: &[Ord32]) -> Option<Ord32> {
        let score = |b: Ord32| self.scores.score(b, self.tally);
        let lowest = within.iter().map(|b| score(*b)).min_by(f64::total_cmp)?;
        let band = lowest * (1.0 + self.world.policy.tie_band_percent / 100.0);
        let equals = within.iter().copied().filter(|b| score(*b) <= band);
        equals.min_by_key(|b| {
            let rendezvous = self.world.rendezvous(key_hash, *b);
            (self.scores.since(*b), std::cmp::Reverse(rendezvous), *b)
        })
    }
}
