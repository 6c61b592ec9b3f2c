//! The built-in shard host: replicated logs on this broker's disk.
//!
//! One state machine per held shard decides; its driver here reads and writes for it. What the
//! state machine asks of a disk that may be slow runs off the async runtime.

mod clients;
mod compaction;
mod copying;
mod decay;
mod declining;
mod deletion;
pub mod disks;
mod handed_over;
mod indexing;
mod log_time;
mod making_way;
mod opening;
mod peers;
mod retention;
mod scrub;
mod shard;
mod syncing;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_model::{BrokerShard, Generation, ShardKey};
use evenkeel_runtime::Clock;
use evenkeel_shard_log::{LogConfig, Memo, ReplicaConfig};
use tokio::sync::{RwLock, watch};
use tokio::time::Instant;

use super::{
    CopyChunk, CopyPosition, HandedOver, HostContext, NewRecord, OpenHost, PublishError, Published,
    RangeDigest, ReadBatch, ShardCounters, ShardError, ShardHost, ShardStatus, Surroundings,
};
use crate::maintenance::admission::Admission;
use compaction::Compactor;
use declining::declines;
use deletion::Eraser;
use disks::{Disks, FileDisks};
use indexing::Indexer;
use making_way::may_make_way;
use opening::Failure;
use peers::{Answering, Peers};
use scrub::Scrub;
use shard::{Equipment, Shard, off_the_runtime};
use syncing::SyncPolicy;

/// Before a shard that could not be opened is opened again: at first, doubled each time, and at
/// most.
const REOPEN_AFTER: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Opens the host on the directory of its context.
pub async fn open(context: HostContext) -> anyhow::Result<OpenHost> {
    let disks = FileDisks::open(context.data_dir.clone())
        .map_err(|e| anyhow::anyhow!("cannot open {}: {e}", context.data_dir.display()))?;
    Ok(open_on(context, Arc::new(disks)))
}

/// Opens the host on other disks, such as those of a simulation.
pub fn open_on(context: HostContext, disks: Arc<dyn Disks>) -> OpenHost {
    let config = ReplicaConfig {
        log: LogConfig { segment_bytes: context.log.segment_bytes, ..LogConfig::default() },
        ..ReplicaConfig::default()
    };
    let peers = Peers { network: context.network, surroundings: context.surroundings.clone() };
    let hosted = Arc::new(Hosted {
        equipment: Equipment {
            me: context.broker,
            disks,
            config,
            syncs: SyncPolicy::new(&context.log),
            peers,
            reports: context.reports,
            started: Instant::now(),
        },
        clock: context.clock,
        surroundings: context.surroundings,
        record_max_bytes: context.log.record_max_bytes as usize,
        shards: Mutex::default(),
        stored: Mutex::default(),
        discarded: watch::Sender::new(0),
        changing: RwLock::new(()),
    });
    let scrub_every = Duration::from_secs(context.log.scrub_interval_seconds);
    hosted.start_maintenance(&context.maintenance, scrub_every);
    let compaction_percent = context.log.cache_compaction_percent;
    if let Some(kept) = retention::kept(&context.log) {
        let caches_too = compaction_percent == 0;
        tokio::spawn(retention::retain(Arc::downgrade(&hosted), kept, caches_too));
    }
    if compaction_percent > 0 {
        let admission = context.maintenance.clone();
        tokio::spawn(Compactor::new(&hosted, admission, compaction_percent).run());
    }
    let server = Answering::server(&hosted);
    OpenHost {
        host: Arc::new(BuiltinHost { hosted }),
        serve: Box::new(move |services| services.add(server)),
    }
}

/// Everything held on this broker.
struct Hosted {
    equipment: Equipment,
    clock: Clock,
    surroundings: Arc<dyn Surroundings>,
    record_max_bytes: usize,
    shards: Mutex<BTreeMap<ShardKey, Arc<Shard>>>,
    /// Shards with bytes here, once they were listed; the disk need not be asked again.
    stored: Mutex<Option<BTreeSet<ShardKey>>>,
    /// Changes when a shard's directory was discarded.
    discarded: watch::Sender<u64>,
    /// Held alone while a shard is opened, closed or erased, and shared while those that are open
    /// are told something, which waits for the disk: many at once finish sooner.
    changing: RwLock<()>,
}

