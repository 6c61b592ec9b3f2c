//! Getting shards' records onto the disk, as the policy says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_shard_log::{Event, Replica, SyncJob};

use super::shard::{Shard, off_the_runtime};
use crate::config::{Fsync, LogConfig};

/// Syncs at once. More make no disk faster: what is written while its shard waits for its turn goes
/// with the same sync.
const AT_ONCE: usize = 16;

/// When and how syncs are done. Cheap to clone.
#[derive(Clone)]
pub(super) struct Syncs {
    fsync: Fsync,
    interval: Duration,
    queue: Arc<Queue>,
}

impl Syncs {
    pub(super) fn new(config: &LogConfig) -> Self {
        let interval = Duration::from_millis(config.fsync_interval_ms);
        Self { fsync: config.fsync, interval, queue: Arc::default() }
    }
}

/// Shards whose writes wait for a sync.
#[derive(Default)]
struct Queue(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    shards: VecDeque<Arc<Shard>>,
    workers: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(self: &Arc<Self>, shard: &Arc<Shard>) {
        let mut waiting = self.lock();
        waiting.shards.push_back(shard.clone());
        if waiting.workers < AT_ONCE {
            waiting.workers += 1;
            let worker = Worker { queue: self.clone(), has_left: false };
            tokio::task::spawn_blocking(move || worker.run());
        }
    }
}

/// Syncs one shard after another until none waits.
struct Worker {
    queue: Arc<Queue>,
    has_left: bool,
}

impl Worker {
    fn run(mut self) {
        while let Some(shard) = self.next() {
            if let Some(job) = shard.next_sync() {
                shard.drive_here(synced(&job));
            }
        }
    }

    fn next(&mut self) -> Option<Arc<Shard>> {
        let mut waiting = self.queue.lock();
        let next = waiting.shards.pop_front();
        if next.is_none() {
            waiting.workers -= 1;
            self.has_left = true;
        }
        next
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.has_left {
            self.queue.lock().workers -= 1;
        }
    }
}

/// Writes that are not synced yet. The latest job covers those before it.
#[derive(Default)]
pub(super) struct PutOff {
    latest: Option<SyncJob>,
}

impl PutOff {
    /// What is to be synced now, with all that was written since; nothing if the shard was closed
    /// and so synced meanwhile.
    pub(super) fn next(&mut self, replica: Option<&mut Replica>) -> Option<SyncJob> {
        let latest = self.latest.take()?;
        replica.and_then(Replica::begin_sync).or(Some(latest))
    }
}

fn synced(job: &SyncJob) -> Event {
    match job.run() {
        Ok(()) => Event::Synced(job.ticket()),
        Err(e) => Event::SyncFailed(e.to_string()),
    }
}

/// Syncs or puts it off. An event is returned if the records count already; else it comes later.
pub(super) fn sync(shard: &Arc<Shard>, put_off: &mut PutOff, job: SyncJob) -> Option<Event> {
    let syncs = shard.syncs();
    match syncs.fsync {
        Fsync::Never => Some(Event::Synced(job.ticket())),
        Fsync::Interval => {
            let event = Event::Synced(job.ticket());
            if put_off.latest.replace(job).is_none() {
                tokio::spawn(sync_later(shard.clone(), syncs.interval));
            }
            Some(event)
        }
        Fsync::Always if !shard.is_blocking() => Some(synced(&job)),
        Fsync::Always => {
            if put_off.latest.replace(job).is_none() {
                syncs.queue.join(shard);
            }
            None
        }
    }
}

async fn sync_later(shard: Arc<Shard>, after: Duration) {
    tokio::time::sleep(after).await;
    let Some(job) = shard.next_sync() else { return };
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
