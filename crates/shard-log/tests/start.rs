//! Logs that begin later than at 0: what is given up, what stays, and every crash in between.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_shard_log::storage::{MemoryStorage, Storage};
use evenkeel_shard_log::{
    Known, Log, LogConfig, LogError, Position, ReadLimit, Record, RecordKind, Retention, Term,
};

const CONFIG: LogConfig = LogConfig { segment_bytes: 1000, tail_bytes: 300 };

fn data(offset: u64, generation: u64) -> Record {
    Record {
        term: Term::new(generation, 1),
        offset,
        timestamp_ms: 1000 * offset as i64,
        producer: 3,
        sequence: offset,
        kind: RecordKind::Data,
        payload: Bytes::from(vec![b'a' + (generation % 26) as u8; 40]),
    }
}

/// A record that gives up what is before `start`.
fn move_to(start: u64, offset: u64, generation: u64) -> Record {
    let payload = Bytes::copy_from_slice(&start.to_le_bytes());
    Record {
        kind: RecordKind::LogStart,
        producer: 0,
        sequence: 0,
        payload,
        ..data(offset, generation)
    }
}

fn open(storage: &MemoryStorage) -> Log {
    Log::open(Arc::new(storage.clone()), CONFIG).unwrap().0
}

fn fill(log: &mut Log, records: u64, generation: u64) -> Result<(), LogError> {
    for _ in 0..records {
        log.append(&[data(log.end(), generation)])?;
    }
    if let Some(job) = log.begin_sync() {
        job.run()?;
        log.finish_sync(job.ticket());
    }
    Ok(())
}

fn give_up(log: &mut Log, start: u64) -> Result<(), LogError> {
    let term = log.position().term.generation;
    log.append(&[move_to(start, log.end(), term)])?;
    log.follow_start(log.end())
}

fn kept(log: &Log) -> Vec<Record> {
    log.read(log.start(), ReadLimit::bytes(u64::MAX, usize::MAX)).unwrap()
}

fn files(storage: &MemoryStorage) -> usize {
    storage.list().unwrap().iter().filter(|(name, _)| name.ends_with(".log")).count()
}

#[test]
fn whole_segments_before_the_start_go_and_everything_else_stays() {
    let memory = MemoryStorage::new();
    let mut log = open(&memory);
    fill(&mut log, 45, 1).unwrap();
    fill(&mut log, 45, 2).unwrap();
    let (records, bytes, all_files) = (kept(&log), log.size_bytes(), files(&memory));
    log.append(&[move_to(50, 90, 2)]).unwrap();
    log.follow_start(90).unwrap();
    assert_eq!((log.start(), log.removed().len()), (0, 0), "it is not committed");
    log.follow_start(91).unwrap();
    log.follow_start(91).unwrap();
    for reopened in [false, true] {
        if reopened {
            drop(log);
            log = open(&memory);
        }
        assert_eq!(log.start(), 50);
        assert_eq!(kept(&log)[..40], records[50..]);
        let gone = log.read(49, ReadLimit::bytes(u64::MAX, 1)).unwrap_err();
        assert_eq!(gone.to_string(), "record 49 was given up: the log begins at 50");
        assert_eq!(log.term_before(50), Some(Term::new(2, 1)));
        assert_eq!((log.term_before(49), log.term_at(48)), (None, None));
        assert_eq!(log.beginning(), Position { term: Term::new(2, 1), end: 50 });
        assert!(log.run_start(60) >= 49);
        assert!(log.size_bytes() < bytes && log.removed().len() > 3);
        assert_eq!(files(&memory), all_files, "erasing them comes later");
        assert_eq!(log.producers().look_up(3, 60), Known::At(60));
    }
    // Half erased, as a crash leaves it, and then wholly.
    log.removed()[1].file().truncate(100).unwrap();
    drop(log);
    log = open(&memory);
    for segment in log.removed().to_vec() {
        log.erase_removed(&segment).unwrap();
        log.erase_removed(&segment).unwrap();
    }
    assert!(files(&memory) < all_files - 3);
    drop(log);
    log = open(&memory);
    assert_eq!((log.start(), kept(&log)[..40].to_vec()), (50, records[50..].to_vec()));
    log.truncate_from(10).unwrap();
    assert_eq!((log.start(), log.end()), (50, 50), "nothing is cut before the start");
    fill(&mut log, 3, 7).unwrap();
    assert_eq!(open(&memory).end(), 53);
}

#[test]
fn the_segment_that_the_start_is_in_must_be_there() {
    let memory = MemoryStorage::new();
    let mut log = open(&memory);
    fill(&mut log, 60, 1).unwrap();
    give_up(&mut log, 30).unwrap();
    drop(log);
    let held =
        |name: &str| name.strip_suffix(".log").is_some_and(|n| n.parse::<u64>().unwrap() <= 30);
    for (name, _) in memory.list().unwrap() {
        if held(&name) {
            memory.remove(&name).unwrap();
        }
    }
    let error = Log::open(Arc::new(memory), CONFIG).err().unwrap().to_string();
    assert!(error.contains("but the records before it end at 30"), "{error}");
}

