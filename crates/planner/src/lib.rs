//! Snapshot in, plan out: every placement rule of Evenkeel.
//!
//! **Invariant:** no I/O, no clock, no randomness, no async. The same snapshot gives the same plan
//! everywhere, whatever order its parts were listed in.

mod apply;
mod balance;
mod check;
mod decision;
mod disk;
mod even_load;
mod explain;
mod facts;
mod given_up;
pub mod globs;
mod intern;
mod loss;
mod moves;
mod operator;
mod owners;
mod pass;
mod pauses;
mod phases;
mod plan;
mod planner;
mod rehearsal;
mod scores;
mod shape;
mod slots;
mod standing;
mod stats;
mod tally;
mod tiers;
mod what_if;
mod world;
mod zones;

pub use apply::{DEFAULT_PASSES, Stable, StableStep, apply, until_stable};
pub use balance::{
    Balance, BrokerBalance, Ranked, Ranking, StreamBalance, StreamLeaders, balance, rank,
};
pub use check::{Violation, check};
pub use decision::{
    Decision, Reason, Refusal, RefusedBecause, ShardDecision, Step, Waiting, WaitingOn, Write,
};
pub use disk::full_disk;
pub use even_load::{LoadAim, LoadMove, LoadPlan, apply_load_plan, even_load};
pub use explain::{
    BrokerExplanation, Candidate, Explanation, NamingDecision, NamingShard, RoleCounts, explain,
    explain_broker, span,
};
pub use operator::{
    ForcedPromotion, MoveRefusal, MoveRefusedBecause, OperatorMove, cancel_move, force_promote,
    operator_move,
};
pub use owners::{Member, MembersError, Owners, check_members, owners};
pub use plan::{Plan, PlanReport, plan, plan_with, plan_without_stream_tiers};
pub use planner::{Conditions, Planner};
pub use rehearsal::settle;
pub use scores::topic_load;
pub use stats::{BalanceStatus, LoadClass, Spread};
pub use tiers::Tier;
pub use what_if::{
    Change, ChangeError, Duration, Effort, Emptied, Movement, Outlook, START_SHARE, Terms, Traits,
    Unresolved, WhatIf, what_if,
};
