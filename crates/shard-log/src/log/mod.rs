//! The append-only log of one shard: checksummed records in segment files.
//!
//! **Invariants:** offsets are consecutive from the start; terms never fall; a record, once synced,
//! is lost only by [`Log::truncate_from`] or before the start; an append is there wholly or not at
//! all.

mod damage;
mod error;
mod index;
mod indexing;
mod read;
mod recovery;
mod scrub;
mod segment;
mod start;
mod sync;

use std::collections::VecDeque;
use std::sync::Arc;

pub use error::LogError;
pub(crate) use error::is_full;
pub use indexing::{IndexJob, IndexStep};
pub use read::ReadLimit;
pub use recovery::{Scanned, TornTail};
pub use scrub::{ClosedSegment, Verified};
pub(crate) use start::payload as start_payload;
pub use start::{RemovedSegment, Retention};
pub use sync::SyncJob;

use crate::producers::ProducerTable;
use crate::record::{MAX_PAYLOAD_BYTES, Position, Record, Term};
use crate::storage::Storage;
use segment::Segment;
use start::LogStart;

/// A file that is there while damage was found in the log; it holds what was found.
const SUSPECT: &str = "damaged.txt";

/// Settings of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// A segment is closed once it holds this many bytes.
    pub segment_bytes: u64,
    /// Bytes of the newest records that are kept in memory; 0 keeps none.
    pub tail_bytes: usize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { segment_bytes: 16 << 20, tail_bytes: 256 << 10 }
    }
}

/// A shard's log, open. One owner at a time.
pub struct Log {
    storage: Arc<dyn Storage>,
    config: LogConfig,
    /// Oldest first; never empty.
    segments: Vec<Segment>,
    /// What is before is no part of the log any more, though the first segment may hold some of it.
    start: LogStart,
    /// Segments before the start whose files are still to be erased.
    removed: Vec<RemovedSegment>,
    /// Records that move the start and were not followed yet, with where to.
    moves: Vec<(u64, u64)>,
    /// First offset of each run of one term, from the record before the start on.
    terms: Vec<(u64, Term)>,
    producers: ProducerTable,
    /// The newest records, consecutive up to the end.
    tail: VecDeque<Record>,
    tail_bytes: usize,
    syncs: sync::Syncs,
    /// Counts truncations: what was learnt of a segment before one may be wrong after it.
    truncations: u64,
    /// Closed segments that were read when the log was opened.
    scanned: Vec<Scanned>,
    scratch: Vec<u8>,
}

impl Log {
    /// Opens the log in `storage`, making an empty one if there is none. A torn tail is cut off and
    /// reported; damage elsewhere is an error and changes nothing.
    pub fn open(
        storage: Arc<dyn Storage>,
        config: LogConfig,
    ) -> Result<(Self, Option<TornTail>), LogError> {
        recovery::open(storage, config)
    }

    /// Offset after the last record.
    pub fn end(&self) -> u64 {
        self.last_segment().end
    }

    /// Term of the last record and the end.
    pub fn position(&self) -> Position {
        let term = self.terms.last().map(|(_, term)| *term).unwrap_or_default();
        Position { term, end: self.end() }
    }

    /// Term of the record at `offset`; `None` past the end, and before the start except right
    /// before it.
    pub fn term_at(&self, offset: u64) -> Option<Term> {
        if offset >= self.end() {
            return None;
        }
        let after = self.terms.partition_point(|(first, _)| *first <= offset);
        after.checked_sub(1).map(|i| self.terms[i].1)
    }

    /// Term of the record before `offset`: the default at 0, `None` if `offset` is past the end or
    /// before the start.
    pub fn term_before(&self, offset: u64) -> Option<Term> {
        offset.checked_sub(1).map_or(Some(Term::default()), |last| self.term_at(last))
    }

    /// First offset of the run of one term that holds `offset`.
    pub fn run_start(&self, offset: u64) -> u64 {
        let after = self.terms.partition_point(|(first, _)| *first <= offset);
        after.checked_sub(1).map_or(0, |i| self.terms[i].0)
    }

