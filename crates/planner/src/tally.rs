//! Counts per broker, with moves in flight taken as finished. Every decision changes them at once.

use crate::world::{NONE, Ord32, Shape, World};

/// Leaders and roles per broker, and leaders per stream and broker.
pub(crate) struct Tally {
    /// Shards that a broker leads.
    pub(crate) leaders: Vec<u32>,
    /// Shards that a broker holds in any role, copies in flight too.
    pub(crate) held: Vec<u32>,
    /// Per stream, the brokers that lead any of it, in order, with how many.
    by_stream: Vec<Vec<(Ord32, u32)>>,
    /// All shards of all streams, placed or not.
    pub(crate) shards: u32,
}

impl Tally {
    pub(crate) fn new(world: &World<'_>) -> Self {
        let brokers = world.brokers.len();
        let mut leaders = vec![0; brokers];
        let mut held = vec![0; brokers];
        let mut by_stream = Vec::with_capacity(world.streams.len());
        let mut led: Vec<Ord32> = Vec::new();
        for stream in &world.streams {
            led.clear();
            for shard in stream.shards() {
                let facts = world.shard(shard);
                if facts.assignment.is_none() {
                    continue;
                }
                let settled = facts.successor == NONE && facts.joining == NONE;
                if settled {
                    world.voters(shard).for_each(|b| held[b as usize] += 1);
                } else {
                    world.shape(shard).members().for_each(|b| held[b as usize] += 1);
                }
                let leader = if facts.successor == NONE { facts.leader } else { facts.successor };
                if leader != NONE {
                    leaders[leader as usize] += 1;
                    led.push(leader);
                }
            }
            led.sort_unstable();
            by_stream.push(runs(&led));
        }
        Self { leaders, held, by_stream, shards: world.shards.len() as u32 }
    }

    /// How many of a stream's shards `broker` leads.
    pub(crate) fn of_stream(&self, stream: Ord32, broker: Ord32) -> u32 {
        let row = &self.by_stream[stream as usize];
        row.binary_search_by_key(&broker, |(b, _)| *b).map_or(0, |at| row[at].1)
    }

    /// The brokers that lead any of a stream, in order, with how many.
    pub(crate) fn stream_row(&self, stream: Ord32) -> &[(Ord32, u32)] {
        &self.by_stream[stream as usize]
    }

    /// Counts a shard of `stream` as having gone from one shape to another.
    pub(crate) fn replace(&mut self, stream: Ord32, old: Option<&Shape>, next: &Shape) {
        if let Some(old) = old {
            old.members().for_each(|b| self.held[b as usize] -= 1);
            self.led(stream, old.eventual_leader(), false);
        }
        next.members().for_each(|b| self.held[b as usize] += 1);
        self.led(stream, next.eventual_leader(), true);
    }

    fn led(&mut self, stream: Ord32, broker: Ord32, more: bool) {
        if broker == NONE {
            return;
        }
        let row = &mut self.by_stream[stream as usize];
        let total = &mut self.leaders[broker as usize];
        match (row.binary_search_by_key(&broker, |(b, _)| *b), more) {
            (Ok(at), true) => row[at].1 += 1,
            (Err(at), true) => row.insert(at, (broker, 1)),
            (Ok(at), false) => {
                row[at].1 -= 1;
                if row[at].1 == 0 {
                    row.remove(at);
                }
            }
            (Err(_), false) => return,
        }
        *total = if more { *total + 1 } else { *total - 1 };
    }
}

fn runs(sorted: &[Ord32]) -> Vec<(Ord32, u32)> {
    let mut runs: Vec<(Ord32, u32)> = Vec::new();
    for &broker in sorted {
        match runs.last_mut() {
            Some((last, count)) if *last == broker => *count += 1,
            _ => runs.push((broker, 1)),
        }
    }
    runs
}
