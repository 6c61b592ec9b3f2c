//! Compaction by the leader of a shard of one replica: what is written again, what goes, and what
//! comes in between.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_model::Assignment;
use evenkeel_shard_log::storage::MemoryStorage;
use evenkeel_shard_log::{
    Action, Compactable, CompactionStep, Draft, Event, LogConfig, MAX_KEY_BYTES, ReadLimit, Record,
    RecordKind, Refusal, Replica, ReplicaConfig, SyncJob,
};

const MOST: usize = 64 << 10;

struct Leader {
    replica: Replica,
    storage: MemoryStorage,
    syncs: Vec<SyncJob>,
    /// Syncs are kept back, so that nothing is committed.
    holds: bool,
    refused: Vec<Refusal>,
}

fn open(storage: &MemoryStorage) -> Replica {
    let config = ReplicaConfig {
        log: LogConfig { segment_bytes: 1000, tail_bytes: 300 },
        ..ReplicaConfig::default()
    };
    let shard = "cache/d/c/0".parse().unwrap();
    Replica::open("a".parse().unwrap(), shard, Arc::new(storage.clone()), config).unwrap().0
}

impl Leader {
    fn new() -> Self {
        let storage = MemoryStorage::new();
        let replica = open(&storage);
        let (syncs, refused) = (Vec::new(), Vec::new());
        let mut leader = Self { replica, storage, syncs, holds: false, refused };
        leader.lead(1);
        leader
    }

    fn lead(&mut self, generation: u64) {
        let shard = "cache/d/c/0".parse().unwrap();
        let mut assignment = Assignment::new(shard, "a".parse().unwrap(), vec![]);
        assignment.generation = generation;
        self.handle(Event::Assigned(assignment));
        assert!(self.replica.serving_term().is_some());
    }

    /// What was not synced is there too: the process ended, not the machine.
    fn restart(&mut self, generation: u64) {
        self.syncs.clear();
        self.holds = false;
        self.replica = open(&self.storage);
        self.lead(generation);
    }

    fn handle(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.replica.handle(1000, event).actions {
                match action {
                    Action::Sync(job) => self.syncs.push(job),
                    Action::Refused { refusal, .. } => self.refused.push(refusal),
                    _ => {}
                }
            }
            if !self.holds {
                for job in self.syncs.drain(..) {
                    job.run().unwrap();
                    events.push_back(Event::Synced(job.ticket()));
                }
            }
        }
    }

    fn publish(&mut self, key: Option<&str>, value: &str) {
        let key = key.map(|key| Bytes::copy_from_slice(key.as_bytes()));
        let payload = Bytes::copy_from_slice(value.as_bytes());
        let drafts = vec![Draft { producer: 0, sequence: 0, key, payload }];
        self.handle(Event::Propose { id: 1, timestamp_ms: 7, drafts });
    }

    fn put(&mut self, key: &str, value: &str) {
        self.publish(Some(key), value);
    }

    /// New values of three keys, over and over.
    fn fill(&mut self, records: usize) {
        for i in 0..records {
            self.put(["x", "y", "z"][i % 3], &format!("a longer value than others, {i}"));
        }
    }

    fn step(&mut self, most: usize) -> CompactionStep {
        let step = self.replica.compact(1000, 9, most);
        self.handle(Event::Tick);
        step
    }

    /// Gives one segment up.
    fn compact(&mut self) {
        while let CompactionStep::Rewrote(_) = self.step(MOST) {}
    }

    fn known(&mut self) -> Compactable {
        while self.replica.note_keys(1000, MOST) > 0 {}
        self.replica.compactable().unwrap()
    }

    fn records(&self) -> Vec<Record> {
        let log = self.replica.log();
        log.read(log.start(), ReadLimit::bytes(u64::MAX, usize::MAX)).unwrap()
    }

    /// Kinds of the records of a key, in order, with their values.
    fn of(&self, key: &str) -> Vec<(RecordKind, Bytes)> {
        let said = self.records().into_iter().filter_map(|r| Some((r.kind, r.content()?)));
        let of_key = said.filter(|(_, c)| c.key.as_deref() == Some(key.as_bytes()));
        of_key.map(|(kind, content)| (kind, content.value)).collect()
    }

    /// The log folded by key.
    fn said(&self) -> BTreeMap<Bytes, Bytes> {
        let contents = self.records().into_iter().filter_map(|r| r.content());
        let mut said: BTreeMap<Bytes, Bytes> =
            contents.filter_map(|c| Some((c.key?, c.value))).collect();
        said.retain(|_, value| !value.is_empty());
        said
    }
}

