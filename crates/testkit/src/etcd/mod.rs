//! Real etcd servers as child processes, with the faults tests need.

mod binary;
mod cluster;
mod guard;
mod ports;
mod process;
mod ready;

pub use binary::EtcdVersion;
pub use cluster::EtcdCluster;
pub use process::{Etcd, EtcdOptions};
