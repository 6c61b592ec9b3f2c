//! What each family's keys name, and what its records say about themselves.

use std::fmt::Display;

use evenkeel_model::{
    AssignmentRecord, BrokerId, CopyPauseRecord, CopyRecord, HistoryEntry, LeaderRecord,
    LoadReport, Marker, Millis, NodeRecord, PauseRecord, PauseScope, Registration, ReportRecord,
    ShardKey, Stream, StreamKey,
};
use serde::Deserialize;
use serde_json::Value;

use super::Record;

fn differs<I: Display + PartialEq>(own: &I, key: &I) -> Option<String> {
    (own != key).then(|| format!("it speaks of '{own}' and lies under the key of '{key}'"))
}

/// What a history key names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HistoryId {
    /// When the move ended.
    pub(crate) at_ms: Millis,
    /// What moved.
    pub(crate) shard: ShardKey,
}

/// The stored policy as it was written, to be laid over the configured one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct StoredPolicy(pub(crate) serde_json::Map<String, Value>);

impl Record for LeaderRecord {
    type Id = String;

    fn id(rest: &str) -> Option<String> {
        (!rest.is_empty()).then(|| rest.to_owned())
    }

    fn contradicts(&self, _: &String) -> Option<String> {
        None
    }
}

impl Record for Registration {
    type Id = BrokerId;

    fn id(rest: &str) -> Option<BrokerId> {
        rest.parse().ok()
    }

    fn contradicts(&self, id: &BrokerId) -> Option<String> {
        if !self.weight.is_finite() || self.weight < 0.0 {
            return Some(format!("weight {} is not a number of at least 0", self.weight));
        }
        differs(&self.broker, id)
    }
}

impl Record for NodeRecord {
    type Id = BrokerId;

    fn id(rest: &str) -> Option<BrokerId> {
        rest.parse().ok()
    }

    fn contradicts(&self, id: &BrokerId) -> Option<String> {
        differs(&self.broker, id)
    }
}

impl Record for LoadReport {
    type Id = BrokerId;

    fn id(rest: &str) -> Option<BrokerId> {
        rest.parse().ok()
    }

    fn contradicts(&self, _: &BrokerId) -> Option<String> {
        None
    }
}

impl Record for Stream {
    type Id = StreamKey;

    fn id(rest: &str) -> Option<StreamKey> {
        rest.parse().ok()
    }

    fn contradicts(&self, id: &StreamKey) -> Option<String> {
        if self.replication_factor == 0 {
            return Some("replication_factor 0 is out of range: expected at least 1".to_owned());
        }
        differs(&self.stream, id)
    }
}

impl Record for Marker {
    type Id = ShardKey;

    fn id(rest: &str) -> Option<ShardKey> {
        rest.parse().ok()
    }

    fn contradicts(&self, _: &ShardKey) -> Option<String> {
        None
    }
}

impl Record for AssignmentRecord {
    type Id = ShardKey;

    fn id(rest: &str) -> Option<ShardKey> {
        rest.parse().ok()
    }

    fn contradicts(&self, id: &ShardKey) -> Option<String> {
        let mut seen = std::collections::BTreeSet::new();
        if let Some(twice) = self.assignment.voters().find(|b| !seen.insert(*b)) {
            return Some(format!("'{twice}' votes twice"));
        }
        differs(&self.assignment.shard, id)
    }
}

impl Record for ReportRecord {
    type Id = (BrokerId, ShardKey);

    fn id(rest: &str) -> Option<Self::Id> {
        let (broker, shard) = rest.split_once('/')?;
        Some((broker.parse().ok()?, shard.parse().ok()?))
    }

    fn contradicts(&self, (broker, shard): &Self::Id) -> Option<String> {
        differs(&self.report.broker, broker).or_else(|| differs(&self.report.shard, shard))
    }
}

impl Record for CopyRecord {
    type Id = ShardKey;

    fn id(rest: &str) -> Option<ShardKey> {
        rest.parse().ok()
    }

    fn contradicts(&self, id: &ShardKey) -> Option<String> {
        differs(&self.shard, id)
    }
}

impl Record for HistoryEntry {
    type Id = HistoryId;

    fn id(rest: &str) -> Option<HistoryId> {
        let (at_ms, shard) = rest.split_once('-')?;
        Some(HistoryId { at_ms: at_ms.parse().ok()?, shard: shard.parse().ok()? })
    }

    fn contradicts(&self, _: &HistoryId) -> Option<String> {
        None
    }
}

impl Record for StoredPolicy {
    type Id = ();

    fn id(rest: &str) -> Option<()> {
        rest.is_empty().then_some(())
    }

    fn contradicts(&self, (): &()) -> Option<String> {
        None
    }
}

impl Record for PauseRecord {
    type Id = ();

    fn id(rest: &str) -> Option<()> {
        rest.is_empty().then_some(())
    }

    fn contradicts(&self, (): &()) -> Option<String> {
        None
    }
}

impl Record for CopyPauseRecord {
    type Id = PauseScope;

    fn id(rest: &str) -> Option<PauseScope> {
        rest.parse().ok()
    }

    fn contradicts(&self, id: &PauseScope) -> Option<String> {
        differs(&self.scope, id)
    }
}
