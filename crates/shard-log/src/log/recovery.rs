//! Opening a log after whatever happened to it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::segment::{self, Damage, Segment};
use super::sync::Syncs;
use super::{Log, LogConfig, LogError, note_term};
use crate::producers::ProducerTable;
use crate::storage::Storage;

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

pub(super) fn open(
    storage: Arc<dyn Storage>,
    config: LogConfig,
) -> Result<(Log, Option<TornTail>), LogError> {
    let listed = storage.list().map_err(LogError::io("list", storage.describe("")))?;
    let bases: Vec<u64> = listed.iter().filter_map(|(name, _)| segment::base_of(name)).collect();
    let mut segments: Vec<Segment> = Vec::with_capacity(bases.len().max(1));
    let (mut terms, mut producers) = (Vec::new(), ProducerTable::default());
    let mut torn = None;
    for (i, base) in bases.iter().enumerate() {
        let expected = segments.last().map_or(0, |s| s.end);
        if *base != expected {
            return Err(gap(storage.as_ref(), *base, expected));
        }
        let scan = Segment::scan(storage.as_ref(), &segment::name_of(*base), *base, |record| {
            note_term(&mut terms, record);
            producers.note(record);
        })?;
        let mut found = scan.segment;
        if let Some(damage) = scan.damage {
            let file = storage.describe(&found.name);
            let is_last = i + 1 == bases.len();
            if !is_last || damage.was_durable {
                let detail = damage.detail.to_owned();
                return Err(LogError::Corrupt { file, byte: damage.at, detail });
            }
            torn = Some(cut(storage.as_ref(), &mut found, damage, file)?);
        }
        segments.push(found);
    }
    if segments.is_empty() {
        segments.push(Segment::create(storage.as_ref(), 0)?);
    }
    let end = segments.last().map_or(0, |s| s.end);
    // What is there now has survived; it is made durable before anything is built upon it.
    if let Some(last) = segments.last() {
        last.file.sync().map_err(LogError::io("sync", storage.describe(&last.name)))?;
    }
    let log = Log {
        storage,
        config,
        segments,
        terms,
        producers,
        tail: VecDeque::new(),
        tail_bytes: 0,
        syncs: Syncs::opened_at(end),
        scratch: Vec::new(),
    };
    Ok((log, torn))
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
