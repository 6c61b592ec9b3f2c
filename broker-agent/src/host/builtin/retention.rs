//! Giving up old records: the leader of a shard says from where on it is kept, and every replica
//! erases whole segments before that as maintenance.

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_model::{Kind, Millis};
use evenkeel_shard_log::{Event, Log, LogError, RemovedSegment, Retention};
use tokio::time::{Instant, sleep};

use super::Hosted;
use super::deletion::cut_down;
use super::log_time::LogTimes;
use super::shard::{Shard, off_the_runtime};
use crate::config::LogConfig;
use crate::maintenance::Job;
use crate::maintenance::admission::{Admission, Work};

/// How often it is looked for what is old.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What is kept by these settings; `None` for everything.
pub(super) fn kept(config: &LogConfig) -> Option<Retention> {
    let kept = Retention {
        bytes: (config.retention_bytes > 0).then_some(config.retention_bytes),
        age_ms: (config.retention_seconds > 0)
            .then(|| Millis::try_from(config.retention_seconds.saturating_mul(1000)).ok())
            .flatten(),
    };
    (kept != Retention::default()).then_some(kept)
}

/// Lets the shards led here begin where `kept` says, caches only if they are not compacted. Runs
/// until the host is gone.
pub(super) async fn retain(hosted: Weak<Hosted>, kept: Retention, caches_too: bool) {
    let mut times = LogTimes::default();
    while let Some(hosted) = hosted.upgrade() {
        let clock_ms = hosted.clock.now_ms();
        let mut shards: Vec<Arc<Shard>> = hosted.held().values().cloned().collect();
        shards.retain(|shard| caches_too || shard.key.stream.kind != Kind::Cache);
        times.keep(|shard| hosted.shard(shard).is_some());
        drop(hosted);
        for shard in shards {
            let now = Instant::now();
            let looked = shard.look(|replica| {
                let log = replica.log();
                if replica.serving_term().is_none() {
                    times.follow(&shard.key, log.newest_ms(), now);
                    return None;
                }
                let time = times.lead(&shard.key, shard.opened_ms, clock_ms, now);
                let start = log.start_to_keep(&kept, time).min(replica.committed());
                (start > log.start()).then_some((start, time))
            });
            if let Some((offset, timestamp_ms)) = looked.flatten() {
                shard.drive(Event::GiveUpBefore { offset, timestamp_ms });
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Erases the segments that logs here do not begin with any more. Runs until the host is gone.
pub(super) async fn erase_given_up(hosted: Weak<Hosted>, admission: Admission) {
    while let Some(shards) = with_removed(&hosted) {
        // Announced together, so that the backlog is known before it is worked off.
        let announced: Vec<(Arc<Shard>, Work)> = shards
            .into_iter()
            .map(|(shard, bytes)| (shard, admission.work(Job::Deletion, bytes)))
            .collect();
        for (shard, mut work) in announced {
            if let Err(error) = erase_removed(&shard, &admission, &mut work).await {
                tracing::warn!(shard = %shard.key, "old segments cannot be erased yet: {error}");
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

fn with_removed(hosted: &Weak<Hosted>) -> Option<Vec<(Arc<Shard>, u64)>> {
    let hosted = hosted.upgrade()?;
    let shards: Vec<Arc<Shard>> = hosted.held().values().cloned().collect();
    let with = shards.into_iter().filter_map(|shard| {
        // One that was cut to nothing before a crash has no bytes, and is still to be removed.
        let waits = |log: &Log| (!log.removed().is_empty()).then(|| log.removed_bytes());
        let bytes = shard.look(|replica| waits(replica.log())).flatten()?;
        Some((shard, bytes))
    });
    Some(with.collect())
}

async fn erase_removed(
    shard: &Arc<Shard>,
    admission: &Admission,
    work: &mut Work,
) -> Result<(), LogError> {
    let first = |shard: &Shard| shard.look(|r| r.log().removed().first().cloned()).flatten();
    let blocking = shard.is_blocking();
    while let Some(segment) = first(shard) {
        cut_down(segment.file().as_ref(), blocking, admission, work).await.map_err(|source| {
            LogError::Io { action: "cut", file: shard.key.to_string(), source }
        })?;
        remove(shard, blocking, &segment)?;
    }
    Ok(())
}

/// Removes the file, by its name: only while the shard is open can that be no other.
fn remove(shard: &Arc<Shard>, blocking: bool, segment: &RemovedSegment) -> Result<(), LogError> {
    let removed =
        shard.change(|_, replica| off_the_runtime(blocking, || replica.erase_removed(segment)));
    removed.unwrap_or(Ok(()))
}
