//! Records, the terms they were written in, and their frames on disk.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Bytes of a frame before its payload.
pub const HEADER_BYTES: usize = 57;

/// Longest payload of one record, bytes.
pub const MAX_PAYLOAD_BYTES: usize = 8 << 20;

/// When a record was written: the generation that its leader was named in, and which opening of
/// that generation. A leader that restarts inside its generation opens again under the next
/// number, so that no two different records ever share a term and an offset.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Term {
    /// Generation of the assignment; 0 before the first.
    pub generation: u64,
    /// Counts the openings of that generation by its leader, from 1.
    pub opening: u32,
}

impl Term {
    /// A term.
    pub fn new(generation: u64, opening: u32) -> Self {
        Self { generation, opening }
    }
}

impl std::fmt::Display for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.generation, self.opening)
    }
}

/// How far a log goes. Ordered by which log is more advanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// Term of the last record; the default if there is none.
    pub term: Term,
    /// Offset after the last record.
    pub end: u64,
}

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Written by a producer.
    Data,
    /// The first record of a term; carries no payload and reaches no consumer.
    GenerationStart,
    /// Once committed, the log begins at the offset that is its payload, eight bytes, the lowest
    /// first; reaches no consumer.
    LogStart,
    /// Written by a producer, with a key: the payload is the key's length, two bytes, the lowest
    /// first, the key and the value.
    Keyed,
    /// A producer's record that was written again before its segment was given up: the payload is
    /// the offset that it had, eight bytes, the lowest first, and then as with a key. A length of
    /// 65535 stands for no key.
    Rewritten,
}

impl RecordKind {
    /// By the byte in a frame that stands for it.
    const ALL: [Self; 5] =
        [Self::Data, Self::GenerationStart, Self::LogStart, Self::Keyed, Self::Rewritten];
}

/// One record of a shard's log. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// When it was written.
    pub term: Term,
    /// Its place in the log.
    pub offset: u64,
    /// Milliseconds since the Unix epoch, on the leader's clock.
    pub timestamp_ms: i64,
    /// Who produced it; 0 for a producer that asks for no deduplication.
    pub producer: u64,
    /// The producer's own number of it.
    pub sequence: u64,
    /// What it is.
    pub kind: RecordKind,
    /// The content.
    pub payload: Bytes,
}

impl Record {
    /// Bytes it takes on disk.
    pub fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }

    /// Appends the frame to `out`. `unsynced` is how many records right before this one were not
    /// known to be durable: recovery tells damage from a torn write by it.
    pub(crate) fn encode(&self, unsynced: u32, out: &mut Vec<u8>) {
        let start = out.len();
        let length = (self.frame_bytes() - 8) as u32;
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&length.to_le_bytes());
        out.push(self.kind as u8);
        out.extend_from_slice(&self.term.opening.to_le_bytes());
        out.extend_from_slice(&unsynced.to_le_bytes());
        out.extend_from_slice(&self.term.generation.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.timestamp_ms.to_le_bytes());
        out.extend_from_slice(&self.producer.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.payload);
        let crc = crc32c::crc32c(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A frame read back.
pub(crate) struct Frame {
    pub(crate) record: Record,
    pub(crate) unsynced: u32,
    pub(crate) bytes: usize,
}

/// Why bytes are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadFrame {
    /// The bytes end before the frame does.
    Short,
    /// Length or kind is impossible.
    Malformed,
    /// The checksum does not match.
    Checksum,
}

impl BadFrame {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Short => "the record is cut short",
            Self::Malformed => "the record's header is malformed",
            Self::Checksum => "the record's checksum does not match",
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut le = [0; 4];
    le.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(le)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut le = [0; 8];
    le.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(le)
}

fn kind_at(bytes: &[u8]) -> Option<RecordKind> {
    RecordKind::ALL.get(usize::from(bytes[8])).copied()
}

/// Length in bytes and offset that the header at the start of `bytes` claims, unchecked.
pub(crate) fn peek(bytes: &[u8]) -> Result<(usize, u64), BadFrame> {
    if bytes.len() < HEADER_BYTES {
        return Err(BadFrame::Short);
    }
    let total = u32_at(bytes, 4) as usize + 8;
    if !(HEADER_BYTES..=HEADER_BYTES + MAX_PAYLOAD_BYTES).contains(&total)
        || kind_at(bytes).is_none()
    {
        return Err(BadFrame::Malformed);
    }
    Ok((total, u64_at(bytes, 25)))
}

/// Reads the frame at the start of `bytes`.
pub(crate) fn decode(bytes: &Bytes) -> Result<Frame, BadFrame> {
    let (total, offset) = peek(bytes)?;
    if bytes.len() < total {
        return Err(BadFrame::Short);
    }
    if crc32c::crc32c(&bytes[4..total]) != u32_at(bytes, 0) {
        return Err(BadFrame::Checksum);
    }
    let record = Record {
        term: Term::new(u64_at(bytes, 17), u32_at(bytes, 9)),
        offset,
        timestamp_ms: u64_at(bytes, 33) as i64,
        producer: u64_at(bytes, 41),
        sequence: u64_at(bytes, 49),
        kind: kind_at(bytes).ok_or(BadFrame::Malformed)?,
        payload: bytes.slice(HEADER_BYTES..total),
    };
    Ok(Frame { record, unsynced: u32_at(bytes, 13), bytes: total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_byte_that_stays() {
        let bytes = RecordKind::ALL.map(|kind| kind as u8);
        assert_eq!(bytes, [0, 1, 2, 3, 4]);
        assert_eq!(RecordKind::LogStart as u8, 2);
    }

    #[test]
    fn frames_round_trip_and_every_flipped_bit_is_noticed() {
        let record = Record {
            term: Term::new(7, 2),
            offset: 41,
            timestamp_ms: -5,
            producer: 9,
            sequence: u64::MAX,
            kind: RecordKind::Data,
            payload: Bytes::from_static(b"hello"),
        };
        let mut bytes = Vec::new();
        record.encode(3, &mut bytes);
        assert_eq!(bytes.len(), record.frame_bytes());
        let frame = decode(&Bytes::from(bytes.clone())).ok().unwrap();
        assert_eq!((frame.record, frame.unsynced, frame.bytes), (record, 3, bytes.len()));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&Bytes::from(damaged)).is_err(), "bit {bit}");
        }
    }
}
