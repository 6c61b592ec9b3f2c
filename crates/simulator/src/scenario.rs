//! What is simulated.

use std::time::Duration;

use evenkeel_model::{Policy, RebalancingPolicy};

/// Size, faults and length of a run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Brokers, spread over the zones in turn.
    pub brokers: u32,
    /// Failure domains.
    pub zones: u32,
    /// Load managers.
    pub load_managers: u32,
    /// Migrators.
    pub migrators: u32,
    /// Streams of `shards` each.
    pub streams: u32,
    /// Shards of each stream.
    pub shards: u32,
    /// Voting copies of each shard.
    pub replication_factor: u32,
    /// Producers that publish throughout.
    pub producers: u32,
    /// How long things are broken, virtual time.
    pub trouble: Duration,
    /// Between two faults.
    pub fault_every: Duration,
    /// How long the cluster may take afterwards to be whole and even again.
    pub recovery: Duration,
    /// Placement policy.
    pub policy: Policy,
    /// Time to live of the brokers' leases.
    pub broker_ttl: Duration,
}

impl Scenario {
    /// A handful of brokers, for many seeds.
    pub fn small() -> Self {
        Self {
            brokers: 8,
            zones: 3,
            load_managers: 2,
            migrators: 2,
            streams: 3,
            shards: 8,
            replication_factor: 3,
            producers: 4,
            trouble: Duration::from_secs(120),
            fault_every: Duration::from_secs(8),
            recovery: Duration::from_secs(240),
            policy: quick_policy(),
            broker_ttl: Duration::from_secs(5),
        }
    }

    /// Two hundred brokers.
    pub fn large() -> Self {
        Self {
            brokers: 200,
            streams: 8,
            shards: 50,
            load_managers: 3,
            trouble: Duration::from_secs(90),
            fault_every: Duration::from_secs(10),
            recovery: Duration::from_secs(300),
            ..Self::small()
        }
    }
}

/// The defaults, with waits that fit a run of minutes.
fn quick_policy() -> Policy {
    Policy {
        moves_max_concurrent: 4,
        repairs_max_concurrent: 8,
        restore_after_ms: 20_000,
        restore_stall_ms: 20_000,
        move_timeout_ms: 60_000,
        fence_timeout_ms: 15_000,
        settle_ms: 5_000,
        reconcile_interval_ms: 1_000,
        broker_expiry_ms: 5_000,
        rebalancing: RebalancingPolicy::default(),
        ..Policy::default()
    }
}
