//! Either end of a shard's copy.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_model::{Generation, Role, ShardKey};
use evenkeel_shard_log::{
    CopyRefusal, LogError, ReadLimit, Record, Replica, decode_frames, encode_frames,
};
use tokio::sync::watch;

use super::clients::storage_error;
use super::decay::suspect;
use super::shard::{Shard, off_the_runtime};
use super::{CopyChunk, CopyPosition, Hosted, RangeDigest, ShardError};

/// Bytes that a digest reads before it lets others have their turn.
const DIGEST_STEP_BYTES: usize = 256 << 10;

impl Hosted {
    fn held_shard(&self, shard: &ShardKey) -> Result<Arc<Shard>, ShardError> {
        self.shard(shard).ok_or(ShardError::NotHeld)
    }

    /// Reads past what is cached with other tasks out of the way.
    fn read_records(
        &self,
        replica: &Replica,
        from: u64,
        limit: ReadLimit,
    ) -> Result<Vec<Record>, LogError> {
        let blocking = self.equipment.disks.is_blocking() && !replica.log().is_in_memory(from);
        off_the_runtime(blocking, || replica.log().read(from, limit))
    }

    pub(super) fn copy_read(
        &self,
        shard: &ShardKey,
        generation: Generation,
        from_offset: u64,
        start_generation: Generation,
        max_bytes: usize,
    ) -> Result<CopyChunk, ShardError> {
        let shard = self.held_shard(shard)?;
        let read = shard.look(|replica| {
            let known = replica.assignment().map_or(0, |a| a.generation);
            if generation < known {
                return Err(ShardError::Stale { given: generation, known });
            }
            let log = replica.log();
            if from_offset < log.start() {
                return Err(ShardError::BeforeStart { asked: from_offset, first: log.start() });
            }
            let before = log.term_before(from_offset);
            let differs = before.is_some_and(|term| term.generation != start_generation);
            if start_generation != 0 && differs {
                return Err(ShardError::Diverged(from_offset));
            }
            let committed = replica.copyable_end();
            let limit = ReadLimit::bytes(committed, max_bytes);
            Ok(self.read_records(replica, from_offset, limit).map(|records| {
                let end_offset = records.last().map_or(from_offset, |r| r.offset + 1);
                let bytes_remaining = log.bytes_between(end_offset, committed);
                (records, end_offset, committed, bytes_remaining)
            }))
        });
        let (records, end_offset, committed, bytes_remaining) = read
            .ok_or_else(|| unopened(&shard))??
            .map_err(|error| failed(&shard, from_offset, error))?;
        let frames = encode_frames(&records);
        Ok(CopyChunk { frames, end_offset, committed, bytes_remaining })
    }

    pub(super) async fn digest(
        &self,
        shard: &ShardKey,
        from_offset: u64,
        to_offset: u64,
        max_bytes: u64,
    ) -> Result<RangeDigest, ShardError> {
        let shard = self.held_shard(shard)?;
        let mut digest = RangeDigest { crc32c: 0, bytes: 0, to_offset: from_offset };
        while digest.bytes < max_bytes {
            let step = usize::try_from(max_bytes - digest.bytes).unwrap_or(usize::MAX);
            let step = step.min(DIGEST_STEP_BYTES);
            let read = shard.look(|replica| {
                let learns = matches!(replica.role(), Some(Role::Successor | Role::Joining));
                let end = if learns { replica.log().synced_end() } else { replica.copyable_end() };
                let limit = ReadLimit::bytes(end.min(to_offset), step);
                off_the_runtime(self.equipment.disks.is_blocking(), || {
                    replica.log().read_stored(digest.to_offset, limit)
                })
            });
            let records = read.ok_or_else(|| unopened(&shard))?;
            let records = records.map_err(|error| failed(&shard, digest.to_offset, error))?;
            let Some(last) = records.last() else { break };
            digest.to_offset = last.offset + 1;
            let frames = encode_frames(&records);
            digest.crc32c = crc32c::crc32c_append(digest.crc32c, &frames);
            digest.bytes += frames.len() as u64;
            tokio::task::yield_now().await;
        }
        Ok(digest)
    }

    /// What an append that nobody waited for has written is part of it.
    pub(super) async fn copy_position(&self, shard: &ShardKey) -> Result<CopyPosition, ShardError> {
        let shard = self.held_shard(shard)?;
        let durable = shard.watch_durable();
        let end = shard.look(|replica| replica.log().end()).ok_or_else(|| unopened(&shard))?;
        durable_to(&shard, durable, end).await
    }

