//! Which records of a log still count: the newest of each key, and those without one.

use std::collections::BTreeMap;

use crate::content::Content;
use crate::record::{Record, Term};

/// Learnt by reading a log from its start, and the same for every log with the same records.
///
/// Keys are kept as they are: were they kept as hashes, two that meet would cost a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyTable {
    /// Every record from the log's start up to here was noted.
    next: u64,
    /// Term of the record before.
    last_term: Term,
    newest: BTreeMap<Box<[u8]>, u64>,
    /// What counts, with the bytes of its frames.
    live: BTreeMap<u64, u64>,
    live_bytes: u64,
}

impl KeyTable {
    /// Of a log that begins at `start`, after a record of the term `before`.
    pub(crate) fn new(start: u64, before: Term) -> Self {
        Self {
            next: start,
            last_term: before,
            newest: BTreeMap::new(),
            live: BTreeMap::new(),
            live_bytes: 0,
        }
    }

    /// Offset of the first record that was not noted yet.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Term of the record before that: a log that has it there has all that was noted.
    pub(crate) fn last_term(&self) -> Term {
        self.last_term
    }

    /// Bytes of the records that count.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes of those before `offset`.
    pub(crate) fn live_bytes_before(&self, offset: u64) -> u64 {
        self.live.range(..offset).map(|(_, bytes)| bytes).sum()
    }

    /// The first record that counts.
    pub(crate) fn first_live(&self) -> Option<u64> {
        self.live.first_key_value().map(|(offset, _)| *offset)
    }

    /// Whether the record at `offset` counts.
    pub(crate) fn is_live(&self, offset: u64) -> bool {
        self.live.contains_key(&offset)
    }

    /// Takes the next record of the log.
    pub(crate) fn note(&mut self, record: &Record) {
        (self.next, self.last_term) = (record.offset + 1, record.term);
        let Some(Content { key, rewrites, .. }) = record.content() else { return };
        if let Some(before) = rewrites {
            self.bury(before);
        }
        if let Some(key) = key {
            let known = self.newest.get_mut(key.as_ref());
            let before = known.map(|newest| std::mem::replace(newest, record.offset));
            match before {
                Some(before) => self.bury(before),
                None => drop(self.newest.insert(key.as_ref().into(), record.offset)),
            }
        }
        let bytes = record.frame_bytes() as u64;
        self.live.insert(record.offset, bytes);
        self.live_bytes += bytes;
    }

    /// The record at `offset` does not count any more.
    fn bury(&mut self, offset: u64) {
        self.live_bytes -= self.live.remove(&offset).unwrap_or(0);
    }

    /// Forgets a key whose newest record deletes it, when nothing of it is left before that.
    pub(crate) fn forget(&mut self, key: &[u8], tombstone: u64) {
        self.newest.remove(key);
        self.bury(tombstone);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::content::keyed;

    fn record(offset: u64, key: Option<&'static str>, value: &'static str) -> Record {
        let key = key.map(|key| Bytes::from_static(key.as_bytes()));
        let (kind, payload) = keyed(key.as_ref(), Bytes::from_static(value.as_bytes()));
        let term = Term::new(1, 1);
        Record { term, offset, timestamp_ms: 0, producer: 0, sequence: 0, kind, payload }
    }

    #[test]
    fn the_newest_of_each_key_counts_and_everything_without_one() {
        let mut table = KeyTable::new(10, Term::default());
        let records =
            [record(10, Some("k"), "one"), record(11, None, "two"), record(12, Some("k"), "three")];
        for record in &records {
            table.note(record);
        }
        let live = |table: &KeyTable| table.live.keys().copied().collect::<Vec<_>>();
        assert_eq!((live(&table), table.next()), (vec![11, 12], 13));
        assert_eq!(table.live_bytes_before(12), records[1].frame_bytes() as u64);
        for (i, offset) in [(2, 13), (1, 14)] {
            table.note(&records[i].rewritten(Term::new(2, 1), offset).unwrap());
        }
        assert_eq!((live(&table), table.last_term()), (vec![13, 14], Term::new(2, 1)));
        table.note(&record(15, Some("k"), ""));
        assert_eq!((live(&table), table.first_live()), (vec![14, 15], Some(14)));
        table.forget(b"k", 15);
        assert!(table.newest.is_empty() && !table.is_live(15));
        assert_eq!(table.live_bytes(), table.live_bytes_before(100));
    }
}
