//! Tiers: who is preferred for a leader. First the stream's floor, then its ceiling, then the
//! cluster share; load only orders brokers within a tier.

use crate::scores::Scores;
use crate::tally::Tally;
use crate::world::{Group, Ord32, World};

/// Rounding slack of weighted shares.
pub(crate) const SLACK: f64 = 1e-9;

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

/// Counts that a broker reaches or is under.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bars {
    pub(crate) floor: u32,
    pub(crate) ceiling: u32,
    pub(crate) share: u32,
}

impl Bars {
    pub(crate) fn tier(self, led: u32, leads: u32) -> Tier {
        match (led < self.floor, led < self.ceiling, leads < self.share) {
            (true, _, true) => Tier::FloorAndShare,
            (true, _, false) => Tier::Floor,
            (_, true, true) => Tier::CeilingAndShare,
            (_, true, false) => Tier::Ceiling,
            (_, _, true) => Tier::Share,
            _ => Tier::Room,
        }
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
        f64::from(self.tally.of_stream(stream, broker)) - self.part_of_stream(stream, broker)
    }

    /// A broker's part of a stream's shards, before rounding.
    pub(crate) fn part_of_stream(&self, stream: Ord32, broker: Ord32) -> f64 {
        let facts = self.world.stream(stream);
        self.part(&self.world.groups[facts.group], broker, facts.stream.shards)
    }

    /// Leaders in total above (or below) a broker's part of all shards.
    pub(crate) fn total_excess(&self, group: &Group, broker: Ord32) -> f64 {
        let part = self.part(group, broker, self.tally.shards);
        f64::from(self.tally.leaders[broker as usize]) - part
    }

    /// The cluster share of every broker of a group, if all weigh the same.
    pub(crate) fn share(&self, group: &Group) -> u32 {
        let share = f64::from(self.tally.shards) / (group.targets.len().max(1) as f64);
        (share - SLACK).ceil() as u32
    }

    /// The counts below which a broker is under its floor, its ceiling and its share.
    pub(crate) fn bars(&self, stream: Ord32, broker: Ord32) -> Bars {
        let facts = self.world.stream(stream);
        let group = &self.world.groups[facts.group];
        let part = self.part_of_stream(stream, broker);
        let share = self.part(group, broker, self.tally.shards);
        let (floor, ceiling) = if self.stream_tiers {
            ((part + SLACK).floor() as u32, (part - SLACK).ceil() as u32)
        } else {
            (0, 0)
        };
        Bars { floor, ceiling, share: (share - SLACK).ceil() as u32 }
    }

    pub(crate) fn tier(&self, stream: Ord32, broker: Ord32) -> Tier {
        let led = self.tally.of_stream(stream, broker);
        self.bars(stream, broker).tier(led, self.tally.leaders[broker as usize])
    }

    /// The tier of a broker that leads a shard of the stream, that shard left out.
    pub(crate) fn tier_without(&self, stream: Ord32, broker: Ord32) -> Tier {
        let led = self.tally.of_stream(stream, broker).saturating_sub(1);
        let leads = self.tally.leaders[broker as usize].saturating_sub(1);
        self.bars(stream, broker).tier(led, leads)
    }

    /// The best of `candidates`, which are in order, for a shard of `stream`, and its tier.
    pub(crate) fn choose(
        &self,
        stream: Ord32,
        key_hash: u64,
        candidates: &[Ord32],
    ) -> Option<(Ord32, Tier)> {
        let first = candidates.first()?;
        let weighted = self.world.policy.capacity_weighted;
        let mut bars = self.bars(stream, *first);
        let mut row = self.tally.stream_row(stream).iter().peekable();
        let mut best = Tier::Room;
        let mut within: Vec<Ord32> = Vec::new();
        for &broker in candidates {
            if weighted {
                bars = self.bars(stream, broker);
            }
            while row.next_if(|(b, _)| *b < broker).is_some() {}
            let led = row.peek().filter(|(b, _)| *b == broker).map_or(0, |(_, n)| *n);
            let mut tier = bars.tier(led, self.tally.leaders[broker as usize]);
            if weighted && tier == Tier::CeilingAndShare {
                // With unequal parts the share comes after who lacks most; see below.
                tier = Tier::Ceiling;
            }
            if tier < best {
                best = tier;
                within.clear();
            }
            if tier == best {
                within.push(broker);
            }
        }
        if weighted && best == Tier::Ceiling {
            self.keep_largest_remainders(stream, &mut within);
        }
        let chosen = self.least_loaded(key_hash, &within)?;
        Some((chosen, self.tier(stream, chosen)))
    }

    /// With unequal parts, whoever lacks most of its part goes first once the floors are filled,
    /// otherwise a fresh stream would ask for moves at once; then who is under its share.
    fn keep_largest_remainders(&self, stream: Ord32, within: &mut Vec<Ord32>) {
        let lack = |b: Ord32| self.excess(stream, b);
        let least = within.iter().map(|b| lack(*b)).fold(f64::INFINITY, f64::min);
        within.retain(|b| lack(*b) <= least + SLACK);
        let under = |b: &Ord32| self.tier(stream, *b) == Tier::CeilingAndShare;
        if within.iter().any(under) {
            within.retain(under);
        }
    }

    /// Brokers whose score is within the band of the lowest are equals; then fewer leaders given
    /// since the last report, then the rendezvous score, then the id.
    pub(crate) fn least_loaded(&self, key_hash: u64, within: &[Ord32]) -> Option<Ord32> {
        let score = |b: Ord32| self.scores.score(b, self.tally);
        let lowest = within.iter().map(|b| score(*b)).min_by(f64::total_cmp)?;
        let band = lowest * (1.0 + self.world.policy.tie_band_percent / 100.0);
        let equals = || within.iter().copied().filter(|b| score(*b) <= band);
        let fewest = equals().map(|b| self.scores.since(b)).min()?;
        let equals = equals().filter(|b| self.scores.since(*b) == fewest);
        self.world.foremost(key_hash, equals)
    }
}
