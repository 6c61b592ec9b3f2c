//! Indexes of closed segments: an open by them is an open by scans, whatever happened before.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_shard_log::storage::{DiskStorage, MemoryStorage, Storage};
use evenkeel_shard_log::{
    IndexStep, Log, LogConfig, LogError, ReadLimit, Record, RecordKind, Term,
};
use proptest::prelude::*;

const CONFIG: LogConfig = LogConfig { segment_bytes: 1000, tail_bytes: 300 };

fn record(offset: u64, generation: u64) -> Record {
    Record {
        term: Term::new(generation, 1),
        offset,
        timestamp_ms: 1_700_000_000_000 + offset as i64,
        producer: 1 + offset % 3,
        sequence: offset,
        kind: RecordKind::Data,
        payload: Bytes::from(vec![b'a' + (generation % 26) as u8; 40]),
    }
}

fn open(storage: &MemoryStorage) -> Log {
    Log::open(Arc::new(storage.clone()), CONFIG).unwrap().0
}

/// Puts records in and syncs them.
fn fill(log: &mut Log, records: u64, generation: u64) -> Result<(), LogError> {
    for _ in 0..records {
        log.append(&[record(log.end(), generation)])?;
    }
    if let Some(job) = log.begin_sync() {
        job.run()?;
        log.finish_sync(job.ticket());
    }
    Ok(())
}

/// Makes up to `most` indexes, as maintenance does.
fn index(log: &mut Log, most: usize) -> Result<(), LogError> {
    for _ in 0..most {
        let Some(mut job) = log.next_index() else { return Ok(()) };
        while !job.is_whole() {
            if job.step(1)? == IndexStep::NeedsEarlier {
                log.forget_index_before(&job);
                break;
            }
        }
        if job.is_whole() {
            let content = job.content();
            job.prepare(&content)?;
            assert!(log.install_index(&job)?);
            job.settle()?;
        }
    }
    Ok(())
}

fn segments(storage: &dyn Storage) -> Vec<String> {
    let all = storage.list().unwrap().into_iter().map(|(name, _)| name);
    all.filter(|name| name.ends_with(".log")).collect()
}

fn index_of(segment: &str) -> String {
    segment.replace(".log", ".idx")
}

/// Everything that can be asked of a log.
fn everything(log: &Log) -> impl PartialEq + std::fmt::Debug + use<> {
    let end = log.end();
    let terms: Vec<_> = (0..end).map(|o| (log.term_at(o), log.run_start(o))).collect();
    let records = log.read(0, ReadLimit::bytes(u64::MAX, usize::MAX)).unwrap();
    let sizes: Vec<u64> = (0..end).map(|o| log.bytes_between(o, end)).collect();
    (end, log.size_bytes(), log.position(), terms, records, log.producers().clone(), sizes)
}

/// Opens the log as it is, and a copy of it without indexes.
fn open_both(storage: &MemoryStorage) -> (Log, Log) {
    let plain = MemoryStorage::new();
    for (name, _) in storage.list().unwrap() {
        if name.ends_with(".log") {
            plain.replace(&name, &storage.read(&name).unwrap().unwrap()).unwrap();
        }
    }
    (open(storage), open(&plain))
}

#[test]
fn opening_reads_no_closed_segment_that_has_an_index() {
    let memory = MemoryStorage::new();
    let mut log = open(&memory);
    fill(&mut log, 400, 1).unwrap();
    index(&mut log, usize::MAX).unwrap();
    assert_eq!(log.unindexed_bytes(), 0);
    let before = everything(&log);
    drop(log);
    let names = segments(&memory);
    let (open_one, closed) = names.split_last().unwrap();
    assert!(closed.len() > 30);
    let read = |name: &String| memory.bytes_read(name);
    let reads_before: Vec<u64> = closed.iter().map(read).collect();
    let open_before = read(open_one);
    let log = open(&memory);
    assert_eq!(closed.iter().map(read).collect::<Vec<u64>>(), reads_before);
    assert!(read(open_one) > open_before, "the open one has no index");
    assert!(log.scanned().is_empty());
    assert_eq!(everything(&log), before);
}

