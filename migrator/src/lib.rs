//! The migrator: the elected copier. It derives copy jobs from the assignments, decides their order
//! and hands out byte credits; the bytes themselves go from broker to broker.
//!
//! **Invariants:** it never changes who leads; no limit and no flow outlives it, but for operators'
//! caps; whatever it must know after a take-over is read from the assignments and said by the
//! agents.

pub mod app;
pub mod bucket;
pub mod config;
pub mod copies;
pub mod desk;
pub mod engine;
pub mod grants;
pub mod jobs;
pub mod leading;
pub mod metrics;
pub mod nodes;
pub mod pausing;
pub mod queue;
pub mod records;
pub mod service;
pub mod sessions;
pub mod world;

pub use app::run;
