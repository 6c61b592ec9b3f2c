//! What copies do to a cluster.
//!
//! **Invariants:** no I/O, no clock; the same scenario and seed give the same bytes.

pub mod bound;
