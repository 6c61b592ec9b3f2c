//! Fixtures for tests against real processes and real networks: etcd servers that can be killed,
//! stopped and restarted, a TCP proxy with network faults, and waits that name what they wait for.
//!
//! Everything here is for tests. Failures of a fixture are `io::Error`s with the full story in
//! their text, so that a test may simply `unwrap()` them.

pub mod etcd;
pub mod proxy;
pub mod wait;

pub use etcd::{Etcd, EtcdCluster, EtcdOptions, EtcdVersion};
pub use proxy::Proxy;
pub use wait::wait_for;
