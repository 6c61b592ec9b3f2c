//! The load manager: the elected planner's shell. It reads one snapshot, lets the planner decide,
//! and makes the decisions as guarded writes.
//!
//! **Invariant:** whatever decides is pure and knows no store; whatever writes has nothing left to
//! choose. An instance that lost its leadership without noticing can write nothing.

mod admin;
mod app;
mod checks;
mod cluster;
pub mod config;
mod copying;
mod exposure;
mod figures;
mod hygiene;
mod kept;
mod leading;
mod lifecycle;
mod metrics;
mod pass;
mod policy;
mod records;
mod snapshot;
mod step;
mod upkeep;
mod words;

#[cfg(test)]
mod tests;

pub use app::run;
