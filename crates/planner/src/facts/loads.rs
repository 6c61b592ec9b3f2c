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
    pub(super) fn new(facts: &Facts, report: &LoadReport) -> Self {
        let mut last: Option<(&StreamKey, Option<Ord32>)> = None;
        let mut rows = Vec::with_capacity(report.shards.len());
        for row in &report.shards {
            let key = &row.shard;
            // Rows of one stream mostly stand together.
            let stream = match last {
                Some((known, at)) if *known == key.stream => at,
                _ => facts.stream_named(&key.stream),
            };
            last = Some((&key.stream, stream));
            let shard = stream
                .map(|s| &facts.streams[s as usize])
                .filter(|s| key.number < s.stream.shards)
                .map_or(NONE, |s| s.first + key.number);
            rows.push((shard, topic_load(row)));
        }
        let topics = rows.iter().map(|(_, load)| load).sum();
        Self { rows, topics }
    }
}