    pub(super) async fn copy_append(
        &self,
        shard: &ShardKey,
        generation: Generation,
        first_offset: u64,
        frames: Vec<Bytes>,
    ) -> Result<CopyPosition, ShardError> {
        let mut records: Vec<Record> = Vec::new();
        for piece in frames {
            let decoded =
                decode_frames(&piece).map_err(|e| ShardError::BadFrames(e.to_string()))?;
            let expected = records.last().map_or(first_offset, |last| last.offset + 1);
            if decoded.first().is_some_and(|first| first.offset != expected) {
                let detail = format!("the first record is not at offset {expected}");
                return Err(ShardError::BadFrames(detail));
            }
            records.extend(decoded);
        }
        let shard = self.held_shard(shard)?;
        let change = |now, replica: &mut Replica| {
            takes_copy(replica)?;
            replica.copy_append(now, &records).map_err(copy_error)
        };
        self.change_learner(&shard, generation, change).await
    }

    pub(super) async fn copy_truncate(
        &self,
        shard: &ShardKey,
        generation: Generation,
        to_offset: u64,
    ) -> Result<CopyPosition, ShardError> {
        let shard = self.held_shard(shard)?;
        let change = |now, replica: &mut Replica| {
            takes_copy(replica)?;
            replica.copy_truncate(now, to_offset).map_err(copy_error)
        };
        self.change_learner(&shard, generation, change).await
    }

    pub(super) async fn copy_verified(
        &self,
        shard: &ShardKey,
        generation: Generation,
    ) -> Result<CopyPosition, ShardError> {
        let shard = self.held_shard(shard)?;
        let change = |now, replica: &mut Replica| replica.copy_verified(now).map_err(copy_error);
        self.change_learner(&shard, generation, change).await
    }

    /// Changes a learner's log and waits until the change is durable.
    async fn change_learner(
        &self,
        shard: &Arc<Shard>,
        generation: Generation,
        change: impl FnOnce(u64, &mut Replica) -> Result<u64, ShardError>,
    ) -> Result<CopyPosition, ShardError> {
        let durable = shard.watch_durable();
        let changed = shard.change(|now, replica| {
            let known = replica.assignment().map_or(0, |a| a.generation);
            if generation != known {
                return Err(ShardError::Stale { given: generation, known });
            }
            let blocking = self.equipment.disks.is_blocking();
            off_the_runtime(blocking, || change(now, replica))
        });
        let end = changed.ok_or_else(|| unopened(shard))??;
        durable_to(shard, durable, end).await
    }
}

/// Waits until the log is durable up to an offset, or as far as it still goes.
async fn durable_to(
    shard: &Arc<Shard>,
    mut durable: watch::Receiver<u64>,
    end: u64,
) -> Result<CopyPosition, ShardError> {
    // A log that is cut, or halts, may have nothing more that becomes durable.
    let mut status = shard.watch();
    loop {
        durable.mark_unchanged();
        status.mark_unchanged();
        let look = |replica: &Replica| {
            let halted = replica.halted().map(str::to_owned);
            let log = replica.log();
            (log.synced_end() >= end.min(log.end()), halted, position(replica))
        };
        match shard.look(look).ok_or_else(|| unopened(shard))? {
            (true, _, position) => return Ok(position),
            (false, Some(detail), _) => return Err(ShardError::Storage(detail)),
            (false, None, _) => {
                let changed = tokio::select! {
                    biased;
                    changed = durable.changed() => changed,
                    changed = status.changed() => changed,
                };
                changed.map_err(|_| ShardError::NotHeld)?;
            }
        }
    }
}

/// A read from `from` on failed.
fn failed(shard: &Arc<Shard>, from: u64, error: LogError) -> ShardError {
    suspect(shard, from, &error);
    storage_error(error)
}

/// Why a held shard's replica is not there.
pub(super) fn unopened(shard: &Shard) -> ShardError {
    match shard.failure() {
        Some(failure) => ShardError::Storage(failure.error.clone()),
        None => ShardError::NotHeld,
    }
}

fn takes_copy(replica: &Replica) -> Result<(), ShardError> {
    let learns = matches!(replica.role(), Some(Role::Successor | Role::Joining));
    if learns && replica.is_fed() { Err(ShardError::TakesNoCopy) } else { Ok(()) }
}

fn copy_error(refusal: CopyRefusal) -> ShardError {
    match refusal {
        CopyRefusal::NoLearner => ShardError::NotHeld,
        CopyRefusal::Halted(detail) => ShardError::Storage(detail),
        CopyRefusal::Gap { .. } => ShardError::BadFrames(refusal.to_string()),
        CopyRefusal::Log(error) => storage_error(error),
    }
}

fn position(replica: &Replica) -> CopyPosition {
    let end_offset = replica.log().synced_end();
    let term = replica.log().term_before(end_offset);
    CopyPosition {
        start_offset: replica.log().start(),
        end_offset,
        last_generation: term.map_or(0, |t| t.generation),
        copied_from: replica.copied_from(),
    }
}
