//! One file per command.

pub(crate) mod activate;
pub(crate) mod balance;
pub(crate) mod brokers;
pub(crate) mod completion;
pub(crate) mod drain;
pub(crate) mod explain;
pub(crate) mod import;
pub(crate) mod migrations;
pub(crate) mod moves;
pub(crate) mod owners;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod publish;
pub(crate) mod rank;
pub(crate) mod serve;
pub(crate) mod shards;
pub(crate) mod simulate;
pub(crate) mod snapshot;
pub(crate) mod status;
pub(crate) mod streams;
pub(crate) mod subscribe;
pub(crate) mod throttle;
pub(crate) mod whatif;