impl Hosted {
    fn held(&self) -> MutexGuard<'_, BTreeMap<ShardKey, Arc<Shard>>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, key: &ShardKey) -> Option<Arc<Shard>> {
        self.held().get(key).cloned()
    }

    async fn apply(self: &Arc<Self>, told: BrokerShard) {
        let key = told.assignment.shard.clone();
        let apply = || match self.shard(&key) {
            Some(shard) if shard.may_begin_anew(&told) => false,
            Some(shard) => shard.apply(&told),
            None => false,
        };
        let shared = self.changing.read().await;
        if apply() {
            return;
        }
        drop(shared);
        let _alone = self.changing.write().await;
        if apply() {
            return;
        }
        if let Some(halted) = self.shard(&key).filter(|shard| shard.may_begin_anew(&told)) {
            halted.close();
            self.set_aside(&key);
        } else if let Some(halted) = self.shard(&key).filter(|shard| shard.has_halted()) {
            // Whatever made it halt: it is to lead, and did not accept it.
            halted.close();
            declines(&self.equipment.disks, &told, true);
        }
        self.open(key, told);
    }

    /// Erasing, which goes on with what was discarded before a restart, indexing, and the scrub, if
    /// `every` is not zero.
    fn start_maintenance(self: &Arc<Self>, admission: &Admission, every: Duration) {
        let disks = self.equipment.disks.clone();
        let discarded = self.discarded.subscribe();
        let eraser = Eraser { disks: disks.clone(), admission: admission.clone(), discarded };
        tokio::spawn(eraser.run());
        tokio::spawn(retention::erase_given_up(Arc::downgrade(self), admission.clone()));
        tokio::spawn(Indexer::new(self, admission.clone()).run());
        if every.is_zero() {
            return;
        }
        match disks.notes() {
            Ok(storage) => {
                let scrub = Scrub::new(self, admission.clone(), storage, every);
                tokio::spawn(scrub.run());
            }
            Err(error) => tracing::warn!(%error, "no scrub: its place cannot be kept"),
        }
    }

    /// Shards with bytes here.
    fn stored(&self) -> io::Result<BTreeSet<ShardKey>> {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stored) = stored.as_ref() {
            return Ok(stored.clone());
        }
        let disks = &self.equipment.disks;
        let listed = off_the_runtime(disks.is_blocking(), || disks.list())?;
        Ok(stored.insert(listed.into_iter().collect()).clone())
    }

    fn note_stored(&self, note: impl FnOnce(&mut BTreeSet<ShardKey>) -> bool) {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stored) = stored.as_mut() {
            note(stored);
        }
    }

    fn open(self: &Arc<Self>, key: ShardKey, told: BrokerShard) {
        self.note_stored(|stored| stored.insert(key.clone()));
        let before = self.shard(&key).and_then(|shard| shard.failure().cloned());
        let mut shard = Shard::open(key.clone(), &told, self.equipment.clone(), before);
        if let Some(failure) = shard.failure()
            && failure.is_damage
            && self.may_begin_anew(&key, &told)
            && self.set_aside(&key)
        {
            let before = shard.failure().cloned();
            shard = Shard::open(key.clone(), &told, self.equipment.clone(), before);
        }
        let declined = match shard.failure() {
            // By the very memo that it would act on.
            None => shard.has_declined(&told),
            Some(failure) => declines(&self.equipment.disks, &told, failure.is_damage),
        };
        if declined {
            shard.decline();
        }
        shard.report_failure(&told.assignment, declined);
        self.held().insert(key.clone(), shard.clone());
        shard.apply(&told);
        // What failed may be mended by people, such as a disk that is full. What can be opened waits,
        // if it was declined, for another generation.
        let Some(Failure { tries, .. }) = shard.failure() else { return };
        let pause = (REOPEN_AFTER.0 * 2_u32.pow(tries.min(&10) - 1)).min(REOPEN_AFTER.1);
        let hosted = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let Some(hosted) = hosted.upgrade() else { return };
            let _changing = hosted.changing.write().await;
            let is_same = hosted.shard(&key).is_some_and(|held| Arc::ptr_eq(&held, &shard));
            if is_same {
                hosted.open(key, told);
            }
        });
    }

    /// Whether a shard that cannot be opened may begin anew; not if it is not known what it promised.
    fn may_begin_anew(&self, key: &ShardKey, told: &BrokerShard) -> bool {
        let disks = &self.equipment.disks;
        let read = || Memo::load(&disks.open(key).ok()?).ok();
        let known = off_the_runtime(disks.is_blocking(), read);
        known.is_some_and(|memo| may_make_way(told, memo.held.as_ref(), memo.promised))
    }

    /// Gives up a damaged shard's bytes, to be erased as maintenance; whether they are gone.
    fn set_aside(&self, key: &ShardKey) -> bool {
        let disks = &self.equipment.disks;
        match off_the_runtime(disks.is_blocking(), || disks.discard(key)) {
            Ok(()) => {
                tracing::warn!(shard = %key, "the damaged bytes are given up for a new copy");
                self.discarded.send_modify(|count| *count += 1);
                true
            }
            Err(error) => {
                tracing::warn!(shard = %key, %error, "the damaged bytes were not given up");
                false
            }
        }
    }
}

