//! The whole cluster in one thread on virtual time: the real load managers, broker-agents and
//! migrators over in-memory links, on the embedded etcd.
//!
//! A [`Run`] is described by a [`Scenario`] and a seed, breaks things as the seed says, checks the
//! [`invariants`] after every revision of the store, and answers a [`Verdict`] with a hash of
//! everything that was written.
//!
//! **Invariant:** the same scenario and seed write the same bytes at the same virtual times.

mod faults;
mod fleet;
pub mod invariants;
mod observer;
mod refusals;
mod run;
mod scenario;
pub mod traffic;

pub use invariants::Breach;
pub use run::{Run, Verdict};
pub use scenario::Scenario;
