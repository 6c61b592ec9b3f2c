//! One file of a log: a header and the frames of consecutive records.

use std::sync::Arc;

use bytes::Bytes;

use super::damage::was_durable;
use super::error::{LogError, is_full};
use super::index::SegmentIndex;
use crate::record::{self, BadFrame, Frame};
use crate::storage::{Storage, StoredFile};

/// Start of every segment file: a mark with the layout's version, then the base offset.
const MAGIC: &[u8; 8] = b"EVKLOG\x00\x01";
pub(super) const PREFIX_BYTES: u64 = 16;
pub(super) const BAD_PREFIX: &str = "the segment's header is malformed";
/// A place is kept for about this many bytes of records.
const PLACE_EVERY_BYTES: u64 = 8 << 10;

/// Read from the file at once.
const READ_MIN_BYTES: u64 = 24 << 10;
const READ_MAX_BYTES: u64 = 256 << 10;

/// An offset and where in the file its record begins.
pub(super) type Place = (u64, u64);

/// A segment, open.
pub(super) struct Segment {
    pub(super) name: String,
    pub(super) file: Arc<dyn StoredFile>,
    /// Offset of its first record.
    pub(super) base: u64,
    /// Offset after its last record.
    pub(super) end: u64,
    /// Bytes in use.
    pub(super) bytes: u64,
    /// No record in it is of a later time; milliseconds since the Unix epoch.
    pub(super) newest_ms: i64,
    /// A file beside it spares reading it when the log is opened.
    pub(super) is_indexed: bool,
    /// Some offsets with their places, the first record's included.
    places: Vec<Place>,
    /// A failed write may have left bytes behind the end.
    dirty_tail: bool,
}

/// What reading a whole segment found.
pub(super) struct Scan {
    pub(super) segment: Segment,
    /// Bytes after the last good record, with what is wrong there.
    pub(super) damage: Option<Damage>,
}

/// Bytes that are no record.
pub(super) struct Damage {
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) detail: &'static str,
    /// It was whole once: this is no torn write.
    pub(super) was_durable: bool,
}

pub(super) fn name_of(base: u64) -> String {
    format!("{base:020}.log")
}

/// What a segment file starts with.
pub(super) fn prefix_of(base: u64) -> [u8; PREFIX_BYTES as usize] {
    let mut prefix = [0; PREFIX_BYTES as usize];
    prefix[..8].copy_from_slice(MAGIC);
    prefix[8..].copy_from_slice(&base.to_le_bytes());
    prefix
}

pub(super) fn base_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    if digits.len() == 20 { digits.parse().ok() } else { None }
}

impl Segment {
    /// Makes an empty one.
    pub(super) fn create(storage: &dyn Storage, base: u64) -> Result<Self, LogError> {
        let name = name_of(base);
        let describe = || storage.describe(&name);
        let file = storage.open(&name, true).map_err(|e| write_error(e, describe(), 0))?;
        let prefix = prefix_of(base);
        let written = file.truncate(0).and_then(|()| file.write_at(0, &prefix));
        written.map_err(|e| write_error(e, describe(), prefix.len()))?;
        Ok(Self {
            name,
            file,
            base,
            end: base,
            bytes: PREFIX_BYTES,
            newest_ms: 0,
            is_indexed: false,
            places: Vec::new(),
            dirty_tail: false,
        })
    }

