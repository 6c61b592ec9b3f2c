//! Who leads each new shard, by the tiers. The rule is [`crate::tiers`]'; here it is asked so often
//! that the candidates are kept in order.

use crate::pass::Pass;
use crate::phases::place::ladder::{Candidate, Ladder, Shelf};
use crate::phases::place::shelves::Shelves;
use crate::tiers::{Bars, Tier};
use crate::world::{NONE, Ord32};

/// A stream with fewer shards than this part of the brokers is placed by its group's ladder.
const PART: usize = 32;

/// With unequal parts there is no ladder of a group; for so few shards the candidates are looked
/// through one by one.
const FEW: u32 = 4;

/// One stream's candidates.
struct OfStream {
    stream: Ord32,
    shelves: Shelves,
    ladder: Ladder,
}

/// The candidates of all groups.
pub(super) struct Leaders {
    /// By group, from the first time that it is asked for: by cluster share only.
    groups: Vec<Option<Ladder>>,
    /// Of the stream being placed, if it has a ladder of its own.
    stream: Option<OfStream>,
    /// By broker: the last small stream that it was seen to lead any of.
    seen: Vec<Ord32>,
    /// The small stream that `seen` speaks of.
    small: Ord32,
}

impl Leaders {
    pub(super) fn new(pass: &Pass<'_>) -> Self {
        Self {
            groups: pass.world.groups.iter().map(|_| None).collect(),
            stream: None,
            seen: vec![NONE; pass.world.brokers.len()],
            small: NONE,
        }
    }

    /// The best broker with room for a shard, `except` left out.
    pub(super) fn choose(
        &mut self,
        pass: &Pass<'_>,
        shard: Ord32,
        except: Ord32,
    ) -> Option<(Ord32, Tier)> {
        let world = &pass.world;
        let (stream, key_hash) = (world.shard(shard).stream, world.key_hash(shard));
        let facts = world.stream(stream);
        let targets = &world.groups[facts.group].targets;
        let weighted = world.policy.capacity_weighted;
        if weighted && facts.stream.shards < FEW {
            return look_through(pass, shard, except);
        }
        let large = facts.stream.shards as usize * PART >= targets.len();
        let chosen = if weighted || large {
            let ladder = self.of_stream(pass, stream, targets)?;
            let shelf = ladder.first_shelf(|b| b != except)?;
            ladder.best(world, key_hash, shelf, |b| b != except, std::iter::empty())
        } else {
            self.in_small_stream(pass, stream, key_hash, except)
        }?;
        Some((chosen, pass.rules().tier(stream, chosen)))
    }

    fn of_stream(&mut self, pass: &Pass<'_>, stream: Ord32, targets: &[Ord32]) -> Option<&Ladder> {
        if self.stream.as_ref().is_none_or(|known| known.stream != stream) {
            let shelves = Shelves::new(pass, stream, targets)?;
            let stands = targets.iter().filter_map(|b| in_stream(pass, stream, &shelves, *b));
            let ladder = Ladder::new(pass.world.brokers.len(), stands);
            self.stream = Some(OfStream { stream, shelves, ladder });
        }
        self.stream.as_ref().map(|of_stream| &of_stream.ladder)
    }

    /// Brokers that lead none of the stream stand in its group's ladder; the few others are looked
    /// at one by one.
    fn in_small_stream(
        &mut self,
        pass: &Pass<'_>,
        stream: Ord32,
        key_hash: u64,
        except: Ord32,
    ) -> Option<Ord32> {
        let group = pass.world.stream(stream).group;
        let targets = &pass.world.groups[group].targets;
        let rules = pass.rules();
        let bars = rules.bars(stream, *targets.first()?);
        if self.groups[group].is_none() {
            let stands = targets.iter().filter_map(|b| in_group(pass, bars, *b));
            self.groups[group] = Some(Ladder::new(pass.world.brokers.len(), stands));
        }
        if self.small != stream {
            self.small = stream;
            pass.tally.stream_row(stream).iter().for_each(|(b, _)| self.seen[*b as usize] = stream);
        }
        let ladder = self.groups[group].as_ref()?;
        let leads_none = |b: Ord32| b != except && self.seen[b as usize] != stream;
        let tier_of = |shelf: Shelf| bars.tier(0, if shelf == 0 { 0 } else { bars.share });
        let default = ladder.first_shelf(leads_none).map(|shelf| (tier_of(shelf), shelf));
        let row = pass.tally.stream_row(stream).iter();
        let fits =
            |b: &Ord32| *b != except && pass.has_room(*b) && targets.binary_search(b).is_ok();
        let leading = row
            .filter(|(b, _)| fits(b))
            .map(|(b, led)| (bars.tier(*led, pass.tally.leaders[*b as usize]), *b));
        let tiers = leading.clone().map(|(tier, _)| tier);
        let best = tiers.chain(default.map(|(tier, _)| tier)).min()?;
        let equals = leading.filter(|(tier, _)| *tier == best);
        let others = equals.map(|(_, b)| candidate(pass, b));
        let shelf = default.filter(|(tier, _)| *tier == best).map(|(_, shelf)| shelf);
        ladder.best(&pass.world, key_hash, shelf.unwrap_or(Shelf::MAX), leads_none, others)
    }

    /// Takes in that `broker` was given a shard of `stream` to lead.
    pub(super) fn given(&mut self, pass: &Pass<'_>, stream: Ord32, broker: Ord32) {
        for (at, ladder) in self.groups.iter_mut().enumerate() {
            let Some(ladder) = ladder else { continue };
            let group = &pass.world.groups[at];
            // The share is the same for all streams of a group.
            let share = pass.rules().share(group);
            let bars = Bars { floor: 0, ceiling: 0, share };
            ladder.put(broker, in_group(pass, bars, broker));
        }
        if self.small == stream {
            self.seen[broker as usize] = stream;
        }
        if let Some(known) = &mut self.stream
            && known.stream == stream
        {
            known.ladder.put(broker, in_stream(pass, stream, &known.shelves, broker));
        }
    }
}

/// The best broker with room for a shard, `except` left out, found by a look at each: for a single
/// shard that is less than putting them in order.
pub(super) fn look_through(pass: &Pass<'_>, shard: Ord32, except: Ord32) -> Option<(Ord32, Tier)> {
    let world = &pass.world;
    let may = |b: &Ord32| *b != except && pass.has_room(*b);
    let legal: Vec<Ord32> = world.group_of(shard).targets.iter().copied().filter(may).collect();
    pass.rules().choose(world.shard(shard).stream, world.key_hash(shard), &legal)
}

fn candidate(pass: &Pass<'_>, broker: Ord32) -> Candidate {
    let score = pass.scores.score(broker, &pass.tally);
    Candidate { broker, score, since: pass.scores.since(broker) }
}

fn in_group(pass: &Pass<'_>, bars: Bars, broker: Ord32) -> Option<(Shelf, Candidate)> {
    let shelf = Shelf::from(pass.tally.leaders[broker as usize] >= bars.share);
    pass.has_room(broker).then(|| (shelf, candidate(pass, broker)))
}

fn in_stream(
    pass: &Pass<'_>,
    stream: Ord32,
    shelves: &Shelves,
    broker: Ord32,
) -> Option<(Shelf, Candidate)> {
    let shelf = shelves.of(pass, stream, broker);
    pass.has_room(broker).then(|| (shelf, candidate(pass, broker)))
}
