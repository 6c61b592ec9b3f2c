//! What a service is handed at its start, real or simulated.

use std::hash::{BuildHasher, RandomState};

use crate::{Clock, MetricsHandle, Network, Shutdown};

/// The world around a service: time, network, stop request, randomness, store and metrics.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Time of day.
    pub clock: Clock,
    /// Sockets, or in-memory links of a simulation.
    pub network: Network,
    /// The request to stop.
    pub shutdown: Shutdown,
    /// Seed of every random choice of the service.
    pub seed: u64,
    /// Metrics of the process; renders nothing in a simulation.
    pub metrics: MetricsHandle,
}

impl Environment {
    /// The machine's clock and network, signals, a seed from the system. Call it inside the
    /// runtime, once per process.
    pub fn production(metrics: MetricsHandle) -> std::io::Result<Self> {
        Ok(Self {
            clock: Clock::system(),
            network: Network::tcp(),
            shutdown: Shutdown::on_signals()?,
            seed: RandomState::new().hash_one(std::process::id()),
            metrics,
        })
    }

    /// One host of a simulation, on tokio's paused clock.
    pub fn simulated(network: Network, clock: Clock, seed: u64) -> Self {
        Self {
            clock,
            network,
            shutdown: Shutdown::new(),
            seed,
            metrics: MetricsHandle::none(),
        }
    }
}