#[test]
fn a_start_that_was_cut_off_or_is_not_true_moves_nothing() {
    let memory = MemoryStorage::new();
    let mut log = open(&memory);
    fill(&mut log, 50, 1).unwrap();
    log.append(&[move_to(40, 50, 1)]).unwrap();
    log.truncate_from(50).unwrap();
    log.append(&[move_to(60, 50, 2), data(51, 2)]).unwrap();
    log.follow_start(52).unwrap();
    assert_eq!(log.start(), 0, "it is beyond its own record");
    drop(log);
    let mut log = open(&memory);
    log.follow_start(52).unwrap();
    assert_eq!(log.start(), 0);
}

#[test]
fn what_is_kept_is_by_size_and_by_age_and_whole_segments() {
    let mut log = open(&MemoryStorage::new());
    fill(&mut log, 100, 1).unwrap();
    let keep = |bytes, age_ms| Retention { bytes, age_ms };
    let start = |retention, now| log.start_to_keep(&retention, now);
    assert_eq!(start(keep(None, None), i64::MAX), 0);
    assert_eq!(start(keep(Some(0), None), 0), 99, "the open segment stays");
    let by_size = start(keep(Some(3000), None), 0);
    assert!(log.bytes_between(by_size, 100) >= 2900 && by_size > 50, "{by_size}");
    // The newest record of the segment with 0 to 10 is of 10 s, that of the next of 20 s.
    assert_eq!(start(keep(None, Some(5000)), 15_000), 0);
    assert_eq!(start(keep(None, Some(5000)), 15_001), 11);
    assert_eq!(start(keep(None, Some(5000)), i64::MAX), 99);
    assert_eq!(start(keep(Some(8000), Some(5000)), 0), start(keep(Some(8000), None), 0));
}

#[test]
fn no_crash_while_records_are_given_up_loses_any_that_are_kept() {
    let mut stopped = 0;
    for changes in 0..60 {
        for after in [None, Some(0), Some(usize::MAX)] {
            let memory = MemoryStorage::new();
            let mut log = open(&memory);
            fill(&mut log, 60, 1).unwrap();
            let records = kept(&log);
            memory.stop_after(Some(changes));
            let done = give_up(&mut log, 35).and_then(|()| {
                for segment in log.removed().to_vec() {
                    log.erase_removed(&segment)?;
                }
                fill(&mut log, 20, 1)
            });
            stopped += usize::from(done.is_err());
            drop(log);
            memory.stop_after(None);
            if let Some(kept) = after {
                memory.crash(|_| kept);
            }
            let log = open(&memory);
            assert!([0, 35].contains(&log.start()), "{changes}: begins at {}", log.start());
            let there = kept(&log);
            let from = log.start() as usize;
            assert_eq!(there[..60 - from], records[from..], "{changes} changes, {after:?}");
        }
    }
    assert!(stopped > 60, "{stopped}");
}

#[test]
fn a_log_that_begins_anew_does_so_wholly_or_is_what_it_was() {
    let mut stopped = 0;
    let begin = Position { term: Term::new(5, 1), end: 70 };
    for held in [0, 20, 70, 90] {
        for changes in 0..40 {
            for after in [None, Some(0), Some(usize::MAX)] {
                let memory = MemoryStorage::new();
                let mut log = open(&memory);
                fill(&mut log, held, 1).unwrap();
                let before = kept(&log);
                memory.stop_after(Some(changes));
                let done = log.restart_at(begin).and_then(|()| fill(&mut log, 3, 6));
                stopped += usize::from(done.is_err());
                drop(log);
                memory.stop_after(None);
                if let Some(kept) = after {
                    memory.crash(|_| kept);
                }
                let mut log = open(&memory);
                let at = format!("{held} held, {changes} changes, {after:?} kept");
                if log.start() == 0 {
                    let there = kept(&log);
                    assert!(done.is_err() && before.starts_with(&there), "{at}");
                } else {
                    assert_eq!(log.beginning(), begin, "{at}");
                    let fresh = (70..log.end()).map(|offset| data(offset, 6));
                    assert!(kept(&log).into_iter().eq(fresh), "{at}");
                    assert!(kept(&log).iter().all(|r| log.term_at(r.offset) == Some(r.term)));
                }
                log.restart_at(Position { term: Term::new(8, 1), end: 95 }).unwrap();
                fill(&mut log, 30, 9).unwrap();
                drop(log);
                assert_eq!(open(&memory).beginning().end, 95, "{at}");
            }
        }
    }
    assert!(stopped > 100, "{stopped}");
}
