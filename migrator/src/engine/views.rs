//! What people ask the engine.

use std::time::Duration;

use evenkeel_proto::migrations::{Limit, Migration};

use super::Engine;

impl Engine {
    /// Every copy, in the order of service.
    pub fn migrations(&self) -> Vec<Migration> {
        let mut copies: Vec<_> = self.copies.values().collect();
        copies.sort_by_key(|copy| (copy.job.class, copy.arrival));
        copies
            .into_iter()
            .map(|copy| Migration {
                shard: copy.job.shard.to_string(),
                generation: copy.job.generation,
                class: copy.job.class.as_str().to_owned(),
                source: copy.source.as_ref().map(ToString::to_string),
                destination: copy.job.destination.to_string(),
                state: copy.state.as_str().to_owned(),
                bytes_done: copy.done,
                bytes_total: copy.total(),
                bytes_per_second: copy.rate as u64,
                limited_by: copy.limited_by.clone(),
            })
            .collect()
    }

    /// Every node's limit and who decides about it.
    pub fn limits(&self, now: Duration) -> Vec<Limit> {
        self.nodes
            .iter()
            .map(|(broker, node)| Limit {
                broker: broker.to_string(),
                link_bytes_per_second: node.link_bytes_per_second,
                share: node.share(now),
                effective_bytes_per_second: node.bytes_per_second(now),
                owner: node.owner(now).to_owned(),
                cap_bytes_per_second: node.cap,
                p99_ms: node.status.as_ref().and_then(|status| status.p99_ms),
            })
            .collect()
    }

    /// Time between two rounds.
    pub fn round_length(&self) -> Duration {
        self.settings.round
    }

    /// Whether the migrator knows of a broker.
    pub fn knows(&self, broker: &evenkeel_model::BrokerId) -> bool {
        self.nodes.contains_key(broker)
    }
}
