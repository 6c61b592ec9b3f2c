//! Records on the wire: their frames, one after the other, the same bytes from every replica.

use bytes::Bytes;

use crate::record::{self, Record};

/// Bytes that are not whole frames of consecutive records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("frames cannot be read at byte {byte}: {detail}")]
pub struct FrameError {
    /// Where.
    pub byte: usize,
    /// What is wrong.
    pub detail: &'static str,
}

/// Encodes records.
pub fn encode_frames(records: &[Record]) -> Bytes {
    let mut out = Vec::with_capacity(records.iter().map(Record::frame_bytes).sum());
    for record in records {
        record.encode(0, &mut out);
    }
    out.into()
}

/// Decodes consecutive records; their checksums are checked, their payloads share `frames`.
pub fn decode_frames(frames: &Bytes) -> Result<Vec<Record>, FrameError> {
    let mut records: Vec<Record> = Vec::new();
    let mut byte = 0;
    while byte < frames.len() {
        let frame = record::decode(&frames.slice(byte..))
            .map_err(|bad| FrameError { byte, detail: bad.as_str() })?;
        if records.last().is_some_and(|last| last.offset + 1 != frame.record.offset) {
            return Err(FrameError { byte, detail: "the record does not follow the one before" });
        }
        byte += frame.bytes;
        records.push(frame.record);
    }
    Ok(records)
}