    /// Reads all of it, telling `each` every good record.
    pub(super) fn scan(
        storage: &dyn Storage,
        name: &str,
        base: u64,
        mut each: impl FnMut(&record::Record),
    ) -> Result<Scan, LogError> {
        let describe = || storage.describe(name);
        let (file, length) = open_file(storage, name)?;
        let mut bytes = vec![0; length as usize];
        file.read_at(0, &mut bytes).map_err(LogError::io("read", describe()))?;
        let bytes = Bytes::from(bytes);
        let mut segment = Self {
            name: name.to_owned(),
            file,
            base,
            end: base,
            bytes: PREFIX_BYTES,
            newest_ms: 0,
            is_indexed: false,
            places: Vec::new(),
            dirty_tail: false,
        };
        if length < PREFIX_BYTES || bytes[..16] != prefix_of(base) {
            segment.bytes = 0;
            let detail = BAD_PREFIX;
            // A crash while the file was being made leaves a short header and nothing behind it.
            let was_durable = length > PREFIX_BYTES;
            let damage = Damage { at: 0, bytes: length, detail, was_durable };
            return Ok(Scan { segment, damage: Some(damage) });
        }
        let mut damage = None;
        while segment.bytes < length {
            let at = segment.bytes as usize;
            match next_frame(&bytes.slice(at..), segment.end) {
                Ok(frame) => {
                    segment.note(frame.bytes as u64, frame.record.timestamp_ms);
                    each(&frame.record);
                }
                Err(bad) => {
                    damage = Some(Damage {
                        at: at as u64,
                        bytes: length - at as u64,
                        detail: bad.as_str(),
                        was_durable: was_durable(&bytes, at, segment.end, bad),
                    });
                    break;
                }
            }
        }
        Ok(Scan { segment, damage })
    }

    /// One that its index describes; nothing of it is read.
    pub(super) fn from_index(name: String, file: Arc<dyn StoredFile>, index: SegmentIndex) -> Self {
        let SegmentIndex { base, end, bytes, newest_ms, places, .. } = index;
        Self {
            name,
            file,
            base,
            end,
            bytes,
            newest_ms,
            is_indexed: true,
            places,
            dirty_tail: false,
        }
    }

    /// Counts one more record of that many bytes.
    fn note(&mut self, frame_bytes: u64, timestamp_ms: i64) {
        note_place(&mut self.places, (self.end, self.bytes));
        self.end += 1;
        self.bytes += frame_bytes;
        self.newest_ms = self.newest_ms.max(timestamp_ms);
    }

    /// Cuts off what a failed write may have left behind the end.
    pub(super) fn clean_tail(&mut self, storage: &dyn Storage) -> Result<(), LogError> {
        if self.dirty_tail {
            let cut = self.file.truncate(self.bytes);
            cut.map_err(LogError::io("truncate", storage.describe(&self.name)))?;
            self.dirty_tail = false;
        }
        Ok(())
    }

    /// Writes the frames of `records` behind the last one: all or, after an error, none.
    pub(super) fn append(
        &mut self,
        storage: &dyn Storage,
        frames: &[u8],
        records: &[record::Record],
    ) -> Result<(), LogError> {
        self.clean_tail(storage)?;
        if let Err(e) = self.file.write_at(self.bytes, frames) {
            self.dirty_tail = self.file.truncate(self.bytes).is_err();
            return Err(write_error(e, storage.describe(&self.name), frames.len()));
        }
        for record in records {
            self.note(record.frame_bytes() as u64, record.timestamp_ms);
        }
        Ok(())
    }

    /// Reads records from `from`, handing each to `take` until it says no.
    pub(super) fn read(
        &self,
        storage: &dyn Storage,
        from: u64,
        wanted: u64,
        mut take: impl FnMut(record::Record) -> bool,
    ) -> Result<(), LogError> {
        let (mut offset, mut at) = self.place_before(from);
        while offset < self.end {
            let chunk = self.chunk(storage, at, wanted)?;
            let mut used = 0;
            while offset < self.end {
                match next_frame(&chunk.slice(used..), offset) {
                    Ok(frame) => {
                        used += frame.bytes;
                        offset += 1;
                        if frame.record.offset >= from && !take(frame.record) {
                            return Ok(());
                        }
                    }
                    Err(BadFrame::Short) if used > 0 => break,
                    Err(bad) => return Err(self.damaged(storage, at + used as u64, bad)),
                }
            }
            at += used as u64;
        }
        Ok(())
    }

