//! The load report: what this broker's machine and its shards do, smoothed.
//!
//! Reading the system and making sense of it are apart: [`procfs`] and [`cgroup`] only parse text,
//! [`machine`] reads files, [`smoothing`] turns counters into rates.

pub mod cgroup;
pub mod machine;
pub mod procfs;
pub mod report;
pub mod smoothing;
