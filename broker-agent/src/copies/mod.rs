//! Bulk copies of shards: this broker's end of them, as source and as destination.
//!
//! The migrator orders copies and grants bytes; the destination pulls within its grants and its
//! ingress bucket; the source charges its egress bucket before each chunk. The buckets' rate is set
//! by a controller that looks at this broker's own requests.

pub mod bucket;
pub mod chunk;
pub mod credit;
mod failure;
pub mod orders;
pub mod pieces;
pub mod pull;
pub mod session;
pub mod source;
pub mod throttle;