    /// A piece of the file from `at` that holds at least one whole frame, of so many bytes if it can.
    fn chunk(&self, storage: &dyn Storage, at: u64, wanted: u64) -> Result<Bytes, LogError> {
        let read = |wanted: u64| {
            let mut bytes = vec![0; wanted.min(self.bytes - at) as usize];
            let describe = || storage.describe(&self.name);
            self.file.read_at(at, &mut bytes).map_err(LogError::io("read", describe()))?;
            Ok(Bytes::from(bytes))
        };
        let chunk = read(wanted.clamp(READ_MIN_BYTES, READ_MAX_BYTES) + PLACE_EVERY_BYTES)?;
        match record::peek(&chunk) {
            Ok((total, _)) if total > chunk.len() => read(total as u64),
            _ => Ok(chunk),
        }
    }

    fn damaged(&self, storage: &dyn Storage, byte: u64, bad: BadFrame) -> LogError {
        let file = storage.describe(&self.name);
        LogError::Corrupt { file, byte, detail: bad.as_str().to_owned() }
    }

    /// The noted place at or before an offset.
    fn place_before(&self, offset: u64) -> Place {
        let after = self.places.partition_point(|(placed, _)| *placed <= offset);
        after.checked_sub(1).map_or((self.base, PREFIX_BYTES), |i| self.places[i])
    }

    /// About where in the file an offset is.
    pub(super) fn place(&self, offset: u64) -> u64 {
        if offset >= self.end { self.bytes } else { self.place_before(offset).1 }
    }

    /// Drops every record from `offset` on.
    pub(super) fn truncate(&mut self, storage: &dyn Storage, offset: u64) -> Result<(), LogError> {
        let (mut kept, mut bytes) = self.place_before(offset);
        let chunk_bytes = self.bytes - bytes;
        if kept < offset {
            let mut head = vec![0; chunk_bytes as usize];
            let describe = || storage.describe(&self.name);
            self.file.read_at(bytes, &mut head).map_err(LogError::io("read", describe()))?;
            let head = Bytes::from(head);
            let mut used = 0;
            while kept < offset {
                let frame = next_frame(&head.slice(used..), kept)
                    .map_err(|bad| self.damaged(storage, bytes + used as u64, bad))?;
                used += frame.bytes;
                kept += 1;
            }
            bytes += used as u64;
        }
        let cut = self.file.truncate(bytes);
        cut.map_err(LogError::io("truncate", storage.describe(&self.name)))?;
        self.places.retain(|(placed, _)| *placed < offset);
        self.end = offset;
        self.bytes = bytes;
        self.dirty_tail = false;
        Ok(())
    }
}

/// Notes the place of the next record if the last one noted is far enough behind.
pub(super) fn note_place(places: &mut Vec<Place>, next: Place) {
    if places.last().is_none_or(|(_, at)| next.1 - at >= PLACE_EVERY_BYTES) {
        places.push(next);
    }
}

/// Opens a file that is there; with its length.
pub(super) fn open_file(
    storage: &dyn Storage,
    name: &str,
) -> Result<(Arc<dyn StoredFile>, u64), LogError> {
    let describe = || storage.describe(name);
    let file = storage.open(name, false).map_err(LogError::io("open", describe()))?;
    let length = file.len().map_err(LogError::io("read", describe()))?;
    Ok((file, length))
}

fn write_error(e: std::io::Error, file: String, bytes: usize) -> LogError {
    if is_full(&e) {
        return LogError::DiskFull { file, bytes };
    }
    LogError::Io { action: "write", file, source: e }
}

pub(super) fn next_frame(bytes: &Bytes, offset: u64) -> Result<Frame, BadFrame> {
    let frame = record::decode(bytes)?;
    if frame.record.offset == offset { Ok(frame) } else { Err(BadFrame::Malformed) }
}
