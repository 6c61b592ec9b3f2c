//! The phases of a pass, one file each, in the order they run.

pub(crate) mod advance;
pub(crate) mod drain;
pub(crate) mod failover;
mod hand_over;
pub(crate) mod place;
pub(crate) mod rebalance;
pub(crate) mod rebuild;
pub(crate) mod relief;
pub(crate) mod repair;
pub(crate) mod spread;
