//! Load reports on dense numbers.

use evenkeel_model::{LoadReport, StreamKey};

use super::{Facts, NONE, Ord32};
use crate::scores::topic_load;

/// A broker's report, its rows resolved.
pub(crate) struct LoadFacts {
    /// Shard (or none, if nobody knows it) and topic load of each row.
    pub(crate) rows: Vec<(Ord32, f64)>,
    /// Sum of the topic loads.
    pub(crate) topics: f64,
}

impl LoadFacts {
    /// `find` gives a stream's ordinal, or none.
    pub(super) fn new(
        facts: &Facts,
        report: &LoadReport,
        mut find: impl FnMut(&StreamKey) -> Ord32,
    ) -> Self {
        let mut rows = Vec::with_capacity(report.shards.len());
        for row in &report.shards {
            let key = &row.shard;
            let stream = facts.streams.get(find(&key.stream) as usize);
            let known = stream.filter(|s| key.number < s.stream.shards);
            let shard = known.map_or(NONE, |s| s.first + key.number);
            rows.push((shard, topic_load(row)));
        }
        let topics = rows.iter().map(|(_, load)| load).sum();
        Self { rows, topics }
    }
}
