//! Snapshot in, plan out: every placement rule of Evenkeel.
//!
//! **Invariant:** no I/O, no clock, no randomness, no async. The same snapshot gives the same plan
//! everywhere, whatever order its parts were listed in.

mod decision;
pub mod globs;
mod intern;
mod loss;
mod moves;
mod pass;
mod phases;
mod plan;
mod scores;
mod slots;
mod stats;
mod tally;
mod tiers;
mod world;
mod zones;

pub use decision::{
    Decision, Reason, Refusal, RefusedBecause, ShardDecision, Step, Waiting, WaitingOn, Write,
};
pub use plan::{Plan, PlanReport, plan, plan_with, plan_without_stream_tiers};
pub use scores::topic_load;
pub use stats::{BalanceStatus, LoadClass, Spread};
pub use tiers::Tier;
