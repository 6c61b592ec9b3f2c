//! Counts per broker, with moves in flight taken as finished. Every decision changes them at once.

use crate::facts::{Facts, NONE, Ord32};
use crate::shape::Shape;

/// Leaders and roles per broker, and leaders per stream and broker.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tally {
    /// Shards that a broker leads.
    pub(crate) leaders: Vec<u32>,
    /// Shards that a broker holds in any role, copies in flight too.
    pub(crate) held: Vec<u32>,
    /// Where each stream's row begins in `led`, and how long it is. A row has room for as many
    /// brokers as its stream has shards.
    rows: Vec<(u32, u32)>,
    /// Per stream, the brokers that lead any of it, in order, with how many.
    led: Vec<(Ord32, u32)>,
    /// All shards of all streams, placed or not.
    pub(crate) shards: u32,
}

impl Tally {
    pub(crate) fn new(facts: &Facts) -> Self {
        let mut tally = Self {
            leaders: vec![0; facts.brokers()],
            held: vec![0; facts.brokers()],
            rows: Vec::with_capacity(facts.streams.len()),
            led: vec![(NONE, 0); facts.shards.len()],
            shards: facts.shards.len() as u32,
        };
        let mut leaders: Vec<Ord32> = Vec::new();
        for stream in &facts.streams {
            leaders.clear();
            for shard in stream.shards() {
                let row = &facts.shards[shard as usize];
                if !row.placed {
                    continue;
                }
                if row.successor == NONE && row.joining == NONE {
                    facts.voters(shard).for_each(|b| tally.held[b as usize] += 1);
                } else {
                    facts.shape(shard).members().for_each(|b| tally.held[b as usize] += 1);
                }
                let leader = if row.successor == NONE { row.leader } else { row.successor };
                if leader != NONE {
                    tally.leaders[leader as usize] += 1;
                    leaders.push(leader);
                }
            }
            leaders.sort_unstable();
            tally.add_row(stream.first, &leaders);
        }
        tally
    }

    fn add_row(&mut self, first: u32, leaders: &[Ord32]) {
        let mut len = 0;
        for runs in leaders.chunk_by(|a, b| a == b) {
            self.led[(first + len) as usize] = (runs[0], runs.len() as u32);
            len += 1;
        }
        self.rows.push((first, len));
    }

    /// Makes room for brokers that were never named before.
    pub(crate) fn grow(&mut self, brokers: usize) {
        self.leaders.resize(brokers, 0);
        self.held.resize(brokers, 0);
    }

    /// How many of a stream's shards `broker` leads.
    pub(crate) fn of_stream(&self, stream: Ord32, broker: Ord32) -> u32 {
        let row = self.stream_row(stream);
        row.binary_search_by_key(&broker, |(b, _)| *b).map_or(0, |at| row[at].1)
    }

    /// The brokers that lead any of a stream, in order, with how many.
    pub(crate) fn stream_row(&self, stream: Ord32) -> &[(Ord32, u32)] {
        let (first, len) = self.rows[stream as usize];
        &self.led[first as usize..(first + len) as usize]
    }

    /// Counts a shard of `stream` as having gone from one shape to another.
    pub(crate) fn replace(&mut self, stream: Ord32, old: Option<&Shape>, next: Option<&Shape>) {
        if let Some(old) = old {
            old.members().for_each(|b| self.held[b as usize] -= 1);
            self.leads_less(stream, old.eventual_leader());
        }
        if let Some(next) = next {
            next.members().for_each(|b| self.held[b as usize] += 1);
            self.leads_more(stream, next.eventual_leader());
        }
    }

    fn leads_more(&mut self, stream: Ord32, broker: Ord32) {
        if broker == NONE {
            return;
        }
        self.leaders[broker as usize] += 1;
        let (first, len) = self.rows[stream as usize];
        match self.stream_row(stream).binary_search_by_key(&broker, |(b, _)| *b) {
            Ok(at) => self.led[first as usize + at].1 += 1,
            Err(at) => {
                let (from, end) = (first as usize + at, (first + len) as usize);
                self.led.copy_within(from..end, from + 1);
                self.led[from] = (broker, 1);
                self.rows[stream as usize].1 += 1;
            }
        }
    }

    fn leads_less(&mut self, stream: Ord32, broker: Ord32) {
        if broker == NONE {
            return;
        }
        let (first, len) = self.rows[stream as usize];
        let row = self.stream_row(stream);
        let Ok(at) = row.binary_search_by_key(&broker, |(b, _)| *b) else { return };
        self.leaders[broker as usize] -= 1;
        let (at, end) = (first as usize + at, (first + len) as usize);
        self.led[at].1 -= 1;
        if self.led[at].1 == 0 {
            self.led.copy_within(at + 1..end, at);
            self.rows[stream as usize].1 -= 1;
        }
    }
}