/// The host that the agent talks to.
struct BuiltinHost {
    hosted: Arc<Hosted>,
}

#[tonic::async_trait]
impl ShardHost for BuiltinHost {
    async fn apply(&self, told: BrokerShard) {
        self.hosted.apply(told).await;
    }

    async fn release(&self, shard: &ShardKey) {
        let _changing = self.hosted.changing.write().await;
        let released = self.hosted.held().remove(shard);
        if let Some(released) = released {
            released.close();
        }
    }

    async fn erase(&self, shard: &ShardKey) {
        let _changing = self.hosted.changing.write().await;
        if self.hosted.shard(shard).is_some() {
            return;
        }
        let disks = &self.hosted.equipment.disks;
        match off_the_runtime(disks.is_blocking(), || disks.discard(shard)) {
            Ok(()) => {
                self.hosted.note_stored(|stored| stored.remove(shard));
                self.hosted.discarded.send_modify(|count| *count += 1);
            }
            Err(error) => tracing::warn!(%shard, %error, "shard's bytes were not discarded"),
        }
    }

    async fn publish(
        &self,
        shard: &ShardKey,
        records: Vec<NewRecord>,
    ) -> Result<Published, PublishError> {
        self.hosted.publish(shard, records).await
    }

    async fn read(
        &self,
        shard: &ShardKey,
        from_offset: u64,
        max_bytes: usize,
    ) -> Result<ReadBatch, ShardError> {
        self.hosted.read(shard, from_offset, max_bytes)
    }

    fn watch(&self, shard: &ShardKey) -> Option<watch::Receiver<ShardStatus>> {
        self.hosted.shard(shard).map(|shard| shard.watch())
    }

    fn counters(&self) -> Vec<ShardCounters> {
        let shards: Vec<Arc<Shard>> = self.hosted.held().values().cloned().collect();
        shards.iter().filter_map(clients::counters).collect()
    }

    fn stored(&self) -> Vec<ShardKey> {
        match self.hosted.stored() {
            Ok(stored) => stored.into_iter().collect(),
            Err(error) => {
                tracing::warn!(%error, "stored shards cannot be listed");
                Vec::new()
            }
        }
    }

    async fn handed_over(&self, shard: &ShardKey) -> Result<Option<HandedOver>, String> {
        self.hosted.handed_over(shard).await
    }

    async fn copy_read(
        &self,
        shard: &ShardKey,
        generation: Generation,
        from_offset: u64,
        start_generation: Generation,
        max_bytes: usize,
    ) -> Result<CopyChunk, ShardError> {
        self.hosted.copy_read(shard, generation, from_offset, start_generation, max_bytes)
    }

    async fn digest(
        &self,
        shard: &ShardKey,
        from_offset: u64,
        to_offset: u64,
        max_bytes: u64,
    ) -> Result<RangeDigest, ShardError> {
        self.hosted.digest(shard, from_offset, to_offset, max_bytes).await
    }

    async fn copy_position(&self, shard: &ShardKey) -> Result<CopyPosition, ShardError> {
        self.hosted.copy_position(shard).await
    }

    async fn copy_append(
        &self,
        shard: &ShardKey,
        generation: Generation,
        first_offset: u64,
        frames: Vec<Bytes>,
    ) -> Result<CopyPosition, ShardError> {
        self.hosted.copy_append(shard, generation, first_offset, frames).await
    }

    async fn copy_verified(
        &self,
        shard: &ShardKey,
        generation: Generation,
    ) -> Result<CopyPosition, ShardError> {
        self.hosted.copy_verified(shard, generation).await
    }

    async fn copy_truncate(
        &self,
        shard: &ShardKey,
        generation: Generation,
        to_offset: u64,
    ) -> Result<CopyPosition, ShardError> {
        self.hosted.copy_truncate(shard, generation, to_offset).await
    }

    async fn close(&self) {
        let _changing = self.hosted.changing.write().await;
        let shards = std::mem::take(&mut *self.hosted.held());
        for shard in shards.values() {
            shard.close();
        }
    }
}
