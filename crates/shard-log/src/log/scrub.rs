//! Reading closed segments again, away from the log that they belong to.
//!
//! The log's owner is asked only for the next segment; the reading needs no lock. What looks
//! damaged may have been cut off meanwhile, so it is looked at again under the owner's eyes.

use std::sync::Arc;

use bytes::Bytes;

use super::segment::{BAD_PREFIX, PREFIX_BYTES, Place, next_frame, prefix_of};
use super::{Log, LogError};
use crate::record::{self, BadFrame, Frame};
use crate::storage::StoredFile;

/// A step holds at least a record's header.
const STEP_MIN_BYTES: u64 = 4 << 10;

/// A closed segment as it was when it was asked for. Cheap to clone.
#[derive(Clone)]
pub struct ClosedSegment {
    file: Arc<dyn StoredFile>,
    described: String,
    base: u64,
    end: u64,
    bytes: u64,
}

/// How far a closed segment was read: everything before is as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    offset: u64,
    byte: u64,
}

impl Log {
    /// The first closed segment with records at or after `offset`; `None` if only the open one has
    /// any.
    pub fn closed_segment(&self, offset: u64) -> Option<ClosedSegment> {
        let closed = &self.segments[..self.segments.len() - 1];
        let segment = closed.get(closed.partition_point(|s| s.end <= offset))?;
        Some(ClosedSegment {
            file: segment.file.clone(),
            described: self.storage.describe(&segment.name),
            base: segment.base,
            end: segment.end,
            bytes: segment.bytes,
        })
    }

    /// Bytes of the closed segments from the one with `offset` on.
    pub fn closed_bytes(&self, offset: u64) -> u64 {
        let closed = &self.segments[..self.segments.len() - 1];
        let first = closed.partition_point(|s| s.end <= offset);
        closed[first..].iter().map(|s| s.bytes).sum()
    }

    /// Whether the segment is still part of the log as it was.
    pub fn has_closed(&self, segment: &ClosedSegment) -> bool {
        let same = |s: &super::Segment| {
            (s.base, s.end, s.bytes) == (segment.base, segment.end, segment.bytes)
                && Arc::ptr_eq(&s.file, &segment.file)
        };
        self.segments.iter().any(same)
    }
}

impl ClosedSegment {
    /// Nothing of it is read yet.
    pub fn start(&self) -> Verified {
        Verified { offset: self.base, byte: 0 }
    }

    /// Whether all of it was read.
    pub fn is_whole(&self, verified: Verified) -> bool {
        verified.byte >= self.bytes
    }

    /// Offset after its last record.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Offset of its first record.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Length of its file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that a step of at most `max_bytes` reads, unless a single record is longer.
    pub fn step_bytes(&self, from: Verified, max_bytes: u64) -> u64 {
        self.bytes.saturating_sub(from.byte).min(max_bytes.max(STEP_MIN_BYTES))
    }

    /// Reads about `max_bytes` on. Returns how far everything is as it was written, and how many
    /// bytes were read for it.
    pub fn verify(&self, from: Verified, max_bytes: u64) -> Result<(Verified, u64), LogError> {
        self.read_on(from, max_bytes, |_, _| {})
    }

    /// The same, telling `each` every record with its place.
    pub(super) fn read_on(
        &self,
        from: Verified,
        max_bytes: u64,
        mut each: impl FnMut(Place, &Frame),
    ) -> Result<(Verified, u64), LogError> {
        let mut at = from;
        if at.byte == 0 {
            let prefix = self.read(0, self.bytes.min(PREFIX_BYTES))?;
            if prefix[..] != prefix_of(self.base) {
                return Err(self.damaged(0, BAD_PREFIX));
            }
            at.byte = PREFIX_BYTES;
        }
        let budget = self.step_bytes(from, max_bytes).saturating_sub(at.byte - from.byte);
        let mut chunk = self.read(at.byte, budget)?;
        let mut read = at.byte - from.byte + budget;
        if let Ok((total, _)) = record::peek(&chunk)
            && total as u64 > budget
            && total as u64 <= self.bytes - at.byte
        {
            chunk = self.read(at.byte, total as u64)?;
            read += total as u64;
        }
        let mut used = 0;
        while used < chunk.len() {
            match next_frame(&chunk.slice(used..), at.offset) {
                Ok(frame) => {
                    each((at.offset, at.byte), &frame);
                    used += frame.bytes;
                    at = Verified { offset: at.offset + 1, byte: at.byte + frame.bytes as u64 };
                }
                Err(BadFrame::Short) if used > 0 && self.goes_on(at, chunk.len() - used) => break,
                Err(bad) => return Err(self.damaged(at.byte, bad.as_str())),
            }
        }
        if self.is_whole(at) && at.offset != self.end {
            return Err(self.damaged(at.byte, "records are missing at its end"));
        }
        Ok((at, read))
    }

    /// Whether there is more of the segment behind so many bytes.
    fn goes_on(&self, at: Verified, bytes: usize) -> bool {
        at.byte + (bytes as u64) < self.bytes
    }

    fn read(&self, at: u64, bytes: u64) -> Result<Bytes, LogError> {
        let mut buffer = vec![0; bytes as usize];
        let read = self.file.read_at(at, &mut buffer);
        read.map_err(LogError::io("read", self.described.clone()))?;
        Ok(buffer.into())
    }

    fn damaged(&self, byte: u64, detail: &str) -> LogError {
        LogError::Corrupt { file: self.described.clone(), byte, detail: detail.to_owned() }
    }
}
