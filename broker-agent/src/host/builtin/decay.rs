//! Damage that reading finds: the replica halts, so that another one takes over.

use std::sync::Arc;

use evenkeel_shard_log::{ClosedSegment, LogError, Verified};

use super::shard::{Shard, off_the_runtime};
use crate::metrics;

/// Looks again at what seemed damaged in a closed segment, about `most` bytes from `at`, while
/// nobody can cut it off. Whether the replica halts for it.
pub(super) fn halts(
    shard: &Arc<Shard>,
    segment: &ClosedSegment,
    at: Verified,
    most: u64,
    error: &LogError,
) -> bool {
    let blocking = shard.is_blocking();
    let damaged =
        shard.change(|_, replica| off_the_runtime(blocking, || replica.recheck(segment, at, most)));
    if damaged != Some(true) {
        return false;
    }
    metrics::scrub_error();
    tracing::error!(shard = %shard.key, "damage was found: {error}");
    true
}

/// Looks again at the record at `from`, whose reading failed, and halts the replica if it is
/// damaged.
pub(super) fn suspect(shard: &Arc<Shard>, from: u64, error: &LogError) {
    if !matches!(error, LogError::Corrupt { .. }) {
        return;
    }
    let blocking = shard.is_blocking();
    shard.change(|_, replica| off_the_runtime(blocking, || replica.reread(from)));
}
