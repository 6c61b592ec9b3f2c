//! What each producer wrote last, so that a repeated record is written once.

use std::collections::BTreeMap;

use crate::record::{Record, RecordKind};
use crate::varint::{put, take};

/// Producers remembered per shard; the one that wrote least recently is forgotten first.
pub const MAX_PRODUCERS: usize = 1024;

/// Sequences remembered per producer; also how far behind its newest one a repeat may come.
pub const MAX_SEQUENCES: usize = 256;

/// What is known about a record that a producer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Nothing: it is to be written.
    New,
    /// It was written, at this offset.
    At(u64),
    /// It is too far behind its producer's newest record to tell.
    TooOld,
}

/// Rebuilt from the log when it is opened, and the same on every replica of the same log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProducerTable {
    producers: BTreeMap<u64, Producer>,
    /// Last offset of each producer, to find the one to forget.
    by_last_offset: BTreeMap<u64, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Producer {
    /// Offset by sequence.
    written: BTreeMap<u64, u64>,
    last_offset: u64,
    /// Some of its sequences were forgotten: those below the oldest known one may be written.
    forgot: bool,
}

impl ProducerTable {
    /// Whether this producer's record with this sequence is in the log.
    pub fn look_up(&self, producer: u64, sequence: u64) -> Known {
        if producer == 0 {
            return Known::New;
        }
        let Some(known) = self.producers.get(&producer) else { return Known::New };
        if let Some(offset) = known.written.get(&sequence) {
            return Known::At(*offset);
        }
        let oldest = known.written.first_key_value().map(|(s, _)| *s);
        match oldest {
            Some(oldest) if known.forgot && sequence < oldest => Known::TooOld,
            _ => Known::New,
        }
    }

    pub(crate) fn note(&mut self, record: &Record) {
        // What was written again is known from where it was first.
        if record.producer == 0 || record.kind == RecordKind::Rewritten {
            return;
        }
        let known = self.producers.entry(record.producer).or_default();
        self.by_last_offset.remove(&known.last_offset);
        known.last_offset = record.offset;
        known.written.insert(record.sequence, record.offset);
        if known.written.len() > MAX_SEQUENCES {
            known.written.pop_first();
            known.forgot = true;
        }
        self.by_last_offset.insert(record.offset, record.producer);
        if self.producers.len() > MAX_PRODUCERS
            && let Some((_, idle)) = self.by_last_offset.pop_first()
        {
            self.producers.remove(&idle);
        }
    }

    pub(crate) fn truncate_from(&mut self, end: u64) {
        let touched: Vec<u64> = self.by_last_offset.range(end..).map(|(_, p)| *p).collect();
        for producer in touched {
            let Some(known) = self.producers.get_mut(&producer) else { continue };
            self.by_last_offset.remove(&known.last_offset);
            known.written.retain(|_, offset| *offset < end);
            match known.written.values().max().copied() {
                Some(last) => {
                    known.last_offset = last;
                    self.by_last_offset.insert(last, producer);
                }
                None => {
                    self.producers.remove(&producer);
                }
            }
        }
    }
}

impl ProducerTable {
    /// Appends the table as it is when the log ends at `end`.
    pub(crate) fn encode(&self, end: u64, out: &mut Vec<u8>) {
        put(out, self.producers.len() as u64);
        for (producer, known) in &self.producers {
            put(out, *producer);
            put(out, u64::from(known.forgot));
            put(out, end - known.last_offset);
            put(out, known.written.len() as u64);
            let mut last = 0;
            for (sequence, offset) in &known.written {
                put(out, sequence - last);
                put(out, end - offset);
                last = *sequence;
            }
        }
    }

    /// Takes a table off the front of `bytes`; `None` if there is none.
    pub(crate) fn decode(end: u64, bytes: &mut &[u8]) -> Option<Self> {
        let mut table = Self::default();
        for _ in 0..take(bytes)? {
            let producer = take(bytes)?;
            let forgot = take(bytes)? != 0;
            let last_offset = end.checked_sub(take(bytes)?)?;
            let mut known = Producer { written: BTreeMap::new(), last_offset, forgot };
            let mut last = 0_u64;
            for _ in 0..take(bytes)? {
                last = last.checked_add(take(bytes)?)?;
                known.written.insert(last, end.checked_sub(take(bytes)?)?);
            }
            table.by_last_offset.insert(last_offset, producer);
            table.producers.insert(producer, known);
        }
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::record::Term;

    fn record(offset: u64, producer: u64, sequence: u64) -> Record {
        Record {
            term: Term::new(1, 1),
            offset,
            timestamp_ms: 0,
            producer,
            sequence,
            kind: RecordKind::Data,
            payload: Bytes::new(),
        }
    }

    #[test]
    fn repeats_are_known_until_they_are_truncated_or_forgotten() {
        let mut table = ProducerTable::default();
        table.note(&record(0, 7, 1));
        table.note(&record(1, 7, 2));
        table.note(&record(2, 0, 2));
        assert_eq!(table.look_up(7, 2), Known::At(1));
        assert_eq!(table.look_up(7, 3), Known::New);
        assert_eq!(table.look_up(0, 2), Known::New);
        table.truncate_from(1);
        assert_eq!(table.look_up(7, 2), Known::New);
        assert_eq!(table.look_up(7, 1), Known::At(0));
        for i in 0..MAX_SEQUENCES as u64 {
            table.note(&record(10 + i, 7, 10 + i));
        }
        assert_eq!(table.look_up(7, 1), Known::TooOld);
        assert_eq!(table.look_up(7, 10), Known::At(10));
        for producer in 0..MAX_PRODUCERS as u64 {
            table.note(&record(1000 + producer, 100 + producer, 1));
        }
        assert_eq!(table.look_up(7, 10), Known::New);
        assert_eq!(table.look_up(100, 1), Known::At(1000));
        let mut bytes = Vec::new();
        table.encode(5000, &mut bytes);
        assert_eq!(ProducerTable::decode(5000, &mut bytes.as_slice()), Some(table));
        assert_eq!(ProducerTable::decode(5000, &mut &bytes[..bytes.len() - 1]), None);
    }
}
