//! The broker-agent: one per broker. It registers the broker, reports its load, acts on what it is
//! assigned, serves clients, and is either end of a shard's copy.
//!
//! **Invariant:** it opens no shard without an assignment that names this broker, and it writes
//! only its own registration, load report and shard reports.

pub mod config;
pub mod copies;
pub mod duties;
pub mod gateway;
pub mod host;
pub mod identity;
pub mod load;
pub mod maintenance;
pub mod metrics;
pub mod routes;

mod app;
mod farewell;
mod halted;
mod leftovers;
mod measuring;
mod offers;
mod registration;
mod reports;
mod switchover;
mod watching;
mod wiring;

pub use app::{run, run_with};
