//! A cluster of real processes on a real etcd, for tests that kill, stop and watch them.

pub mod bench;
pub mod damage;

mod cluster;
mod process;
mod witness;

pub use cluster::{Cluster, Flags, LEASE_TTL_MS, Size};
pub use process::Process;
pub use witness::Witness;
