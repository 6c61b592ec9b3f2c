//! Reading ranges of a log.

use super::{Log, LogError};
use crate::record::Record;

/// How much one read may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    /// Stop before this offset.
    pub until: u64,
    /// At most so many records.
    pub records: usize,
    /// At most so many bytes of frames, but always one record.
    pub bytes: usize,
}

impl ReadLimit {
    /// Up to `until`, at most `bytes`.
    pub fn bytes(until: u64, bytes: usize) -> Self {
        Self { until, records: usize::MAX, bytes }
    }
}

impl Log {
    /// Whether a read from `offset` needs no file.
    pub fn is_in_memory(&self, offset: u64) -> bool {
        offset >= self.end() || self.tail.front().is_some_and(|oldest| offset >= oldest.offset)
    }

    /// The latest time that a record says, milliseconds since the Unix epoch; 0 if none does.
    pub fn newest_ms(&self) -> i64 {
        self.segments.iter().map(|segment| segment.newest_ms).max().unwrap_or(0)
    }

    /// Bytes of records between two offsets, to within a few KiB.
    pub fn bytes_between(&self, from: u64, to: u64) -> u64 {
        let parts = self.segments.iter().map(|segment| {
            let (from, to) = (from.max(segment.base), to.min(segment.end));
            if from < to { segment.place(to).saturating_sub(segment.place(from)) } else { 0 }
        });
        parts.sum()
    }

    /// Reads consecutive records from `from`, which must not be before the start; none if it is at
    /// or past the end.
    pub fn read(&self, from: u64, limit: ReadLimit) -> Result<Vec<Record>, LogError> {
        if from < self.start() {
            return Err(LogError::BeforeStart { offset: from, start: self.start() });
        }
        let until = limit.until.min(self.end());
        let mut records = Vec::new();
        let mut bytes = 0;
        let mut take = |record: Record| {
            bytes += record.frame_bytes();
            let fits =
                records.is_empty() || (bytes <= limit.bytes && records.len() < limit.records);
            if fits && record.offset < until {
                records.push(record);
                return true;
            }
            false
        };
        if let Some(first) = self.tail.front().map(|r| r.offset)
            && from >= first
        {
            for record in self.tail.iter().skip((from - first) as usize) {
                if !take(record.clone()) {
                    break;
                }
            }
            return Ok(records);
        }
        let mut next = from;
        let first = self.segments.partition_point(|s| s.end <= from);
        for segment in &self.segments[first..] {
            let mut more = true;
            segment.read(self.storage.as_ref(), next, |record| {
                more = take(record);
                more
            })?;
            next = segment.end;
            if !more || next >= until {
                break;
            }
        }
        Ok(records)
    }
}
