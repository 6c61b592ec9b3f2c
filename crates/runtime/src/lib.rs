//! What every Evenkeel process needs once: clock, network, shutdown, configuration, telemetry,
//! metrics, health, gRPC serving and the door to etcd.
//!
//! **Invariant:** only this crate reads the wall clock and the environment, and only this crate
//! opens sockets. Everything above it works unchanged on virtual time over in-memory links.

pub mod clock;
pub mod config;
pub mod environment;
pub mod etcd;
pub mod grpc;
pub mod health;
pub mod http;
pub mod metrics;
pub mod network;
pub mod process;
pub mod shutdown;
pub mod telemetry;

pub use clock::Clock;
pub use config::{ConfigError, Invalid, Key, Settings};
pub use environment::{Environment, StoreFactory};
pub use etcd::EtcdOption;
pub use health::Health;
pub use metrics::MetricsHandle;
pub use network::{Connection, Incoming, Network, SimNetwork};
pub use process::ServiceArgs;
pub use shutdown::Shutdown;
