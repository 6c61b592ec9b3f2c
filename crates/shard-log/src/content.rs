//! What a client's record says: its value and, if it has one, the key that the value is of.
//!
//! A record with a key carries it before the value. One that was written again says too which
//! record it repeats, and may have no key.

use bytes::Bytes;

use crate::record::{MAX_PAYLOAD_BYTES, Record, RecordKind, Term};

/// Longest key of a record, bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// Most bytes of what precedes the value, besides the key.
const PREFIX_BYTES: usize = 10;

/// Longest key and value together, bytes: written again they must fit too.
pub(crate) const MAX_KEYED_BYTES: usize = MAX_PAYLOAD_BYTES - PREFIX_BYTES;

/// Stands for the length of a key that is not there.
const NO_KEY: u16 = u16::MAX;

/// The parts of a client's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// What the value is of.
    pub key: Option<Bytes>,
    /// The client's bytes. With a key and none, the key is deleted.
    pub value: Bytes,
    /// Offset of the record that this one repeats, from before a compaction.
    pub rewrites: Option<u64>,
}

impl Content {
    /// Whether it only says that its key is deleted.
    pub fn is_tombstone(&self) -> bool {
        self.key.is_some() && self.value.is_empty()
    }
}

/// The kind and the payload of a record with this key and value.
pub(crate) fn keyed(key: Option<&Bytes>, value: Bytes) -> (RecordKind, Bytes) {
    let Some(key) = key else { return (RecordKind::Data, value) };
    let mut payload = Vec::with_capacity(2 + key.len() + value.len());
    put(&mut payload, Some(key), &value);
    (RecordKind::Keyed, payload.into())
}

fn put(payload: &mut Vec<u8>, key: Option<&Bytes>, value: &Bytes) {
    let length = key.map_or(NO_KEY, |key| u16::try_from(key.len()).unwrap_or(NO_KEY));
    payload.extend_from_slice(&length.to_le_bytes());
    payload.extend_from_slice(key.map_or(&[], |key| key));
    payload.extend_from_slice(value);
}

impl Record {
    /// What the client's record says; `None` for the log's own records.
    pub fn content(&self) -> Option<Content> {
        let (rewrites, payload) = match self.kind {
            RecordKind::GenerationStart | RecordKind::LogStart => return None,
            RecordKind::Data => {
                return Some(Content { key: None, value: self.payload.clone(), rewrites: None });
            }
            RecordKind::Keyed => (None, self.payload.clone()),
            RecordKind::Rewritten => {
                let le = self.payload.first_chunk()?;
                (Some(u64::from_le_bytes(*le)), self.payload.slice(8..))
            }
        };
        let length = u16::from_le_bytes(*payload.first_chunk()?);
        if length == NO_KEY {
            return Some(Content { key: None, value: payload.slice(2..), rewrites });
        }
        let value_at = 2 + usize::from(length);
        let is_whole = value_at <= payload.len();
        is_whole.then(|| Content {
            key: Some(payload.slice(2..value_at)),
            value: payload.slice(value_at..),
            rewrites,
        })
    }

    /// The same written again at another place of the log; `None` for the log's own records, and
    /// if that would be too long.
    pub(crate) fn rewritten(&self, term: Term, offset: u64) -> Option<Self> {
        let Content { key, value, .. } = self.content()?;
        let mut payload = Vec::with_capacity(self.payload.len() + PREFIX_BYTES);
        payload.extend_from_slice(&self.offset.to_le_bytes());
        put(&mut payload, key.as_ref(), &value);
        (payload.len() <= MAX_PAYLOAD_BYTES).then(|| Self {
            term,
            offset,
            kind: RecordKind::Rewritten,
            payload: payload.into(),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: RecordKind, payload: Bytes) -> Record {
        Record {
            term: Term::new(1, 1),
            offset: 7,
            timestamp_ms: 5,
            producer: 3,
            sequence: 4,
            kind,
            payload,
        }
    }

    #[test]
    fn what_is_written_again_says_the_same_and_where_it_was() {
        let value = Bytes::from_static(b"value");
        for key in [None, Some(Bytes::new()), Some(Bytes::from(vec![9; MAX_KEY_BYTES]))] {
            let (kind, payload) = keyed(key.as_ref(), value.clone());
            let first = record(kind, payload);
            let said = Content { key, value: value.clone(), rewrites: None };
            assert_eq!(first.content(), Some(said.clone()));
            let again = first.rewritten(Term::new(2, 1), 90).unwrap();
            assert_eq!(again.content(), Some(Content { rewrites: Some(7), ..said.clone() }));
            let third = again.rewritten(Term::new(2, 1), 120).unwrap();
            assert_eq!(third.content(), Some(Content { rewrites: Some(90), ..said }));
            assert_eq!((third.producer, third.sequence, third.timestamp_ms), (3, 4, 5));
        }
        let start = record(RecordKind::LogStart, value);
        assert_eq!((start.content(), start.rewritten(start.term, 90)), (None, None));
    }

    #[test]
    fn a_payload_that_is_cut_short_says_nothing() {
        let (kind, payload) = keyed(Some(&Bytes::from_static(b"key")), Bytes::new());
        assert!(record(kind, payload.clone()).content().unwrap().is_tombstone());
        for length in 0..payload.len() {
            assert_eq!(record(kind, payload.slice(..length)).content(), None, "{length} bytes");
        }
        assert_eq!(record(RecordKind::Rewritten, Bytes::from_static(b"12345678")).content(), None);
    }
}
