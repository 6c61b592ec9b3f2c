//! Where a log begins, once its oldest records were given up.
//!
//! Giving records up is a record itself (see [`RecordKind::LogStart`]), so that every replica does
//! it. The start is made durable first; then whole segments before it are no part of the log any
//! more, and their files wait to be erased. A crash in between leaves files that are known to be
//! before the start.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::segment::{self, Segment};
use super::{Log, LogError, index};
use crate::record::{Position, Record, RecordKind, Term};
use crate::sealed;
use crate::storage::{Storage, StoredFile};

const FILE: &str = "start.json";

/// The first offset of a log, and the term of the record before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct LogStart {
    pub(super) offset: u64,
    pub(super) term: Term,
}

/// A segment before the start of its log, whose file is still to be erased. Cheap to clone.
#[derive(Clone)]
pub struct RemovedSegment {
    file: Arc<dyn StoredFile>,
    base: u64,
    bytes: u64,
}

/// What is given up of a log: its oldest closed segments, by either limit. Without one, nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// While so many bytes are left without them.
    pub bytes: Option<u64>,
    /// Once all of their records are older, milliseconds.
    pub age_ms: Option<i64>,
}

impl LogStart {
    pub(super) fn load(storage: &Arc<dyn Storage>) -> Result<Self, LogError> {
        sealed::load(storage, FILE)
    }

    fn save(&self, storage: &Arc<dyn Storage>) -> Result<(), LogError> {
        sealed::save(storage, FILE, self)
    }
}

/// The payload of a record that moves the start to `offset`.
pub(crate) fn payload(offset: u64) -> Bytes {
    Bytes::copy_from_slice(&offset.to_le_bytes())
}

/// Where a record moves the start to, if it does; never beyond itself.
pub(super) fn moved_by(record: &Record) -> Option<u64> {
    if record.kind != RecordKind::LogStart {
        return None;
    }
    let offset = u64::from_le_bytes(record.payload.as_ref().try_into().ok()?);
    (offset <= record.offset).then_some(offset)
}

impl Log {
    /// Offset of the first record that is kept.
    pub fn start(&self) -> u64 {
        self.start.offset
    }

    /// The start, with the term of the record before it.
    pub fn beginning(&self) -> Position {
        Position { term: self.start.term, end: self.start.offset }
    }

    /// Where the log is to begin for `retention`, at the time `now_ms`: at a segment's first
    /// record, and not before it begins now.
    pub fn start_to_keep(&self, retention: &Retention, now_ms: i64) -> u64 {
        let mut left = self.size_bytes();
        let mut start = self.start();
        for segments in self.segments.windows(2) {
            let (oldest, next) = (&segments[0], &segments[1]);
            left -= oldest.bytes;
            let is_beyond = retention.bytes.is_some_and(|bytes| left >= bytes);
            let is_old =
                retention.age_ms.is_some_and(|age| oldest.newest_ms.saturating_add(age) < now_ms);
            if !is_beyond && !is_old {
                break;
            }
            start = start.max(next.base);
        }
        start
    }

    /// The furthest start that a record of this log asks for, committed or not.
    pub(crate) fn asked_start(&self) -> u64 {
        self.moves.iter().map(|(_, start)| *start).max().unwrap_or(0).max(self.start())
    }

    /// Moves the start as far as records before `committed` say.
    pub fn follow_start(&mut self, committed: u64) -> Result<(), LogError> {
        let done = self.moves.partition_point(|(offset, _)| *offset < committed);
        let Some(start) = self.moves[..done].iter().map(|(_, start)| *start).max() else {
            return Ok(());
        };
        if start > self.start() {
            let term = self.term_before(start).unwrap_or_default();
            let start = LogStart { offset: start, term };
            start.save(&self.storage)?;
            self.begin_at(start);
        }
        self.moves.drain(..done);
        Ok(())
    }

    fn begin_at(&mut self, start: LogStart) {
        self.start = start;
        let end = self.end();
        clip(&mut self.terms, start, end);
        let before = self.segments.partition_point(|s| s.end <= start.offset);
        self.remove_first(before.min(self.segments.len() - 1));
    }

    /// Takes the first segments out of the log.
    fn remove_first(&mut self, count: usize) {
        let removed = self.segments.drain(..count);
        self.removed.extend(removed.map(RemovedSegment::from));
    }

    /// Throws everything away and begins anew at `position`, with nothing in the log. It must not
    /// be before the start.
    pub fn restart_at(&mut self, position: Position) -> Result<(), LogError> {
        let start = LogStart { offset: position.end, term: position.term };
        // Nothing at or behind the new start may be taken for what comes there, nor come back once
        // the start is on the disk.
        if self.end() > start.offset {
            self.truncate_from(start.offset)?;
            let cut = self.last_segment();
            let describe = self.storage.describe(&cut.name);
            cut.file.sync().map_err(LogError::io("sync", describe))?;
        }
        start.save(&self.storage)?;
        if self.last_segment().base < start.offset {
            let fresh = Segment::create(self.storage.as_ref(), start.offset)?;
            self.segments.push(fresh);
            self.remove_first(self.segments.len() - 1);
        }
        self.start = start;
        self.terms.clear();
        clip(&mut self.terms, start, start.offset);
        self.moves.clear();
        self.producers = crate::producers::ProducerTable::default();
        self.tail.clear();
        self.tail_bytes = 0;
        self.truncations += 1;
        self.syncs.restarted(start.offset);
        Ok(())
    }

    /// Segments before the start whose files are still there, oldest first.
    pub fn removed(&self) -> &[RemovedSegment] {
        &self.removed
    }

    /// Bytes of their files when the segments were removed.
    pub fn removed_bytes(&self) -> u64 {
        self.removed.iter().map(|segment| segment.bytes).sum()
    }

    /// Removes the file of a segment before the start; harmless if that was done.
    pub fn erase_removed(&mut self, segment: &RemovedSegment) -> Result<(), LogError> {
        let Some(i) = self.removed.iter().position(|s| s.base == segment.base) else {
            return Ok(());
        };
        for name in [index::name_of(segment.base), segment::name_of(segment.base)] {
            match self.storage.remove(&name) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(LogError::io("remove", self.storage.describe(&name))(e));
                }
                _ => {}
            }
        }
        self.removed.remove(i);
        Ok(())
    }
}

impl RemovedSegment {
    pub(super) fn new(file: Arc<dyn StoredFile>, base: u64, bytes: u64) -> Self {
        Self { file, base, bytes }
    }

    /// The file, to be cut down before it is removed.
    pub fn file(&self) -> &Arc<dyn StoredFile> {
        &self.file
    }
}

impl From<Segment> for RemovedSegment {
    fn from(segment: Segment) -> Self {
        Self::new(segment.file, segment.base, segment.bytes)
    }
}

/// Forgets the terms of what is before the start, except the record right before it. The log ends
/// at `end`.
pub(super) fn clip(terms: &mut Vec<(u64, Term)>, start: LogStart, end: u64) {
    let Some(before) = start.offset.checked_sub(1) else { return };
    let across = terms.partition_point(|(first, _)| *first <= start.offset);
    let at_start = across.checked_sub(1).map(|i| terms[i].1).filter(|_| end > start.offset);
    terms.drain(..across);
    // The record before may be another log's than the run that it interrupts.
    if let Some(term) = at_start.filter(|term| *term != start.term) {
        terms.insert(0, (start.offset, term));
    }
    terms.insert(0, (before, start.term));
}