#[test]
fn the_newest_of_each_key_is_kept_and_what_it_replaced_goes() {
    let mut leader = Leader::new();
    leader.put("once", "kept");
    leader.fill(100);
    let (said, before) = (leader.said(), leader.known());
    assert!(before.superseded * 10 > before.closed * 8, "{before:?}");
    assert!(before.oldest_live < 100, "{before:?}");
    while leader.known().closed > 3000 {
        leader.compact();
    }
    let log = leader.replica.log();
    assert!(log.start() > 50 && log.removed().len() > 5, "it begins at {}", log.start());
    assert_eq!(leader.said(), said);
    let kept = leader.of("once");
    assert!(matches!(&kept[..], [(RecordKind::Rewritten, value)] if value == "kept"), "{kept:?}");
    leader.restart(2);
    assert_eq!(leader.said(), said);
}

#[test]
fn a_newer_value_is_not_overtaken_before_it_is_committed_either() {
    let mut leader = Leader::new();
    leader.put("k", "old");
    leader.fill(40);
    leader.known();
    leader.holds = true;
    leader.put("k", "new");
    // Nothing that was asked before waits to be committed, so the segment may be worked on.
    while let CompactionStep::Rewrote(_) = leader.step(MOST) {}
    assert!(leader.replica.committed() < leader.replica.log().end());
    leader.holds = false;
    leader.handle(Event::Tick);
    leader.compact();
    assert!(leader.replica.log().start() > 0);
    assert_eq!(leader.of("k"), [(RecordKind::Keyed, Bytes::from_static(b"new"))]);
}

#[test]
fn what_was_written_again_must_be_committed_before_there_is_more() {
    let mut leader = Leader::new();
    leader.put("k", "one");
    leader.put("l", "two");
    leader.fill(40);
    leader.known();
    leader.holds = true;
    assert!(matches!(leader.step(80), CompactionStep::Rewrote(_)));
    assert_eq!(leader.step(80), CompactionStep::Waits);
    leader.holds = false;
    leader.handle(Event::Tick);
    assert!(matches!(leader.step(80), CompactionStep::Rewrote(_)));
}

#[test]
fn a_deleted_key_leaves_nothing_and_may_come_again() {
    let mut leader = Leader::new();
    leader.put("gone", "value");
    leader.put("gone", "");
    leader.put("back", "value");
    leader.put("back", "");
    leader.fill(40);
    leader.put("back", "again");
    leader.compact();
    assert!(leader.replica.log().start() > 5);
    assert!(leader.of("gone").is_empty());
    assert_eq!(leader.of("back"), [(RecordKind::Keyed, Bytes::from_static(b"again"))]);
}

#[test]
fn records_without_a_key_are_kept_once() {
    let mut leader = Leader::new();
    leader.publish(None, "first");
    leader.publish(None, "second");
    leader.fill(40);
    // Broken off when the first was written again.
    assert!(matches!(leader.step(80), CompactionStep::Rewrote(_)));
    leader.restart(2);
    for _ in 0..10 {
        leader.fill(10);
        leader.compact();
    }
    let contents = leader.records().into_iter().filter_map(|r| r.content());
    let without: Vec<Bytes> = contents.filter(|c| c.key.is_none()).map(|c| c.value).collect();
    assert_eq!(without, ["first", "second"]);
}

#[test]
fn what_was_given_up_meanwhile_is_not_missed() {
    let mut leader = Leader::new();
    leader.put("k", "old");
    leader.fill(60);
    leader.known();
    let offset = leader.replica.log().closed_segment(0).unwrap().end();
    leader.handle(Event::GiveUpBefore { offset, timestamp_ms: 0 });
    assert_eq!(leader.replica.log().start(), offset);
    leader.compact();
    assert!(leader.replica.log().start() > offset);
    assert_eq!(leader.replica.halted(), None);
    assert!(leader.of("k").is_empty() && leader.said().len() == 3);
}

#[test]
fn keys_have_a_longest_length() {
    let mut leader = Leader::new();
    leader.put(&"k".repeat(MAX_KEY_BYTES), "");
    assert!(leader.refused.is_empty());
    leader.put(&"k".repeat(MAX_KEY_BYTES + 1), "");
    let detail = "key of 1025 bytes: expected at most 1024".to_owned();
    assert_eq!(leader.refused, [Refusal::Invalid(detail)]);
}
