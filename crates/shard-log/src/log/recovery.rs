//! Opening a log after whatever happened to it.
//!
//! A closed segment that has an index is not read. Its records are checked when they are, and by
//! the scrub.

use std::collections::VecDeque;
use std::sync::Arc;

use super::index::{self, SegmentIndex};
use super::segment::{self, Damage, Segment};
use super::start::{self, LogStart, RemovedSegment, moved_by};
use super::sync::Syncs;
use super::{Log, LogConfig, LogError, SUSPECT, note_term};
use crate::producers::ProducerTable;
use crate::record::Term;
use crate::storage::{Storage, StoredFile};

/// The end of the last segment that a crash left half written, and that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub file: String,
    /// Where the first incomplete record began.
    pub byte: u64,
    /// How much was cut off.
    pub bytes: u64,
    /// What was wrong.
    pub detail: String,
}

impl std::fmt::Display for TornTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, byte, bytes, detail } = self;
        write!(f, "cut {bytes} bytes of a torn write off {file} at byte {byte}: {detail}")
    }
}

/// A closed segment that was read in full, because no index of it can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// The file.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// Why.
    pub why: &'static str,
}

/// What has been found of a log so far.
#[derive(Default)]
struct Found {
    segments: Vec<Segment>,
    terms: Vec<(u64, Term)>,
    moves: Vec<(u64, u64)>,
    producers: ProducerTable,
    scanned: Vec<Scanned>,
    torn: Option<TornTail>,
}

/// A closed segment that was not looked into yet.
struct Closed {
    file: Arc<dyn StoredFile>,
    bytes: u64,
    /// Its index, or why it is to be read.
    index: Result<SegmentIndex, &'static str>,
}

pub(super) fn open(
    storage: Arc<dyn Storage>,
    config: LogConfig,
) -> Result<(Log, Option<TornTail>), LogError> {
    let listed = storage.list().map_err(LogError::io("list", storage.describe("")))?;
    let all: Vec<u64> = listed.iter().filter_map(|(name, _)| segment::base_of(name)).collect();
    let start = LogStart::load(&storage)?;
    // Those that end before the start, though the crash may have come before they were removed.
    let before = all.windows(2).take_while(|bases| bases[1] <= start.offset).count();
    let (before, bases) = all.split_at(before);
    sweep_indexes(storage.as_ref(), &listed, bases)?;
    let mut removed = Vec::with_capacity(before.len());
    for base in before {
        let (file, bytes) = segment::open_file(storage.as_ref(), &segment::name_of(*base))?;
        removed.push(RemovedSegment::new(file, *base, bytes));
    }
    let is_suspect = listed.iter().any(|(name, _)| name == SUSPECT);
    let mut closed = closed_segments(storage.as_ref(), bases, is_suspect)?.into_iter();
    let mut found = Found::default();
    for base in bases {
        let expected = found.segments.last().map_or(start.offset.min(*base), |s| s.end);
        if *base != expected {
            return Err(gap(storage.as_ref(), *base, expected));
        }
        found.add(storage.as_ref(), *base, closed.next())?;
    }
    if is_suspect {
        // All is as it was written; what was found is mended, or was not on the disk.
        storage.remove(SUSPECT).map_err(LogError::io("remove", storage.describe(SUSPECT)))?;
    }
    let Found { mut segments, mut terms, mut moves, producers, scanned, torn, .. } = found;
    // A log that was to begin anew and did not come to it.
    let is_before = |s: &mut Segment| s.end < start.offset;
    removed.extend(segments.extract_if(.., is_before).map(RemovedSegment::from));
    if segments.is_empty() {
        segments.push(Segment::create(storage.as_ref(), start.offset)?);
    }
    moves.retain(|(_, to)| *to > start.offset);
    let end = segments.last().map_or(0, |s| s.end);
    start::clip(&mut terms, start, end);
    // What is there now has survived; it is made durable before anything is built upon it.
    if let Some(last) = segments.last() {
        last.file.sync().map_err(LogError::io("sync", storage.describe(&last.name)))?;
    }
    let log = Log {
        storage,
        config,
        segments,
        start,
        removed,
        moves,
        terms,
        producers,
        tail: VecDeque::new(),
        tail_bytes: 0,
        syncs: Syncs::opened_at(end),
        truncations: 0,
        scanned,
        scratch: Vec::new(),
    };
    Ok((log, torn))
}

