//! Compaction: what newer records of the same keys replaced is given up.
//!
//! The leader writes what still counts of the oldest closed segment again, as ordinary records at
//! the end of the log, and then asks that the log begin behind the segment. A record is written
//! again only if it counts when that is appended, with everything before it noted: so no value of
//! a key ever comes after a newer one. A log that holds such a record holds the same before it; it
//! can be broken off anywhere, and whoever leads next begins with what its own log says.

use super::Replica;
use crate::keys::KeyTable;
use crate::log::{LogError, ReadLimit};
use crate::record::Record;

/// Records that came meanwhile are noted along with a step while they are no more than this.
const BEHIND_BYTES: usize = 256 << 10;

/// What a compaction could do for the log of a leader. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compactable {
    /// Of records that were not noted yet.
    pub unread: u64,
    /// These are so few that the log can be compacted; until then the rest is 0.
    pub is_known: bool,
    /// Of closed segments.
    pub closed: u64,
    /// Of these, what newer records replaced, at least.
    pub superseded: u64,
    /// Of records that count in the oldest closed segment.
    pub oldest_live: u64,
}

/// What a step of compaction came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionStep {
    /// Nothing can be done now: another leads, what was asked for is not committed yet, or there is
    /// no room.
    Waits,
    /// So many bytes of the oldest closed segment were looked through, and what counts of them was
    /// written again. It must be committed before the next step.
    Rewrote(u64),
    /// The log is to begin here, as soon as that is committed.
    GaveUp(u64),
}

impl Replica {
    /// What there is to do; `None` while this replica does not serve as leader.
    pub fn compactable(&self) -> Option<Compactable> {
        self.serving_term()?;
        let (start, end) = (self.log.start(), self.log.end());
        let keys = self.current_keys();
        let unread = self.log.bytes_between(keys.map_or(start, KeyTable::next), end);
        let Some(keys) = keys.filter(|_| unread <= BEHIND_BYTES as u64) else {
            return Some(Compactable { unread, ..Compactable::default() });
        };
        let closed = self.log.closed_bytes(start);
        let oldest = self.log.closed_segment(start);
        Some(Compactable {
            unread,
            is_known: true,
            closed,
            superseded: closed.saturating_sub(keys.live_bytes() + unread),
            oldest_live: oldest.map_or(0, |segment| keys.live_bytes_before(segment.end())),
        })
    }

    /// Notes about `max_bytes` of records that were not noted yet, as leader. Returns how many
    /// bytes they are; none at the end, and if nothing can be read.
    pub fn note_keys(&mut self, now: u64, max_bytes: usize) -> u64 {
        self.now = self.now.max(now);
        if self.serving_term().is_none() {
            return 0;
        }
        let noted = self.note_some_keys(max_bytes);
        noted.unwrap_or_else(|error| {
            self.take_failure(Err(error), false);
            0
        })
    }

    /// One step of the compaction of the oldest closed segment: about `max_bytes` of it.
    pub fn compact(&mut self, now: u64, timestamp_ms: i64, max_bytes: usize) -> CompactionStep {
        self.now = self.now.max(now);
        let step = self.compact_some(timestamp_ms, max_bytes);
        step.unwrap_or_else(|error| {
            self.take_failure(Err(error), false);
            CompactionStep::Waits
        })
    }

    /// The table, unless it is of another log than this one is now.
    fn current_keys(&self) -> Option<&KeyTable> {
        let log = &self.log;
        self.keys.as_ref().filter(|keys| {
            keys.next() >= log.start()
                && log.term_before(keys.next()) == Some(keys.last_term())
                && keys.first_live().is_none_or(|first| first >= log.start())
        })
    }

    fn note_some_keys(&mut self, max_bytes: usize) -> Result<u64, LogError> {
        if self.current_keys().is_none() {
            let begins = self.log.beginning();
            self.keys = Some(KeyTable::new(begins.end, begins.term));
        }
        let Some(keys) = &mut self.keys else { return Ok(0) };
        let records = self.log.read(keys.next(), ReadLimit::bytes(u64::MAX, max_bytes))?;
        records.iter().for_each(|record| keys.note(record));
        Ok(bytes_of(&records))
    }

    fn compact_some(
        &mut self,
        timestamp_ms: i64,
        max_bytes: usize,
    ) -> Result<CompactionStep, LogError> {
        let Some(until) = self.compacts_until() else { return Ok(CompactionStep::Waits) };
        self.note_some_keys(BEHIND_BYTES)?;
        let Some(keys) = &mut self.keys else { return Ok(CompactionStep::Waits) };
        if keys.next() < self.log.end() {
            return Ok(CompactionStep::Waits);
        }
        let Some(first) = keys.first_live().filter(|first| *first < until) else {
            self.give_up_before(until, timestamp_ms)?;
            let asked = self.log.asked_start() == until;
            return Ok(if asked { CompactionStep::GaveUp(until) } else { CompactionStep::Waits });
        };
        let records = self.log.read(first, ReadLimit::bytes(until, max_bytes))?;
        let mut kept = Vec::new();
        let mut deleted = Vec::new();
        for record in records.iter().filter(|record| keys.is_live(record.offset)) {
            match record.content().filter(|content| content.is_tombstone()) {
                Some(tombstone) => deleted.extend(tombstone.key.map(|key| (key, record.offset))),
                None => kept.push(record),
            }
        }
        if !kept.is_empty() && !self.rewrite(&kept)? {
            return Ok(CompactionStep::Waits);
        }
        if let Some(keys) = &mut self.keys {
            deleted.iter().for_each(|(key, offset)| keys.forget(key, *offset));
        }
        Ok(CompactionStep::Rewrote(bytes_of(&records)))
    }

    /// Where the oldest closed segment ends, if it may be compacted now.
    fn compacts_until(&self) -> Option<u64> {
        self.serving_term()?;
        let start = self.log.start();
        let end = self.log.closed_segment(start)?.end();
        let is_settled = self.log.asked_start() == start && self.rewritten_to <= self.committed;
        (is_settled && end <= self.committed).then_some(end)
    }

    /// Appends records again; whether they were taken.
    fn rewrite(&mut self, records: &[&Record]) -> Result<bool, LogError> {
        let Ok(term) = self.proposal_term(records.len()) else { return Ok(false) };
        let places = self.log.end()..;
        let again: Option<Vec<Record>> =
            records.iter().zip(places).map(|(record, at)| record.rewritten(term, at)).collect();
        let Some(again) = again else { return Ok(false) };
        self.log.append(&again)?;
        self.rewritten_to = self.log.end();
        if let Some(keys) = &mut self.keys {
            again.iter().for_each(|record| keys.note(record));
        }
        Ok(true)
    }
}

fn bytes_of(records: &[Record]) -> u64 {
    records.iter().map(|record| record.frame_bytes() as u64).sum()
}
