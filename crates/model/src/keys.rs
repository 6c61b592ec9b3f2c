//! Key paths of the stored records. Each family has one writer; see the architecture document.

use crate::{BrokerId, Millis, PauseScope, ShardKey, StreamKey};

/// Default root of all keys.
pub const DEFAULT_ROOT: &str = "/cluster";

/// Builds and reads key paths under one root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    root: String,
}

impl Default for Keys {
    fn default() -> Self {
        Self::new(DEFAULT_ROOT)
    }
}

impl Keys {
    /// `root` without its trailing slash, such as `/cluster`.
    pub fn new(root: &str) -> Self {
        Self { root: root.trim_end_matches('/').to_owned() }
    }

    /// The root, without a trailing slash.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The elected load manager.
    pub fn load_manager_leader(&self) -> String {
        format!("{}/leader/load-manager", self.root)
    }

    /// The elected migrator.
    pub fn migrator_leader(&self) -> String {
        format!("{}/leader/migrator", self.root)
    }

    /// Both leader keys.
    pub fn leaders(&self) -> String {
        format!("{}/leader/", self.root)
    }

    /// All registrations.
    pub fn registrations(&self) -> String {
        format!("{}/register/", self.root)
    }

    /// One broker's registration.
    pub fn registration(&self, broker: &BrokerId) -> String {
        format!("{}/register/{broker}", self.root)
    }

    /// All node records.
    pub fn nodes(&self) -> String {
        format!("{}/nodes/", self.root)
    }

    /// One broker's node record.
    pub fn node(&self, broker: &BrokerId) -> String {
        format!("{}/nodes/{broker}", self.root)
    }

    /// All load reports.
    pub fn loads(&self) -> String {
        format!("{}/load/", self.root)
    }

    /// One broker's load report.
    pub fn load(&self, broker: &BrokerId) -> String {
        format!("{}/load/{broker}", self.root)
    }

    /// All streams and caches.
    pub fn streams(&self) -> String {
        format!("{}/streams/", self.root)
    }

    /// One stream.
    pub fn stream(&self, stream: &StreamKey) -> String {
        format!("{}/streams/{stream}", self.root)
    }

    /// All markers.
    pub fn markers(&self) -> String {
        format!("{}/unassigned/", self.root)
    }

    /// One shard's marker.
    pub fn marker(&self, shard: &ShardKey) -> String {
        format!("{}/unassigned/{shard}", self.root)
    }

    /// All assignments.
    pub fn assignments(&self) -> String {
        format!("{}/shards/", self.root)
    }

    /// One shard's assignment.
    pub fn assignment(&self, shard: &ShardKey) -> String {
        format!("{}/shards/{shard}", self.root)
    }

    /// Everything that one broker is told.
    pub fn broker_shards(&self, broker: &BrokerId) -> String {
        format!("{}/brokers/{broker}/", self.root)
    }

    /// What one broker is told about one shard.
    pub fn broker_shard(&self, broker: &BrokerId, shard: &ShardKey) -> String {
        format!("{}/brokers/{broker}/{shard}", self.root)
    }

    /// All reports about shards.
    pub fn reports(&self) -> String {
        format!("{}/reports/", self.root)
    }

    /// One broker's report about one shard.
    pub fn report(&self, broker: &BrokerId, shard: &ShardKey) -> String {
        format!("{}/reports/{broker}/{shard}", self.root)
    }

    /// Progress of all copies.
    pub fn copies(&self) -> String {
        format!("{}/copies/", self.root)
    }

    /// Progress of one shard's copy.
    pub fn copy(&self, shard: &ShardKey) -> String {
        format!("{}/copies/{shard}", self.root)
    }

    /// Operators' caps on copies.
    pub fn limits(&self) -> String {
        format!("{}/limits/", self.root)
    }

    /// An operator's cap on one broker's copies.
    pub fn limit(&self, broker: &BrokerId) -> String {
        format!("{}/limits/{broker}", self.root)
    }

    /// Operators' pauses of copies.
    pub fn copy_pauses(&self) -> String {
        format!("{}/copy_pauses/", self.root)
    }

    /// One pause of copies, by what it holds.
    pub fn copy_pause(&self, scope: &PauseScope) -> String {
        format!("{}/copy_pauses/{scope}", self.root)
    }

    /// The history of moves.
    pub fn history(&self) -> String {
        format!("{}/rebalancing_history/", self.root)
    }

    /// One entry of the history; zero-padded so that keys sort by time.
    pub fn history_entry(&self, at_ms: Millis, shard: &ShardKey) -> String {
        format!("{}/rebalancing_history/{at_ms:015}-{shard}", self.root)
    }

    /// Run-time policy.
    pub fn policy(&self) -> String {
        format!("{}/policy", self.root)
    }

    /// The pause.
    pub fn pause(&self) -> String {
        format!("{}/pause", self.root)
    }

    /// The shard named by a key under [`Self::assignments`], [`Self::markers`], [`Self::copies`] or
    /// one broker's prefix.
    pub fn shard_under(prefix: &str, key: &str) -> Option<ShardKey> {
        key.strip_prefix(prefix)?.parse().ok()
    }

    /// The broker and the shard named by a key under [`Self::reports`].
    pub fn broker_and_shard_under(prefix: &str, key: &str) -> Option<(BrokerId, ShardKey)> {
        let (broker, shard) = key.strip_prefix(prefix)?.split_once('/')?;
        Some((broker.parse().ok()?, shard.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_what_they_hold_and_can_be_read_back() {
        let keys = Keys::default();
        let shard: ShardKey = "stream/default/orders/3".parse().unwrap();
        let broker: BrokerId = "b1".parse().unwrap();
        assert_eq!(
            keys.broker_shard(&broker, &shard),
            "/cluster/brokers/b1/stream/default/orders/3"
        );
        assert_eq!(
            Keys::shard_under(&keys.assignments(), &keys.assignment(&shard)),
            Some(shard.clone())
        );
        assert_eq!(
            Keys::broker_and_shard_under(&keys.reports(), &keys.report(&broker, &shard)),
            Some((broker, shard))
        );
    }
}