#[test]
fn an_index_survives_on_a_disk() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Storage> = Arc::new(DiskStorage::open(directory.path()).unwrap());
    let mut log = Log::open(disk.clone(), CONFIG).unwrap().0;
    fill(&mut log, 100, 1).unwrap();
    index(&mut log, usize::MAX).unwrap();
    let before = everything(&log);
    drop(log);
    let log = Log::open(disk.clone(), CONFIG).unwrap().0;
    assert!(log.scanned().is_empty());
    assert_eq!(everything(&log), before);
    drop(log);
    let second = segments(disk.as_ref()).swap_remove(1);
    disk.remove(&index_of(&second)).unwrap();
    let log = Log::open(disk, CONFIG).unwrap().0;
    assert_eq!(log.scanned().len(), 1);
}

#[test]
fn what_is_no_index_of_the_segment_is_not_trusted_and_made_anew() {
    let memory = MemoryStorage::new();
    let mut log = open(&memory);
    fill(&mut log, 80, 1).unwrap();
    index(&mut log, usize::MAX).unwrap();
    let before = everything(&log);
    drop(log);
    let closed = segments(&memory);
    memory.remove(&index_of(&closed[0])).unwrap();
    memory.flip_bit(&index_of(&closed[1]), 30, 3);
    let others = memory.read(&index_of(&closed[2])).unwrap().unwrap();
    memory.replace(&index_of(&closed[3]), &others).unwrap();
    memory.replace(&index_of(&closed[4]), b"").unwrap();
    let mut log = open(&memory);
    assert_eq!(everything(&log), before);
    let told: Vec<(&str, &str)> = log.scanned().iter().map(|s| (s.file.as_str(), s.why)).collect();
    let of = |i: usize| format!("memory:{}", closed[i]);
    let expected = [
        (of(0), "it has no index yet"),
        (of(1), "the checksum of its index does not match"),
        (of(3), "its index describes another segment"),
        (of(4), "its index is cut short"),
    ];
    let expected: Vec<(&str, &str)> = expected.iter().map(|(f, w)| (f.as_str(), *w)).collect();
    assert_eq!(told, expected);
    assert!(log.unindexed_bytes() > 4000);
    // The one that the others build upon is lost while the log is open.
    index(&mut log, 2).unwrap();
    memory.replace(&index_of(&closed[2]), b"lost").unwrap();
    index(&mut log, usize::MAX).unwrap();
    drop(log);
    let log = open(&memory);
    assert!(log.scanned().is_empty(), "{:?}", log.scanned());
    assert_eq!(everything(&log), before);
}

#[test]
fn decay_in_an_indexed_segment_is_found_when_it_is_read() {
    let memory = MemoryStorage::new();
    let mut log = open(&memory);
    fill(&mut log, 80, 1).unwrap();
    index(&mut log, usize::MAX).unwrap();
    drop(log);
    memory.flip_bit(&segments(&memory)[1], 500, 2);
    let log = open(&memory);
    let error = log.read(0, ReadLimit::bytes(u64::MAX, usize::MAX)).unwrap_err();
    assert!(matches!(error, LogError::Corrupt { .. }), "{error}");
    // Without the index it is found at once.
    memory.remove(&index_of(&segments(&memory)[1])).unwrap();
    assert!(Log::open(Arc::new(memory), CONFIG).is_err());
}

#[test]
fn an_index_that_was_begun_before_a_truncation_is_given_up() {
    let memory = MemoryStorage::new();
    let mut log = open(&memory);
    fill(&mut log, 30, 1).unwrap();
    let mut job = log.next_index().unwrap();
    while !job.is_whole() {
        job.step(u64::MAX).unwrap();
    }
    let content = job.content();
    job.prepare(&content).unwrap();
    // The segment is cut, and grows again to the very same length.
    log.truncate_from(5).unwrap();
    fill(&mut log, 25, 2).unwrap();
    assert!(!log.install_index(&job).unwrap());
    drop(log);
    let (indexed, scanned) = open_both(&memory);
    assert_eq!(everything(&indexed), everything(&scanned));
    assert!(segments(&memory).iter().all(|s| memory.read(&index_of(s)).unwrap().is_none()));
}

