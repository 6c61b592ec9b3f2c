//! How large the pieces are in which a copy moves.
//!
//! A bucket lets a piece begin while anything is left of a second, so a piece is what passes over
//! the limit at most: it is small where the rate is low.

/// At the same rate larger chunks hurt the tail latency of other requests.
pub const CHUNK_MAX_BYTES: usize = 256 << 10;
/// Smaller ones cost more than they spare.
pub const CHUNK_MIN_BYTES: usize = 16 << 10;

/// A piece is what the rate carries in so many parts of a second.
const PIECES_A_SECOND: u64 = 256;

/// What a source may be told to send at once: what the rate carries in so many parts of a second,
/// so that a source that could not send for a while does not flood its destination then.
const WINDOWS_A_SECOND: u64 = 20;
const WINDOW_MIN_BYTES: u64 = 64 << 10;
/// Enough for a link of 1 Gbit/s over 8 ms.
const WINDOW_MAX_BYTES: u64 = 1 << 20;

/// Bytes of one chunk, and of one step of credit, at an end with so many bytes per second.
pub fn chunk_bytes(bytes_per_second: u64) -> usize {
    let piece = usize::try_from(bytes_per_second / PIECES_A_SECOND).unwrap_or(CHUNK_MAX_BYTES);
    piece.clamp(CHUNK_MIN_BYTES, CHUNK_MAX_BYTES)
}

/// Bytes that may be with the source at once, into an end with so many bytes per second.
pub fn window(bytes_per_second: u64) -> u64 {
    (bytes_per_second / WINDOWS_A_SECOND).clamp(WINDOW_MIN_BYTES, WINDOW_MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_the_rate_within_their_bounds() {
        let all = |rate| (chunk_bytes(rate), window(rate));
        assert_eq!(all(0), (16 << 10, 64 << 10));
        assert_eq!(all(8_000_000), (31_250, 400_000));
        assert_eq!(all(16_777_216), (64 << 10, 838_860));
        assert_eq!(all(u64::MAX), (256 << 10, 1 << 20));
    }
}
