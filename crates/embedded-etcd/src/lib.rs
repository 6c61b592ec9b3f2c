//! An etcd v3 server inside the process: KV, Watch, Lease, Maintenance status, member list.
//!
//! It is the other end of the wire for demos, tests, one machine, and simulation on a paused clock.
//! It keeps everything in memory and has one member: it is neither durable nor replicated. What it
//! does is held to real etcds by the conformance suite in this crate's `tests/`.
//!
//! etcdctl works on it. One trap: etcdctl 3.4 sends an endpoint with a scheme as the authority of
//! `endpoint status`, `endpoint hashkv` and `defrag`, which Rust's HTTP/2 refuses as malformed
//! (`PROTOCOL_ERROR`); give it `host:port` alone. etcdctl 3.5 takes either.
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
