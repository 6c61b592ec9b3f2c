//! What a service is handed at its start, real or simulated.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use evenkeel_coordination::Store;

use crate::{Clock, MetricsHandle, Network, Shutdown};

/// Opens a simulated store for one service in place of etcd.
#[derive(Clone)]
pub struct StoreFactory(Arc<dyn Fn() -> Store + Send + Sync>);

impl StoreFactory {
    /// Wraps the function that opens the store.
    pub fn new(open: impl Fn() -> Store + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    /// A store of its own for the caller.
    pub fn open(&self) -> Store {
        (self.0)()
    }
}

impl fmt::Debug for StoreFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreFactory")
    }
}

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
    /// In a simulation, where the store comes from; `None` means as configured.
    pub store: Option<StoreFactory>,
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
            store: None,
            metrics,
        })
    }

    /// One host of a simulation, on tokio's paused clock.
    pub fn simulated(network: Network, clock: Clock, seed: u64, store: StoreFactory) -> Self {
        Self {
            clock,
            network,
            shutdown: Shutdown::new(),
            seed,
            store: Some(store),
            metrics: MetricsHandle::none(),
        }
    }
}
