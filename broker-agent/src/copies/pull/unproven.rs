//! What copies brought and nobody has compared yet.
//!
//! **Invariant:** every record that a copy stored here is in it, until it was read back as it came
//! or found the same as the source's.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::host::RangeDigest;

/// Read back, or compared, at once: so many bytes of frames, give or take a chunk.
pub(super) const STEP_BYTES: u64 = 1 << 20;

/// Consecutive records; the end is after the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Span {
    fn within(self, first: u64, end: u64) -> Option<Self> {
        let span = Self { from: self.from.max(first), to: self.to.min(end) };
        (span.from < span.to).then_some(span)
    }
}

/// Records that this process took in, with what they were then.
#[derive(Debug)]
struct Arrived {
    span: Span,
    crc32c: u32,
    bytes: u64,
}

/// Records to be compared.
#[derive(Debug, Default)]
pub(super) struct Unproven {
    /// In the order of their offsets.
    arrived: VecDeque<Arrived>,
    /// Up to here what arrived is durable.
    stored_to: u64,
    /// Their checksums are not known here: only the source can say what they are.
    unknown: Vec<Span>,
}

impl Unproven {
    /// Records of an earlier try.
    pub(super) fn left_over(from: u64, to: u64) -> Self {
        let unknown = Span { from, to }.within(0, u64::MAX).into_iter().collect();
        Self { unknown, ..Self::default() }
    }

    /// Frames came from the source, intact, and are about to be stored.
    pub(super) fn arrive(&mut self, from: u64, to: u64, frames: &Bytes) {
        let bytes = frames.len() as u64;
        if let Some(last) = self.arrived.back_mut()
            && last.span.to == from
            && last.bytes < STEP_BYTES
        {
            last.span.to = to;
            last.crc32c = crc32c::crc32c_append(last.crc32c, frames);
            last.bytes += bytes;
        } else {
            let crc32c = crc32c::crc32c(frames);
            self.arrived.push_back(Arrived { span: Span { from, to }, crc32c, bytes });
        }
    }

    /// The log is durable up to here.
    pub(super) fn stored(&mut self, to: u64) {
        self.stored_to = to;
    }

    /// What to read back next: whole steps, or whatever there is once nothing more comes.
    pub(super) fn next(&self, nothing_comes: bool) -> Option<Span> {
        let first = self.arrived.front()?;
        let whole = nothing_comes || first.bytes >= STEP_BYTES || self.arrived.len() > 1;
        (whole && first.span.to <= self.stored_to).then_some(first.span)
    }

    /// The span from [`Self::next`] was read; whether it is as it came.
    pub(super) fn read_back(&mut self, span: Span, found: RangeDigest) -> bool {
        let Some(arrived) = self.arrived.front().filter(|arrived| arrived.span == span) else {
            return true;
        };
        let expected =
            RangeDigest { crc32c: arrived.crc32c, bytes: arrived.bytes, to_offset: span.to };
        let same = found == expected;
        if same {
            self.arrived.pop_front();
        }
        same
    }

    /// What is to be compared with the source's.
    pub(super) fn unknown(&self) -> Option<Span> {
        self.unknown.last().copied()
    }

    /// The span from [`Self::unknown`] is the same up to `to`.
    pub(super) fn compared(&mut self, to: u64) {
        if let Some(last) = self.unknown.pop() {
            self.unknown.extend(last.within(to, u64::MAX));
        }
    }

    /// The first record of all.
    pub(super) fn first(&self) -> Option<u64> {
        let arrived = self.arrived.iter().map(|arrived| arrived.span);
        arrived.chain(self.unknown.iter().copied()).map(|span| span.from).min()
    }

    /// The log holds these records and no others: it was opened again, cut, or given up in part.
    pub(super) fn keep(&mut self, first: u64, end: u64) {
        self.stored_to = end;
        let unknown = std::mem::take(&mut self.unknown);
        self.unknown.extend(unknown.into_iter().filter_map(|span| span.within(first, end)));
        let is_whole = |span: Span| span.from >= first && span.to <= end;
        let all = std::mem::take(&mut self.arrived);
        let (whole, cut) = all.into_iter().partition(|arrived| is_whole(arrived.span));
        let cut: VecDeque<Arrived> = cut;
        self.arrived = whole;
        // The checksum of a part is not known.
        self.unknown.extend(cut.into_iter().filter_map(|a| a.span.within(first, end)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(byte: u8, bytes: usize) -> Bytes {
        vec![byte; bytes].into()
    }

    fn digest(pieces: &[Bytes], to_offset: u64) -> RangeDigest {
        let all = pieces.concat();
        RangeDigest { crc32c: crc32c::crc32c(&all), bytes: all.len() as u64, to_offset }
    }

    #[test]
    fn what_arrived_is_read_back_in_steps_once_it_is_stored() {
        let mut unproven = Unproven::default();
        let piece = |byte| frames(byte, 700 << 10);
        unproven.arrive(0, 7, &piece(1));
        unproven.arrive(7, 14, &piece(2));
        unproven.arrive(14, 21, &piece(3));
        assert_eq!(unproven.next(false), None, "nothing is durable");
        unproven.stored(14);
        let first = Span { from: 0, to: 14 };
        assert_eq!(unproven.next(false), Some(first));
        assert!(unproven.read_back(first, digest(&[piece(1), piece(2)], 14)));
        unproven.stored(21);
        assert_eq!(unproven.next(false), None, "more may come");
        let last = Span { from: 14, to: 21 };
        assert_eq!(unproven.next(true), Some(last));
        assert_eq!(unproven.first(), Some(14));
        for wrong in [digest(&[piece(4)], 21), digest(&[piece(3)], 20), digest(&[], 14)] {
            assert!(!unproven.read_back(last, wrong));
        }
        assert!(unproven.read_back(last, digest(&[piece(3)], 21)));
        assert_eq!((unproven.next(true), unproven.first()), (None, None));
    }

    #[test]
    fn what_is_left_of_a_cut_piece_is_compared_with_the_source() {
        let mut unproven = Unproven::left_over(3, 10);
        unproven.arrive(10, 20, &frames(1, 2 << 20));
        unproven.arrive(20, 30, &frames(2, 2 << 20));
        unproven.arrive(30, 40, &frames(3, 2 << 20));
        unproven.keep(5, 25);
        assert_eq!(unproven.next(false), Some(Span { from: 10, to: 20 }));
        assert_eq!(unproven.unknown(), Some(Span { from: 20, to: 25 }));
        unproven.compared(23);
        assert_eq!(unproven.unknown(), Some(Span { from: 23, to: 25 }));
        unproven.compared(25);
        assert_eq!(unproven.unknown(), Some(Span { from: 5, to: 10 }));
        assert_eq!(unproven.first(), Some(5));
        unproven.keep(12, 30);
        assert_eq!(unproven.unknown(), Some(Span { from: 12, to: 20 }));
        assert_eq!(unproven.next(true), None);
        unproven.keep(0, 12);
        assert_eq!((unproven.unknown(), unproven.first()), (None, None));
    }
}