/// Cuts into indexed segments, fills them with other records of the same length, and indexes them.
fn rewrite(log: &mut Log, cut_at: u64) -> Result<(), LogError> {
    index(log, 2)?;
    log.truncate_from(cut_at)?;
    fill(log, 40, 2)?;
    index(log, usize::MAX)
}

#[test]
fn no_crash_at_any_point_leaves_an_index_that_lies() {
    for cut_at in [0, 5, 10, 21, 29, 31] {
        let mut stopped = 0;
        for changes in 0.. {
            // Killed, or out of power with none or all of what was not synced.
            for after in [None, Some(0), Some(usize::MAX)] {
                let memory = MemoryStorage::new();
                let mut log = open(&memory);
                fill(&mut log, 34, 1).unwrap();
                index(&mut log, 1).unwrap();
                memory.stop_after(Some(changes));
                stopped += usize::from(rewrite(&mut log, cut_at).is_err());
                drop(log);
                memory.stop_after(None);
                if let Some(kept) = after {
                    memory.crash(|_| kept);
                }
                let (indexed, scanned) = open_both(&memory);
                let at = format!("cut at {cut_at}, {changes} changes, {after:?} kept");
                assert_eq!(everything(&indexed), everything(&scanned), "{at}");
                assert!(indexed.end() >= cut_at, "{at}");
            }
            if stopped < 3 * (changes as usize + 1) {
                break;
            }
        }
        assert!(stopped > 3 * 40, "{stopped}");
    }
}

/// What was met before makes an open believe no index; a later one may again.
#[test]
fn an_index_that_was_not_believed_goes_before_its_segment_changes() {
    let memory = MemoryStorage::new();
    let mut log = open(&memory);
    fill(&mut log, 34, 1).unwrap();
    index(&mut log, usize::MAX).unwrap();
    drop(log);
    memory.replace("damaged.txt", b"damage was met").unwrap();
    let mut log = open(&memory);
    log.truncate_from(5).unwrap();
    fill(&mut log, 40, 2).unwrap();
    drop(log);
    let (indexed, scanned) = open_both(&memory);
    assert_eq!(everything(&indexed), everything(&scanned));
}

#[derive(Debug, Clone)]
enum Step {
    Append(u64),
    Truncate(u64),
    Index(usize),
    Lose(usize),
    Crash(usize),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..12u64).prop_map(Step::Append),
        2 => (0..30u64).prop_map(Step::Truncate),
        4 => (1..4usize).prop_map(Step::Index),
        1 => (0..6usize).prop_map(Step::Lose),
        1 => (0..200usize).prop_map(Step::Crash),
        2 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_opened_by_indexes_is_the_log_opened_by_scans(steps in steps()) {
        let memory = MemoryStorage::new();
        let mut log = open(&memory);
        let mut generation = 1;
        for step in steps {
            match step {
                Step::Append(count) => fill(&mut log, count, generation).unwrap(),
                Step::Truncate(back) => {
                    log.truncate_from(log.end().saturating_sub(back)).unwrap();
                    generation += 1;
                }
                Step::Index(most) => index(&mut log, most).unwrap(),
                Step::Lose(which) => {
                    if let Some(segment) = segments(&memory).get(which) {
                        let _ = memory.remove(&index_of(segment));
                    }
                }
                Step::Crash(kept) => {
                    drop(log);
                    memory.crash(|appended| kept.min(appended));
                    log = open(&memory);
                }
                Step::Reopen => {
                    drop(log);
                    let (indexed, scanned) = open_both(&memory);
                    prop_assert_eq!(everything(&indexed), everything(&scanned));
                    log = indexed;
                }
            }
        }
        drop(log);
        let (indexed, scanned) = open_both(&memory);
        prop_assert_eq!(everything(&indexed), everything(&scanned));
    }
}
