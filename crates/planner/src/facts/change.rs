//! Single changes to the facts, each as cheap as what changed.

use evenkeel_model::{Assignment, LoadReport, ShardReport};

use super::{Facts, LoadFacts, NONE, Ord32, ShardFacts};

impl Facts {
    /// The shard's assignment is now `next`, or there is none.
    pub(crate) fn assign(&mut self, shard: Ord32, next: Option<&Assignment>) {
        let row = self.shards[shard as usize];
        let before = row.placed.then(|| self.shape(shard));
        match next {
            Some(next) => self.put(shard, next, Self::ordinal),
            None => {
                let unplaced =
                    ShardFacts { halted: row.halted, ..ShardFacts::unplaced(row.stream) };
                self.waste += row.followers.1 as usize;
                self.shards[shard as usize] = unplaced;
            }
        }
        self.tally.grow(self.ids.len());
        self.loads.resize_with(self.ids.len(), || None);
        let after = next.map(|_| self.shape(shard));
        self.tally.replace(row.stream, before.as_ref(), after.as_ref());
        // Compacting looks at every shard.
        if self.waste > (self.arena.len() + self.shards.len()) / 2 {
            self.compact();
        }
    }

    /// A broker's load report is now `report`.
    pub(crate) fn report_load(&mut self, broker: Ord32, report: Option<&LoadReport>) {
        self.loads[broker as usize] = report.map(|report| {
            LoadFacts::new(self, report, |key| self.stream_named(key).unwrap_or(NONE))
        });
    }

    /// What brokers say about a shard is now `reports`.
    pub(crate) fn report_shard(&mut self, shard: Ord32, reports: &[ShardReport]) {
        self.shards[shard as usize].halted = reports.iter().any(|r| r.halted_because().is_some());
    }

    fn compact(&mut self) {
        let mut arena = Vec::with_capacity(self.arena.len() - self.waste);
        for row in &mut self.shards {
            let (start, len) = row.followers;
            row.followers.0 = arena.len() as Ord32;
            arena.extend_from_slice(&self.arena[start as usize..(start + len) as usize]);
        }
        self.arena = arena;
        self.waste = 0;
    }
}
