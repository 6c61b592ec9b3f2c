//! One chunk of a copy, sealed by a checksum that covers its place.

use bytes::Bytes;
use evenkeel_proto::copy::Chunk;

/// CRC32C of the first offset (little endian) and the frames: bytes that arrive intact in the
/// wrong place fail as well.
pub fn checksum(first_offset: u64, frames: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&first_offset.to_le_bytes()), frames)
}

/// Where a source stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Its committed end.
    pub committed: u64,
    /// Bytes to come after the chunk.
    pub bytes_remaining: u64,
}

/// Seals frames.
pub fn seal(first_offset: u64, end_offset: u64, frames: Bytes, standing: Standing) -> Chunk {
    Chunk {
        crc32c: checksum(first_offset, &frames),
        first_offset,
        end_offset,
        level: end_offset >= standing.committed,
        committed: standing.committed,
        bytes_remaining: standing.bytes_remaining,
        frames,
    }
}

/// Whether a chunk is what its source sealed.
pub fn is_intact(chunk: &Chunk) -> bool {
    chunk.crc32c == checksum(chunk.first_offset, &chunk.frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_or_place_is_noticed() {
        let standing = Standing { committed: 9, bytes_remaining: 0 };
        let sealed = seal(5, 9, Bytes::from_static(b"frames"), standing);
        assert!(is_intact(&sealed) && sealed.level);
        let mut moved = sealed.clone();
        moved.first_offset = 6;
        assert!(!is_intact(&moved));
        let mut changed = sealed;
        changed.frames = Bytes::from_static(b"Frames");
        assert!(!is_intact(&changed));
        let behind = seal(5, 8, Bytes::new(), standing);
        assert!(!behind.level);
    }
}
