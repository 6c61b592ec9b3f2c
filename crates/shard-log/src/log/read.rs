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
        let first = self.tail.front().map(|r| r.offset);
        let Some(first) = first.filter(|first| from >= (*first).max(self.start())) else {
            return self.read_stored(from, limit);
        };
        let mut taking = Taking::new(limit, self.end());
        let tail = self.tail.iter().skip((from - first) as usize);
        // Up to the first that is too much.
        let _ = tail.cloned().try_for_each(|record| taking.take(record).then_some(()));
        Ok(taking.records)
    }

    /// The same, of what lies in the files, whatever is in memory too.
    pub fn read_stored(&self, from: u64, limit: ReadLimit) -> Result<Vec<Record>, LogError> {
        if from < self.start() {
            return Err(LogError::BeforeStart { offset: from, start: self.start() });
        }
        let mut taking = Taking::new(limit, self.end());
        // Where records are counted it is not known how many bytes they will be.
        let wanted = if limit.records == usize::MAX { limit.bytes as u64 } else { 0 };
        let mut next = from;
        let first = self.segments.partition_point(|s| s.end <= from);
        for segment in &self.segments[first..] {
            let mut more = true;
            segment.read(self.storage.as_ref(), next, wanted, |record| {
                more = taking.take(record);
                more
            })?;
            next = segment.end;
            if !more || next >= taking.limit.until {
                break;
            }
        }
        Ok(taking.records)
    }
}

/// What a read has taken so far.
struct Taking {
    limit: ReadLimit,
    records: Vec<Record>,
    bytes: usize,
}

impl Taking {
    fn new(limit: ReadLimit, end: u64) -> Self {
        let limit = ReadLimit { until: limit.until.min(end), ..limit };
        Self { limit, records: Vec::new(), bytes: 0 }
    }

    /// Takes one more, if it is within the limit.
    fn take(&mut self, record: Record) -> bool {
        self.bytes += record.frame_bytes();
        let ReadLimit { until, records, bytes } = self.limit;
        let fits = self.records.is_empty() || (self.bytes <= bytes && self.records.len() < records);
        let takes = fits && record.offset < until;
        if takes {
            self.records.push(record);
        }
        takes
    }
}
