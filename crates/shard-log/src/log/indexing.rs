//! Making the index of a closed segment, away from the log that it belongs to.
//!
//! The segment is read back for it: the index says only what is on the disk, the same on every
//! replica, and no publish waits for it. It takes its place under the owner's eyes, since the log
//! may have been truncated meanwhile.

use std::sync::Arc;

use super::index::{self, SegmentIndex};
use super::scrub::{ClosedSegment, Verified};
use super::segment::note_place;
use super::start::moved_by;
use super::{Log, LogError, Segment, note_term};
use crate::storage::Storage;

/// An index that is being made.
pub struct IndexJob {
    storage: Arc<dyn Storage>,
    segment: ClosedSegment,
    /// The segment before, whose index says what producers wrote up to there.
    before: Option<(u64, u64, u64)>,
    /// Truncations of the log when this was begun.
    truncations: u64,
    at: Verified,
    made: SegmentIndex,
}

/// What a step of making an index came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexStep {
    /// So many bytes were read.
    Read(u64),
    /// The index of the segment before is not to be trusted: it must be made first.
    NeedsEarlier,
}

impl Log {
    /// The first closed segment without an index, to make one for.
    pub fn next_index(&self) -> Option<IndexJob> {
        let closed = &self.segments[..self.segments.len() - 1];
        let i = closed.iter().position(|s| !s.is_indexed)?;
        let segment = self.closed_segment(closed[i].base)?;
        let known = |s: &Segment| (s.base, s.end, s.bytes);
        let base = closed[i].base;
        Some(IndexJob {
            storage: self.storage.clone(),
            at: segment.start(),
            segment,
            before: i.checked_sub(1).map(|before| known(&closed[before])),
            truncations: self.truncations,
            made: SegmentIndex { base, ..SegmentIndex::default() },
        })
    }

    /// Bytes of the closed segments without an index.
    pub fn unindexed_bytes(&self) -> u64 {
        let closed = &self.segments[..self.segments.len() - 1];
        closed.iter().filter(|s| !s.is_indexed).map(|s| s.bytes).sum()
    }

    /// Puts a finished index in its place, unless the log was truncated since it was begun; whether
    /// it did. It is durable after [`IndexJob::settle`].
    pub fn install_index(&mut self, job: &IndexJob) -> Result<bool, LogError> {
        let base = job.segment.base();
        let is_same = job.truncations == self.truncations && self.has_closed(&job.segment);
        let Some(segment) = self.segments.iter_mut().find(|s| is_same && s.base == base) else {
            return Ok(false);
        };
        let name = index::name_of(base);
        let installed = self.storage.install(&name);
        installed.map_err(LogError::io("install", self.storage.describe(&name)))?;
        segment.is_indexed = true;
        Ok(true)
    }

    /// Takes note that the index of the segment before the job's is not there, or not whole.
    pub fn forget_index_before(&mut self, job: &IndexJob) {
        let Some((base, ..)) = job.before else { return };
        if let Some(segment) = self.segments.iter_mut().find(|s| s.base == base) {
            segment.is_indexed = false;
        }
    }
}

impl IndexJob {
    /// The segment.
    pub fn segment(&self) -> &ClosedSegment {
        &self.segment
    }

    /// How far it was read.
    pub fn verified(&self) -> Verified {
        self.at
    }

    /// Whether all of it was read.
    pub fn is_whole(&self) -> bool {
        self.segment.is_whole(self.at)
    }

    /// Reads about `max_bytes` of the segment on.
    pub fn step(&mut self, max_bytes: u64) -> Result<IndexStep, LogError> {
        if self.at == self.segment.start()
            && let Some((base, end, bytes)) = self.before
        {
            match index::load(self.storage.as_ref(), base, end, bytes, true) {
                Ok(before) => self.made.producers = before.producers,
                Err(_) => return Ok(IndexStep::NeedsEarlier),
            }
        }
        let made = &mut self.made;
        let each = |place, frame: &crate::record::Frame| {
            note_place(&mut made.places, place);
            note_term(&mut made.runs, &frame.record);
            made.moves.extend(moved_by(&frame.record).map(|to| (frame.record.offset, to)));
            made.newest_ms = made.newest_ms.max(frame.record.timestamp_ms);
            made.producers.note(&frame.record);
        };
        let (at, read) = self.segment.read_on(self.at, max_bytes, each)?;
        self.at = at;
        Ok(IndexStep::Read(read))
    }

    /// The finished index, as it is to be stored.
    pub fn content(&mut self) -> Vec<u8> {
        (self.made.end, self.made.bytes) = (self.segment.end(), self.segment.bytes());
        self.made.encode()
    }

    /// Writes the finished index, durably, beside its place.
    pub fn prepare(&self, content: &[u8]) -> Result<(), LogError> {
        let name = index::name_of(self.made.base);
        let prepared = self.storage.prepare(&name, content);
        prepared.map_err(LogError::io("write", self.storage.describe(&name)))
    }

    /// Waits until the index in its place is durable.
    pub fn settle(&self) -> Result<(), LogError> {
        let directory = || self.storage.describe("");
        self.storage.settle().map_err(LogError::io("sync", directory()))
    }
}