/// Removes what is no index of a closed segment: one that was not finished, and that of a segment
/// which is to be written to again.
fn sweep_indexes(
    storage: &dyn Storage,
    listed: &[(String, u64)],
    bases: &[u64],
) -> Result<(), LogError> {
    let closed = &bases[..bases.len().saturating_sub(1)];
    for (name, _) in listed {
        let Some(base) = index::base_of(name) else { continue };
        if *name != index::name_of(base) || closed.binary_search(&base).is_err() {
            storage.remove(name).map_err(LogError::io("remove", storage.describe(name)))?;
        }
    }
    Ok(())
}

/// The segments but the last, with the indexes that can be trusted: none if damage was found in the
/// log before. What producers wrote is taken from an index only where the next segment is read.
fn closed_segments(
    storage: &dyn Storage,
    bases: &[u64],
    is_suspect: bool,
) -> Result<Vec<Closed>, LogError> {
    let mut next_is_read = true;
    let mut closed = Vec::with_capacity(bases.len());
    for pair in bases.windows(2).rev() {
        let (file, bytes) = segment::open_file(storage, &segment::name_of(pair[0]))?;
        let index = match is_suspect {
            true => Err("damage was found in this log before"),
            false => index::load(storage, pair[0], pair[1], bytes, next_is_read),
        };
        next_is_read = index.is_err();
        closed.push(Closed { file, bytes, index });
    }
    closed.reverse();
    Ok(closed)
}

impl Found {
    /// Adds the segment that begins at `base`; the last one is not closed.
    fn add(
        &mut self,
        storage: &dyn Storage,
        base: u64,
        closed: Option<Closed>,
    ) -> Result<(), LogError> {
        let name = segment::name_of(base);
        let is_closed = closed.is_some();
        match closed {
            Some(Closed { file, index: Ok(index), .. }) => {
                self.take(name, file, index);
                return Ok(());
            }
            Some(Closed { bytes, index: Err(why), .. }) => {
                let file = storage.describe(&name);
                self.scanned.push(Scanned { file, bytes, why });
            }
            None => {}
        }
        let Self { terms, producers, moves, .. } = self;
        let scan = Segment::scan(storage, &name, base, |record| {
            note_term(terms, record);
            moves.extend(moved_by(record).map(|to| (record.offset, to)));
            producers.note(record);
        })?;
        let mut segment = scan.segment;
        if let Some(damage) = scan.damage {
            let file = storage.describe(&name);
            if is_closed || damage.was_durable {
                let detail = damage.detail.to_owned();
                return Err(LogError::Corrupt { file, byte: damage.at, detail });
            }
            self.torn = Some(cut(storage, &mut segment, damage, file)?);
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Takes an index's word for its segment.
    fn take(&mut self, name: String, file: Arc<dyn StoredFile>, mut index: SegmentIndex) {
        for (first, term) in &index.runs {
            if self.terms.last().is_none_or(|(_, last)| last != term) {
                self.terms.push((*first, *term));
            }
        }
        self.moves.append(&mut index.moves);
        self.producers = std::mem::take(&mut index.producers);
        self.segments.push(Segment::from_index(name, file, index));
    }
}

fn gap(storage: &dyn Storage, base: u64, expected: u64) -> LogError {
    LogError::Corrupt {
        file: storage.describe(&segment::name_of(base)),
        byte: 0,
        detail: format!("it begins at record {base}, but the records before it end at {expected}"),
    }
}

fn cut(
    storage: &dyn Storage,
    found: &mut Segment,
    damage: Damage,
    file: String,
) -> Result<TornTail, LogError> {
    if damage.at == 0 {
        *found = Segment::create(storage, found.base)?;
    } else {
        found.file.truncate(damage.at).map_err(LogError::io("truncate", file.clone()))?;
    }
    let Damage { at, bytes, detail, .. } = damage;
    Ok(TornTail { file, byte: at, bytes, detail: detail.to_owned() })
}
