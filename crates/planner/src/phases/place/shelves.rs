//! On which shelf of a stream's ladder a broker stands.

use crate::pass::Pass;
use crate::phases::place::ladder::Shelf;
use crate::tiers::{Bars, SLACK, Tier};
use crate::world::Ord32;

/// The shelves of one stream: its tiers. With unequal parts the ceiling's is divided further, since
/// whoever lacks most of its part goes first there, and only then who is under its share.
pub(super) enum Shelves {
    /// All parts are the same.
    Alike(Bars),
    /// By broker.
    Own { bars: Vec<Bars>, ranks: Vec<Shelf> },
}

impl Shelves {
    pub(super) fn new(pass: &Pass<'_>, stream: Ord32, targets: &[Ord32]) -> Option<Self> {
        let rules = pass.rules();
        if !pass.world.policy.capacity_weighted {
            return Some(Self::Alike(rules.bars(stream, *targets.first()?)));
        }
        let mut bars = vec![Bars::default(); pass.world.brokers.len()];
        // Between floor and ceiling a broker leads its floor, so what it lacks does not change.
        let mut lacks: Vec<(f64, Ord32)> = Vec::with_capacity(targets.len());
        for &broker in targets {
            let own = rules.bars(stream, broker);
            bars[broker as usize] = own;
            lacks.push((f64::from(own.floor) - rules.part_of_stream(stream, broker), broker));
        }
        lacks.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut ranks = vec![0; bars.len()];
        let (mut rank, mut least) = (0, f64::NEG_INFINITY);
        for (lack, broker) in lacks {
            if lack > least + SLACK {
                (rank, least) = (rank + 1, lack);
            }
            ranks[broker as usize] = rank;
        }
        Some(Self::Own { bars, ranks })
    }

    pub(super) fn of(&self, pass: &Pass<'_>, stream: Ord32, broker: Ord32) -> Shelf {
        let (bars, rank) = match self {
            Self::Alike(bars) => (*bars, 0),
            Self::Own { bars, ranks } => (bars[broker as usize], ranks[broker as usize]),
        };
        let led = pass.tally.of_stream(stream, broker);
        match bars.tier(led, pass.tally.leaders[broker as usize]) {
            Tier::FloorAndShare => 0,
            Tier::Floor => 1,
            Tier::CeilingAndShare => 2 + 2 * rank,
            Tier::Ceiling => 3 + 2 * rank,
            Tier::Share => Shelf::MAX - 2,
            Tier::Room => Shelf::MAX - 1,
        }
    }
}
