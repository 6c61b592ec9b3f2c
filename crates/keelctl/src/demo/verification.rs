//! Reading everything back and comparing it, record by record, with what was acknowledged.

use std::collections::BTreeMap;

use evenkeel_client::{Client, Delivery, StoredRecord};
use evenkeel_model::ShardKey;
use indicatif::ProgressBar;
use serde::Serialize;
use tokio::task::JoinSet;

use super::ledger::{Acknowledged, hash};
use crate::Failure;

/// Shards read at once.
const READERS: usize = 4;

/// How what is stored compares with what was acknowledged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// Records that brokers acknowledged.
    pub(crate) acknowledged: u64,
    /// Records read back.
    pub(crate) read: u64,
    /// Acknowledged, and not there.
    pub(crate) lost: u64,
    /// There at its offset, with other content.
    pub(crate) changed: u64,
    /// Stored or delivered more than once, or two acknowledged at one offset.
    pub(crate) duplicated: u64,
    /// Of one producer in another order than it was sent.
    pub(crate) out_of_order: u64,
    /// There without an acknowledgement.
    pub(crate) unacknowledged: u64,
}

impl Verdict {
    /// Whether every acknowledged record is there, once, as it was, in order.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost == 0 && self.changed == 0 && self.duplicated == 0 && self.out_of_order == 0
    }

    fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.read += other.read;
        self.lost += other.lost;
        self.changed += other.changed;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
        self.unacknowledged += other.unacknowledged;
    }
}

/// Compares one shard: records are taken in the order in which they are read.
pub(crate) struct Check<'a> {
    expected: std::iter::Peekable<std::slice::Iter<'a, Acknowledged>>,
    last_offset: Option<u64>,
    last_sequence: BTreeMap<u64, u64>,
    verdict: Verdict,
}

impl<'a> Check<'a> {
    /// `expected` is sorted by offset.
    pub(crate) fn new(expected: &'a [Acknowledged]) -> Self {
        let verdict = Verdict { acknowledged: expected.len() as u64, ..Verdict::default() };
        let (last_offset, last_sequence) = (None, BTreeMap::new());
        Self { expected: expected.iter().peekable(), last_offset, last_sequence, verdict }
    }

    /// The next record that was read.
    pub(crate) fn take(&mut self, record: &StoredRecord) {
        self.verdict.read += 1;
        if self.last_offset.is_some_and(|last| record.offset <= last) {
            self.verdict.duplicated += 1;
            return;
        }
        self.last_offset = Some(record.offset);
        let sequence = self.last_sequence.entry(record.producer_id).or_default();
        match record.sequence {
            next if next > *sequence => *sequence = next,
            same if same == *sequence => self.verdict.duplicated += 1,
            _ => self.verdict.out_of_order += 1,
        }
        while self.expected.next_if(|e| e.offset < record.offset).is_some() {
            self.verdict.lost += 1;
        }
        let mut at_this_offset = 0;
        while let Some(expected) = self.expected.next_if(|e| e.offset == record.offset) {
            at_this_offset += 1;
            if expected.hash != hash(&record.payload) {
                self.verdict.changed += 1;
            }
        }
        match at_this_offset {
            0 => self.verdict.unacknowledged += 1,
            more => self.verdict.duplicated += more - 1,
        }
    }

    /// Everything was read.
    pub(crate) fn finish(mut self) -> Verdict {
        self.verdict.lost += self.expected.count() as u64;
        self.verdict
    }
}

/// Reads every shard that was published to and compares.
pub(crate) async fn verify(
    client: &Client,
    acknowledged: BTreeMap<ShardKey, Vec<Acknowledged>>,
    bar: &ProgressBar,
) -> Result<Verdict, Failure> {
    let mut total = Verdict::default();
    let mut shards = acknowledged.into_iter();
    let mut readers = JoinSet::new();
    loop {
        while readers.len() < READERS {
            let Some((shard, records)) = shards.next() else { break };
            readers.spawn(verify_shard(client.clone(), shard, records, bar.clone()));
        }
        let Some(ended) = readers.join_next().await else { break };
        let verdict =
            ended.map_err(|e| Failure::No(format!("reading back ended early: {e}")))??;
        total.add(&verdict);
    }
    bar.finish_and_clear();
    Ok(total)
}

async fn verify_shard(
    client: Client,
    shard: ShardKey,
    acknowledged: Vec<Acknowledged>,
    bar: ProgressBar,
) -> Result<Verdict, Failure> {
    let mut check = Check::new(&acknowledged);
    let mut subscription = client.read(shard, 0);
    loop {
        match subscription.next().await.map_err(|e| Failure::of_client(&e))? {
            Delivery::End { .. } => return Ok(check.finish()),
            Delivery::Records(records) => {
                records.iter().for_each(|record| check.take(record));
                bar.inc(records.len() as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &[(u64, &str)], read: &[(u64, &str, u64)]) -> Verdict {
        let expected: Vec<Acknowledged> = expected
            .iter()
            .map(|(offset, text)| Acknowledged { offset: *offset, hash: hash(text.as_bytes()) })
            .collect();
        let mut check = Check::new(&expected);
        for (offset, text, sequence) in read {
            check.take(&StoredRecord {
                offset: *offset,
                payload: text.to_string().into(),
                producer_id: 1,
                sequence: *sequence,
                ..Default::default()
            });
        }
        check.finish()
    }

    #[test]
    fn everything_there_once_in_order_is_clean_with_gaps_and_unacknowledged_ones() {
        let verdict = check(&[(1, "a"), (4, "c")], &[(1, "a", 1), (3, "b", 2), (4, "c", 3)]);
        let expected =
            Verdict { acknowledged: 2, read: 3, unacknowledged: 1, ..Verdict::default() };
        assert_eq!(verdict, expected);
        assert!(verdict.is_clean());
    }

    #[test]
    fn each_fault_is_counted_and_none_is_clean() {
        let lost = check(&[(1, "a"), (2, "b"), (9, "z")], &[(1, "a", 1)]);
        assert_eq!((lost.lost, lost.is_clean()), (2, false));
        let lost_before = check(&[(1, "a"), (2, "b")], &[(2, "b", 2)]);
        assert_eq!(lost_before.lost, 1);
        let changed = check(&[(1, "a")], &[(1, "x", 1)]);
        assert_eq!((changed.changed, changed.is_clean()), (1, false));
        let delivered_twice = check(&[(1, "a")], &[(1, "a", 1), (1, "a", 1)]);
        assert_eq!((delivered_twice.duplicated, delivered_twice.is_clean()), (1, false));
        let stored_twice = check(&[(1, "a")], &[(1, "a", 1), (2, "a", 1)]);
        assert_eq!((stored_twice.duplicated, stored_twice.is_clean()), (1, false));
        let two_at_one_offset = check(&[(1, "a"), (1, "a")], &[(1, "a", 1)]);
        assert_eq!(two_at_one_offset.duplicated, 1);
        let reordered = check(&[(1, "b"), (2, "a")], &[(1, "b", 2), (2, "a", 1)]);
        assert_eq!((reordered.out_of_order, reordered.is_clean()), (1, false));
    }
}
