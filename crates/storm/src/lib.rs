//! What copies do to a cluster, on paper: the real planner, the real migrator and the real control
//! laws on virtual time, against a model of links, request queues, time-outs and retries.
//!
//! **Invariants:** no I/O, no clock; the same scenario and seed give the same bytes.

pub mod bound;
mod clients;
mod exposure;
mod host;
mod latency;
mod measures;
mod migration;
mod naive;
mod picture;
mod placement;
mod queue;
mod run;
mod scenario;
mod seed;
mod summary;
mod table;
mod units;
mod upkeep;

pub use measures::{Second, Series};
pub use picture::draw;
pub use run::{Mark, Outcome, Storm, simulate};
pub use scenario::{Scenario, ScenarioError};
pub use summary::Summary;
pub use table::table;
