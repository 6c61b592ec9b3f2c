//! The clients' door: publish, subscribe, describe.
//!
//! Every broker answers for every shard. A publish is served here if this broker leads the shard,
//! sent on once to the leader otherwise, and held while the shard is between two leaders.

pub mod activity;
pub mod admission;
pub mod describe;
pub mod direction;
pub mod forward;
pub mod holding;
pub mod latency;
pub mod publish;
pub mod service;
pub mod subscribe;
