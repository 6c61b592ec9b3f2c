//! What is known of a closed segment without reading it, kept in a file beside it.
//!
//! **Invariant:** an index that is there and whole describes the segment beside it as it is:
//! before a segment changes, its index is removed, durably. Any other index is not trusted.

use crate::producers::ProducerTable;
use crate::record::Term;
use crate::storage::{PREPARED, Storage};
use crate::varint::{put, take};

use super::segment::{PREFIX_BYTES, Place};

/// Start of every index file: a mark with the layout's version.
const MAGIC: &[u8; 8] = b"EVKIDX\x00\x02";
const CHECKSUM_BYTES: usize = 4;

/// The content of an index file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SegmentIndex {
    /// Offset of the segment's first record.
    pub(super) base: u64,
    /// Offset after its last record.
    pub(super) end: u64,
    /// Length of the segment's file.
    pub(super) bytes: u64,
    /// The latest time of its records, milliseconds since the Unix epoch.
    pub(super) newest_ms: i64,
    /// Some offsets with their places, as [`Segment`](super::segment::Segment) keeps them.
    pub(super) places: Vec<Place>,
    /// First offset in the segment of each run of one term.
    pub(super) runs: Vec<(u64, Term)>,
    /// Records that move the log's start, with where to.
    pub(super) moves: Vec<(u64, u64)>,
    /// What producers had written when the segment ended, in it and before.
    pub(super) producers: ProducerTable,
}

/// Name of the index of the segment that begins at `base`.
pub(super) fn name_of(base: u64) -> String {
    format!("{base:020}.idx")
}

/// Base of the segment that a file is the index of, or was to become it.
pub(super) fn base_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(PREPARED).unwrap_or(name).strip_suffix(".idx")?;
    if digits.len() == 20 { digits.parse().ok() } else { None }
}

impl SegmentIndex {
    /// The bytes of the file, its checksum over all of it included.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for number in [self.base, self.end, self.bytes, self.newest_ms as u64] {
            put(&mut out, number);
        }
        put(&mut out, self.places.len() as u64);
        let mut last = (self.base, 0);
        for (offset, at) in &self.places {
            put(&mut out, offset - last.0);
            put(&mut out, at - last.1);
            last = (*offset, *at);
        }
        put(&mut out, self.runs.len() as u64);
        for (first, term) in &self.runs {
            put(&mut out, first - self.base);
            put(&mut out, term.generation);
            put(&mut out, u64::from(term.opening));
        }
        put(&mut out, self.moves.len() as u64);
        for (offset, start) in &self.moves {
            put(&mut out, self.end - offset);
            put(&mut out, *start);
        }
        self.producers.encode(self.end, &mut out);
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the file back; what is wrong with it otherwise. What producers wrote, which is the
    /// most of it, is left out unless it is asked for.
    fn decode(file: &[u8], with_producers: bool) -> Result<Self, &'static str> {
        let at = file.len().checked_sub(CHECKSUM_BYTES).ok_or("its index is cut short")?;
        let (content, checksum) = file.split_at(at);
        if crc32c::crc32c(content).to_le_bytes() != checksum {
            return Err("the checksum of its index does not match");
        }
        let content = content.strip_prefix(MAGIC).ok_or("its index has an unknown layout")?;
        Self::decode_content(content, with_producers).ok_or("its index is malformed")
    }

    fn decode_content(mut bytes: &[u8], with_producers: bool) -> Option<Self> {
        let bytes = &mut bytes;
        let (base, end) = (take(bytes)?, take(bytes)?);
        let mut index = Self {
            base,
            end,
            bytes: take(bytes)?,
            newest_ms: take(bytes)? as i64,
            ..Self::default()
        };
        let mut last = (base, 0);
        for _ in 0..take(bytes)? {
            last = (take(bytes)?.checked_add(last.0)?, take(bytes)?.checked_add(last.1)?);
            index.places.push(last);
        }
        for _ in 0..take(bytes)? {
            let first = take(bytes)?.checked_add(base)?;
            let term = Term::new(take(bytes)?, take(bytes)?.try_into().ok()?);
            index.runs.push((first, term));
        }
        for _ in 0..take(bytes)? {
            index.moves.push((end.checked_sub(take(bytes)?)?, take(bytes)?));
        }
        if with_producers {
            index.producers = ProducerTable::decode(end, bytes)?;
        }
        let is_whole = bytes.is_empty() || !with_producers;
        (is_whole && index.is_in_order()).then_some(index)
    }

    /// Whether every place and run is in the segment, each behind the one before.
    fn is_in_order(&self) -> bool {
        let places_rise = self.places.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1);
        let runs_rise = self.runs.is_sorted_by(|a, b| a.0 < b.0);
        let starts_right = self.places.first() == Some(&(self.base, PREFIX_BYTES))
            && self.runs.first().is_some_and(|(first, _)| *first == self.base);
        let ends_inside =
            self.places.last().is_some_and(|(o, at)| *o < self.end && *at < self.bytes)
                && self.runs.last().is_some_and(|(first, _)| *first < self.end);
        places_rise && runs_rise && starts_right && ends_inside
    }
}

/// The index of the segment with records from `base` to `end` whose file is `bytes` long; why
/// there is none that can be trusted otherwise.
pub(super) fn load(
    storage: &dyn Storage,
    base: u64,
    end: u64,
    bytes: u64,
    with_producers: bool,
) -> Result<SegmentIndex, &'static str> {
    // What cannot be read is as good as missing: the segment itself is read instead.
    let file = storage.read(&name_of(base)).map_err(|_| "its index cannot be read")?;
    let index = SegmentIndex::decode(&file.ok_or("it has no index yet")?, with_producers)?;
    if (index.base, index.end, index.bytes) == (base, end, bytes) {
        Ok(index)
    } else {
        Err("its index describes another segment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_every_flipped_bit_and_cut_is_noticed() {
        let index = SegmentIndex {
            base: 40,
            end: 99,
            bytes: 70_000,
            newest_ms: -3,
            places: vec![(40, PREFIX_BYTES), (51, 9000), (98, 60_000)],
            runs: vec![(40, Term::new(3, 1)), (77, Term::new(9, 2))],
            moves: vec![(60, 40)],
            producers: ProducerTable::default(),
        };
        let bytes = index.encode();
        assert_eq!(SegmentIndex::decode(&bytes, true), Ok(index.clone()));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentIndex::decode(&damaged, false).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(SegmentIndex::decode(&bytes[..length], false).is_err(), "{length} bytes");
        }
        // Sealed as it should be, and yet it cannot be true.
        let beyond =
            SegmentIndex { places: vec![(40, PREFIX_BYTES), (51, 70_000)], ..index.clone() };
        assert_eq!(SegmentIndex::decode(&beyond.encode(), false), Err("its index is malformed"));
        let nowhere = SegmentIndex { runs: Vec::new(), ..index };
        assert!(SegmentIndex::decode(&nowhere.encode(), false).is_err());
    }

    #[test]
    fn only_names_of_indexes_have_a_base() {
        assert_eq!(base_of(&name_of(7)), Some(7));
        assert_eq!(base_of(&format!("{}.new", name_of(7))), Some(7));
        assert_eq!(base_of("00000000000000000007.log"), None);
        assert_eq!(base_of("7.idx"), None);
    }
}
