//! Brokers as candidates to lead, kept in order while many shards are placed, so that one more
//! placement costs the broker that it goes to and not a look at all of them.

use std::collections::BTreeMap;

use crate::world::{Foremost, Ord32, World};

/// Which brokers are preferred to which; the lowest first. Its meaning is the caller's.
pub(super) type Shelf = u32;

/// A broker that may be chosen, and what orders it within its shelf.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub(super) broker: Ord32,
    pub(super) score: f64,
    /// Leaders that it was given since its last report.
    pub(super) since: u32,
}

/// The brokers of one group by shelf, then by leaders given since their last report, then by score.
pub(super) struct Ladder {
    rungs: BTreeMap<(Shelf, u32), Vec<(Score, Ord32)>>,
    /// By broker: where it stands.
    stands: Vec<Option<(Shelf, u32, Score)>>,
}

/// A score as a number that sorts as the score does.
type Score = u64;

fn sortable(score: f64) -> Score {
    let bits = score.to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

fn plain(score: Score) -> f64 {
    f64::from_bits(if score >> 63 == 1 { score & !(1 << 63) } else { !score })
}

impl Ladder {
    pub(super) fn new(
        brokers: usize,
        candidates: impl Iterator<Item = (Shelf, Candidate)>,
    ) -> Self {
        let mut ladder = Self { rungs: BTreeMap::new(), stands: vec![None; brokers] };
        for (shelf, Candidate { broker, score, since }) in candidates {
            let score = sortable(score);
            ladder.stands[broker as usize] = Some((shelf, since, score));
            ladder.rungs.entry((shelf, since)).or_default().push((score, broker));
        }
        ladder.rungs.values_mut().for_each(|rung| rung.sort_unstable());
        ladder
    }

    /// Puts a broker of this ladder where it stands now, or takes it off.
    pub(super) fn put(&mut self, broker: Ord32, now: Option<(Shelf, Candidate)>) {
        let Some((shelf, since, score)) = self.stands[broker as usize] else { return };
        if let Some(rung) = self.rungs.get_mut(&(shelf, since)) {
            if let Ok(at) = rung.binary_search(&(score, broker)) {
                rung.remove(at);
            }
            if rung.is_empty() {
                self.rungs.remove(&(shelf, since));
            }
        }
        self.stands[broker as usize] = now.map(|(shelf, c)| (shelf, c.since, sortable(c.score)));
        let Some((shelf, candidate)) = now else { return };
        let rung = self.rungs.entry((shelf, candidate.since)).or_default();
        let entry = (sortable(candidate.score), broker);
        let at = rung.partition_point(|other| *other < entry);
        rung.insert(at, entry);
    }

    /// The lowest shelf with a broker that `may` be chosen.
    pub(super) fn first_shelf(&self, may: impl Fn(Ord32) -> bool) -> Option<Shelf> {
        let open = |rung: &Vec<(Score, Ord32)>| rung.iter().any(|(_, b)| may(*b));
        self.rungs.iter().find(|(_, rung)| open(rung)).map(|((shelf, _), _)| *shelf)
    }

    fn shelf(&self, shelf: Shelf) -> impl Iterator<Item = (u32, &[(Score, Ord32)])> {
        let rungs = self.rungs.range((shelf, 0)..=(shelf, u32::MAX));
        rungs.map(|((_, since), rung)| (*since, rung.as_slice()))
    }

    /// The best of a shelf's brokers that `may` be chosen and of `others`: those within the band of
    /// the lowest score are equals; then fewer leaders given since the last report, then the
    /// rendezvous score, then the id.
    pub(super) fn best(
        &self,
        world: &World<'_>,
        key_hash: u64,
        shelf: Shelf,
        may: impl Fn(Ord32) -> bool,
        others: impl Iterator<Item = Candidate> + Clone,
    ) -> Option<Ord32> {
        let first = |rung: &[(Score, Ord32)]| rung.iter().find(|(_, b)| may(*b)).map(|(s, _)| *s);
        let here = self.shelf(shelf).filter_map(|(_, rung)| first(rung)).map(plain);
        let lowest = here.chain(others.clone().map(|c| c.score)).min_by(f64::total_cmp)?;
        let band = lowest * (1.0 + world.policy.tie_band_percent / 100.0);
        let within = |rung: &[(Score, Ord32)]| first(rung).is_some_and(|s| plain(s) <= band);
        let rung = self.shelf(shelf).find(|(_, rung)| within(rung));
        let equal_others = || others.clone().filter(|c| c.score <= band);
        let fewest = rung.map(|(since, _)| since).into_iter();
        let fewest = fewest.chain(equal_others().map(|c| c.since)).min()?;
        let rung = rung.filter(|(since, _)| *since == fewest).map_or(&[][..], |(_, rung)| rung);
        let equals = &rung[..rung.partition_point(|(s, _)| plain(*s) <= band)];
        let others = equal_others().filter(|c| c.since == fewest).map(|c| c.broker);
        let mut foremost = Foremost::new(world.facts.hashes(), key_hash);
        for (_, broker) in equals {
            if may(*broker) {
                foremost.consider(*broker);
            }
        }
        others.for_each(|b| foremost.consider(b));
        foremost.broker()
    }
}