    /// Bytes on disk.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.bytes).sum()
    }

    /// Closed segments that had to be read in full when the log was opened.
    pub fn scanned(&self) -> &[Scanned] {
        &self.scanned
    }

    /// What each producer wrote last.
    pub fn producers(&self) -> &ProducerTable {
        &self.producers
    }

    /// Appends records that continue the log: all or, after an error, none.
    pub fn append(&mut self, records: &[Record]) -> Result<(), LogError> {
        self.check(records)?;
        let mut rest = records;
        let start = self.end();
        while !rest.is_empty() {
            if let Err(e) = self.roll_if_full().and_then(|()| self.append_some(&mut rest)) {
                // Part of a batch over two segments may be there.
                self.truncate_from(start)?;
                return Err(e);
            }
        }
        self.syncs.wrote();
        Ok(())
    }

    fn check(&self, records: &[Record]) -> Result<(), LogError> {
        let end = self.end();
        let mut last = self.position().term;
        for (expected, record) in (end..).zip(records) {
            let detail = if record.offset != expected {
                "it does not continue the log"
            } else if record.term < last {
                "its term is older than the last record's"
            } else if record.payload.len() > MAX_PAYLOAD_BYTES {
                "its payload is longer than 8388608 bytes"
            } else {
                last = record.term;
                continue;
            };
            return Err(LogError::Rejected { offset: record.offset, end, detail });
        }
        Ok(())
    }

    /// Writes as many records as fit the open segment.
    fn append_some(&mut self, rest: &mut &[Record]) -> Result<(), LogError> {
        let room = self.config.segment_bytes.saturating_sub(self.last_segment().bytes);
        self.scratch.clear();
        let mut fitting = 0;
        let synced = self.syncs.end();
        for record in *rest {
            if fitting > 0 && self.scratch.len() as u64 >= room {
                break;
            }
            let unsynced = u32::try_from(record.offset - synced).unwrap_or(u32::MAX);
            record.encode(unsynced, &mut self.scratch);
            fitting += 1;
        }
        let (written, left) = rest.split_at(fitting);
        let Some(segment) = self.segments.last_mut() else { return Ok(()) };
        segment.append(self.storage.as_ref(), &self.scratch, written)?;
        for record in written {
            self.note(record);
        }
        *rest = left;
        Ok(())
    }

    /// Keeps what is known in memory about the log in step with a record just written.
    fn note(&mut self, record: &Record) {
        note_term(&mut self.terms, record);
        self.moves.extend(start::moved_by(record).map(|to| (record.offset, to)));
        self.producers.note(record);
        self.tail_bytes += record.frame_bytes();
        self.tail.push_back(record.clone());
        while self.tail_bytes > self.config.tail_bytes
            && let Some(oldest) = self.tail.pop_front()
        {
            self.tail_bytes -= oldest.frame_bytes();
        }
    }

    fn roll_if_full(&mut self) -> Result<(), LogError> {
        if self.last_segment().bytes < self.config.segment_bytes {
            return Ok(());
        }
        // Only the last segment may be torn, so the one before it is made durable first.
        let Some(full) = self.segments.last_mut() else { return Ok(()) };
        full.clean_tail(self.storage.as_ref())?;
        let describe = self.storage.describe(&full.name);
        full.file.sync().map_err(LogError::io("sync", describe))?;
        let end = full.end;
        let segment = Segment::create(self.storage.as_ref(), end)?;
        self.segments.push(segment);
        Ok(())
    }

    /// Drops every record from `offset` on, or from the start if that comes later.
    pub fn truncate_from(&mut self, offset: u64) -> Result<(), LogError> {
        let offset = offset.max(self.start());
        self.truncations += 1;
        self.drop_indexes_from(offset)?;
        while self.segments.len() > 1 && self.last_segment().base >= offset {
            let Some(segment) = self.segments.pop() else { break };
            if let Err(e) = self.storage.remove(&segment.name) {
                let file = self.storage.describe(&segment.name);
                self.segments.push(segment);
                return Err(LogError::io("remove", file)(e));
            }
        }
        if let Some(segment) = self.segments.last_mut().filter(|s| s.end > offset) {
            segment.truncate(self.storage.as_ref(), offset)?;
        }
        let end = self.end();
        self.terms.retain(|(first, _)| *first < end);
        self.moves.retain(|(offset, _)| *offset < end);
        self.producers.truncate_from(end);
        while self.tail.back().is_some_and(|r| r.offset >= end)
            && let Some(newest) = self.tail.pop_back()
        {
            self.tail_bytes -= newest.frame_bytes();
        }
        self.syncs.truncated(end);
        Ok(())
    }

    /// Removes, durably, the indexes of the segments that are about to change: those that hold
    /// records from `offset` on, and the one that is to be written to again.
    fn drop_indexes_from(&mut self, offset: u64) -> Result<(), LogError> {
        let last_kept = self.segments.iter().rposition(|s| s.base < offset).unwrap_or(0);
        // Also one that is not believed, or could not be read: it may be when it is wrong.
        for segment in self.segments[last_kept..].iter_mut().rev() {
            let name = index::name_of(segment.base);
            match self.storage.remove(&name) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(LogError::io("remove", self.storage.describe(&name))(e));
                }
                _ => segment.is_indexed = false,
            }
        }
        Ok(())
    }

    /// Remembers that the log is damaged: the next open believes no index, and so meets the damage
    /// too, if it is still there.
    pub(crate) fn mark_suspect(&self, detail: &str) -> Result<(), LogError> {
        let marked = self.storage.replace(SUSPECT, detail.as_bytes());
        marked.map_err(LogError::io("write", self.storage.describe(SUSPECT)))
    }

    fn last_segment(&self) -> &Segment {
        self.segments.last().expect("a log has a segment from the moment it is opened")
    }
}

fn note_term(terms: &mut Vec<(u64, Term)>, record: &Record) {
    if terms.last().is_none_or(|(_, term)| *term != record.term) {
        terms.push((record.offset, record.term));
    }
}
