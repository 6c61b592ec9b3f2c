//! What clients do with a held shard: publish and read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use evenkeel_model::{Role, ShardKey};
use evenkeel_shard_log::{Content, Draft, LogError, ReadLimit, Record, Refusal};

use super::copying::unopened;
use super::decay::suspect;
use super::shard::{Figures, Shard, off_the_runtime};
use super::{Hosted, NewRecord, PublishError, Published, ReadBatch, ShardCounters, ShardError};
use crate::host::CommittedRecord;

const NOT_ALIVE: &str = "this broker's lease is not provably alive";

fn publish_error(refusal: Refusal) -> PublishError {
    match refusal {
        Refusal::NotLeading => PublishError::NotLeading,
        Refusal::Fenced => PublishError::Fenced,
        Refusal::Overloaded => PublishError::Overloaded,
        Refusal::DiskFull(detail) => PublishError::DiskFull(detail),
        Refusal::Invalid(detail) => PublishError::Invalid(detail),
        Refusal::Uncertain => PublishError::Uncertain,
        Refusal::Opening => PublishError::NotServing("it is opening".to_owned()),
        Refusal::Halted(detail) => PublishError::NotServing(format!("it has halted: {detail}")),
    }
}

pub(super) fn storage_error(error: LogError) -> ShardError {
    match error {
        LogError::BeforeStart { offset, start } => {
            ShardError::BeforeStart { asked: offset, first: start }
        }
        error => ShardError::Storage(error.to_string()),
    }
}

impl Hosted {
    pub(super) async fn publish(
        &self,
        shard: &ShardKey,
        records: Vec<NewRecord>,
    ) -> Result<Published, PublishError> {
        let shard = self.shard(shard).ok_or(PublishError::NotLeading)?;
        let size = |r: &NewRecord| r.payload.len() + r.key.as_ref().map_or(0, |key| key.len());
        if let Some(given) = records.iter().map(size).find(|size| *size > self.record_max_bytes) {
            let most = self.record_max_bytes;
            let detail = format!("record of {given} bytes: expected at most {most}");
            return Err(PublishError::Invalid(detail));
        }
        if !self.surroundings.is_alive() {
            return Err(PublishError::NotServing(NOT_ALIVE.to_owned()));
        }
        let bytes: usize = records.iter().map(size).sum();
        let count = records.len();
        let drafts = records.into_iter().map(|record| Draft {
            producer: record.producer_id,
            sequence: record.sequence,
            key: record.key,
            payload: record.payload,
        });
        let answer = shard.propose(self.clock.now_ms(), drafts.collect());
        // The shard may be closed while this waits.
        let result = answer.await.unwrap_or(Err(Refusal::Uncertain));
        let published = result.map_err(publish_error)?;
        if !self.surroundings.is_alive() {
            return Err(PublishError::Uncertain);
        }
        Figures::add(&shard.figures.records_in, count);
        Figures::add(&shard.figures.bytes_in, bytes);
        Ok(published)
    }

    pub(super) fn read(
        &self,
        shard: &ShardKey,
        from_offset: u64,
        max_bytes: usize,
    ) -> Result<ReadBatch, ShardError> {
        let shard = self.shard(shard).ok_or(ShardError::NotHeld)?;
        let blocking = self.equipment.disks.is_blocking();
        let mut next_offset = from_offset;
        let mut records = Vec::new();
        // The host's own records are skipped until there is one for the client.
        while records.is_empty() {
            let read = shard.look(|replica| {
                let limit = ReadLimit::bytes(replica.committed(), max_bytes);
                off_the_runtime(blocking && !replica.log().is_in_memory(next_offset), || {
                    replica.log().read(next_offset, limit)
                })
            });
            let batch = read.ok_or_else(|| unopened(&shard))?.map_err(|error| {
                suspect(&shard, next_offset, &error);
                storage_error(error)
            })?;
            let Some(last) = batch.last() else { break };
            next_offset = last.offset + 1;
            records.extend(batch.into_iter().filter_map(committed_record));
        }
        let bytes = records.iter().map(|r| r.payload.len()).sum();
        Figures::add(&shard.figures.bytes_out, bytes);
        Ok(ReadBatch { records, next_offset })
    }
}

/// A client's record as it is read; `None` for the host's own.
fn committed_record(record: Record) -> Option<CommittedRecord> {
    let Content { key, value, rewrites } = record.content()?;
    Some(CommittedRecord {
        offset: record.offset,
        timestamp_ms: record.timestamp_ms,
        key,
        payload: value,
        rewrites,
        producer_id: record.producer,
        sequence: record.sequence,
    })
}

/// What a shard did and holds; `None` if it could not be opened.
pub(super) fn counters(shard: &Arc<Shard>) -> Option<ShardCounters> {
    let figures = &shard.figures;
    shard.look(|replica| ShardCounters {
        shard: shard.key.clone(),
        leads: replica.role() == Some(Role::Leader),
        records_in: figures.records_in.load(Ordering::Relaxed),
        bytes_in: figures.bytes_in.load(Ordering::Relaxed),
        bytes_out: figures.bytes_out.load(Ordering::Relaxed),
        size_bytes: replica.log().size_bytes(),
        log_end: replica.position().end,
        follower_lag: replica.follower_lag().into_iter().collect(),
    })
}
