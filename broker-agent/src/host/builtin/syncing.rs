//! Getting a shard's records onto the disk, as the policy says.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_shard_log::{Event, SyncJob};

use super::shard::{Shard, off_the_runtime};
use crate::config::{Fsync, LogConfig};

/// When syncs are done.
#[derive(Debug, Clone, Copy)]
pub(super) struct SyncPolicy {
    fsync: Fsync,
    interval: Duration,
}

impl SyncPolicy {
    pub(super) fn new(config: &LogConfig) -> Self {
        Self { fsync: config.fsync, interval: Duration::from_millis(config.fsync_interval_ms) }
    }
}

/// Writes put off by the `interval` policy.
#[derive(Default)]
pub(super) struct PutOff {
    latest: Option<SyncJob>,
}

fn synced(job: &SyncJob) -> Event {
    match job.run() {
        Ok(()) => Event::Synced(job.ticket()),
        Err(e) => Event::SyncFailed(e.to_string()),
    }
}

/// Syncs or puts it off. An event is returned if the records count already; else it comes later.
pub(super) fn sync(shard: &Arc<Shard>, put_off: &mut PutOff, job: SyncJob) -> Option<Event> {
    let policy = shard.sync_policy();
    match policy.fsync {
        Fsync::Never => Some(Event::Synced(job.ticket())),
        Fsync::Interval => {
            let event = Event::Synced(job.ticket());
            if put_off.latest.replace(job).is_none() {
                tokio::spawn(sync_later(shard.clone(), policy.interval));
            }
            Some(event)
        }
        Fsync::Always if !shard.is_blocking() => Some(synced(&job)),
        Fsync::Always => {
            let shard = shard.clone();
            tokio::task::spawn_blocking(move || shard.drive_here(synced(&job)));
            None
        }
    }
}

async fn sync_later(shard: Arc<Shard>, after: Duration) {
    tokio::time::sleep(after).await;
    let Some(job) = shard.put_off(|put_off| put_off.latest.take()) else { return };
    let run = move || job.run();
    let result = if shard.is_blocking() {
        match tokio::task::spawn_blocking(run).await {
            Ok(result) => result,
            // The runtime is being torn down.
            Err(_) => return,
        }
    } else {
        run()
    };
    if let Err(e) = result {
        shard.drive(Event::SyncFailed(e.to_string()));
    }
}

/// The last sync of a shard that is closed.
pub(super) fn sync_at_close(shard: &Shard, put_off: PutOff, job: Option<SyncJob>) {
    let Some(job) = job.or(put_off.latest) else { return };
    if let Err(error) = off_the_runtime(shard.is_blocking(), || job.run()) {
        tracing::warn!(shard = %shard.key, %error, "closed without a sync");
    }
}
