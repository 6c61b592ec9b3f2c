//! An etcd v3 server inside the process: KV, Watch, Lease, Maintenance status, member list.
//!
//! It is the other end of the wire for demos, tests, one machine, and simulation on a paused clock.
//! It keeps everything in memory and has one member: it is neither durable nor replicated. What it
//! does is held to real etcds by the conformance suite in this crate's `tests/`.
//!
//! **Invariant:** the same calls in the same order give the same answers: no randomness but the
//! seed, no clock but tokio's.

mod faults;
mod gate;
mod keys;
mod server;
mod service;
mod store;

pub use server::EmbeddedEtcd;
pub use store::{Change, Stored};

/// What `etcdctl endpoint status` shows as the version.
pub const VERSION: &str = "3.5.30-evenkeel";
