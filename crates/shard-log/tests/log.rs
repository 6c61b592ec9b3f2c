//! The log on both storages: appends, reads, truncation, syncs, crashes, decay, a full disk.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_shard_log::storage::{DiskStorage, MemoryStorage, Storage};
use evenkeel_shard_log::{Known, Log, LogConfig, LogError, ReadLimit, Record, RecordKind, Term};
use proptest::prelude::*;

const FIRST: &str = "00000000000000000000.log";
const CONFIG: LogConfig = LogConfig { segment_bytes: 1000, tail_bytes: 300 };

fn record(offset: u64, generation: u64, bytes: usize) -> Record {
    Record {
        term: Term::new(generation, 1),
        offset,
        timestamp_ms: 1_700_000_000_000,
        producer: 3,
        sequence: offset,
        kind: RecordKind::Data,
        payload: Bytes::from(vec![b'a' + (offset % 26) as u8; bytes]),
    }
}

fn open(storage: &MemoryStorage) -> Result<Log, LogError> {
    Log::open(Arc::new(storage.clone()), CONFIG).map(|(log, _)| log)
}

fn sync(log: &mut Log) {
    if let Some(job) = log.begin_sync() {
        job.run().unwrap();
        log.finish_sync(job.ticket());
    }
}

fn all(log: &Log) -> Vec<Record> {
    log.read(0, ReadLimit::bytes(u64::MAX, usize::MAX)).unwrap()
}

#[test]
fn both_storages_keep_what_was_appended_over_segments_and_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let memory = MemoryStorage::new();
    let disk = DiskStorage::open(&directory.path().join("shard")).unwrap();
    let storages: [Arc<dyn Storage>; 2] = [Arc::new(memory), Arc::new(disk)];
    for storage in storages {
        let (mut log, torn) = Log::open(storage.clone(), CONFIG).unwrap();
        assert!(torn.is_none());
        let records: Vec<Record> = (0..100).map(|o| record(o, 1 + o / 30, 40)).collect();
        for some in records.chunks(7) {
            log.append(some).unwrap();
        }
        assert!(storage.list().unwrap().len() > 5, "several segments");
        assert_eq!(all(&log), records);
        assert_eq!(log.term_at(59), Some(Term::new(2, 1)));
        assert_eq!((log.term_before(0), log.term_at(100)), (Some(Term::default()), None));
        assert_eq!(log.run_start(75), 60);
        let some = log.read(50, ReadLimit { until: 90, records: 3, bytes: 10_000 }).unwrap();
        assert_eq!(some, records[50..53]);
        let one = log.read(50, ReadLimit::bytes(90, 1)).unwrap();
        assert_eq!(one, records[50..51], "at least one");
        assert!(log.read(100, ReadLimit::bytes(u64::MAX, 1)).unwrap().is_empty());

        log.truncate_from(45).unwrap();
        log.append(&[record(45, 9, 10)]).unwrap();
        let kept = [&records[..45], &[record(45, 9, 10)]].concat();
        assert_eq!(all(&log), kept);
        drop(log);
        let (log, torn) = Log::open(storage, CONFIG).unwrap();
        assert!(torn.is_none());
        assert_eq!(all(&log), kept);
        assert_eq!(log.synced_end(), 46);
        assert_eq!(log.producers().look_up(3, 44), Known::At(44));
        assert_eq!(log.producers().look_up(3, 46), Known::New);
    }
}

#[test]
fn what_does_not_continue_the_log_is_rejected() {
    let mut log = open(&MemoryStorage::new()).unwrap();
    log.append(&[record(0, 5, 1)]).unwrap();
    let gap = log.append(&[record(2, 5, 1)]).unwrap_err().to_string();
    assert!(gap.starts_with("record 2 cannot be appended to a log that ends at 1"), "{gap}");
    let back = log.append(&[record(1, 4, 1)]).unwrap_err();
    assert!(matches!(back, LogError::Rejected { .. }), "{back}");
    assert_eq!(log.end(), 1);
}

#[test]
fn a_sync_covers_what_was_written_before_it_and_not_what_replaced_it() {
    let mut log = open(&MemoryStorage::new()).unwrap();
    log.append(&[record(0, 1, 1), record(1, 1, 1)]).unwrap();
    let first = log.begin_sync().unwrap();
    assert!(log.begin_sync().is_none(), "nothing new");
    log.truncate_from(1).unwrap();
    log.append(&[record(1, 2, 1), record(2, 2, 1)]).unwrap();
    first.run().unwrap();
    log.finish_sync(first.ticket());
    assert_eq!(log.synced_end(), 1);
    sync(&mut log);
    assert_eq!(log.synced_end(), 3);
}

/// A log of ten records in one synced batch, and one more that was not synced.
fn eleven() -> (MemoryStorage, Vec<Record>) {
    let memory = MemoryStorage::new();
    let mut log = open(&memory).unwrap();
    let records: Vec<Record> = (0..11).map(|o| record(o, 1, 20)).collect();
    log.append(&records[..10]).unwrap();
    sync(&mut log);
    log.append(&records[10..]).unwrap();
    (memory, records)
}

#[test]
fn a_torn_tail_is_cut_off_and_told() {
    let frame = record(0, 1, 20).frame_bytes();
    for kept in 1..frame {
        let (memory, records) = eleven();
        memory.crash(|_| kept);
        let (mut log, torn) = Log::open(Arc::new(memory.clone()), CONFIG).unwrap();
        let torn = torn.unwrap().to_string();
        let told = format!("cut {kept} bytes of a torn write off memory:{FIRST} at byte 786");
        assert!(torn.starts_with(&told), "{torn}");
        assert_eq!(all(&log), records[..10]);
        log.append(&records[10..]).unwrap();
        assert_eq!(all(&log), records);
    }
}

#[test]
fn a_flipped_bit_halts_and_nothing_is_lost() {
    let (memory, records) = eleven();
    let length = memory.list().unwrap()[0].1 as usize;
    for byte in 16..length {
        memory.flip_bit(FIRST, byte, (byte % 8) as u8);
        let opened = open(&memory);
        // A length that points past the end looks the same as a record cut short.
        let last = byte >= length - records[10].frame_bytes();
        match opened {
            Err(LogError::Corrupt { file, byte: at, .. }) => {
                assert_eq!(file, format!("memory:{FIRST}"));
                assert!(at <= byte as u64 && byte as u64 <= at + 77, "{at} for {byte}");
                assert_eq!(memory.list().unwrap()[0].1 as usize, length);
                memory.flip_bit(FIRST, byte, (byte % 8) as u8);
                assert_eq!(all(&open(&memory).unwrap()), records);
            }
            Ok(_) if last => return,
            Ok(log) => panic!("byte {byte}: opened with {} records", log.end()),
            Err(e) => panic!("byte {byte}: {e}"),
        }
    }
}

#[test]
fn sectors_that_were_never_written_are_torn_even_before_ones_that_were() {
    let memory = MemoryStorage::new();
    let wide = LogConfig { segment_bytes: 1 << 20, tail_bytes: 0 };
    let (mut log, _) = Log::open(Arc::new(memory.clone()), wide).unwrap();
    log.append(&[record(0, 1, 3000), record(1, 1, 3000)]).unwrap();
    sync(&mut log);
    log.append(&[record(2, 1, 3000), record(3, 1, 3000)]).unwrap();
    // The disk wrote the later sectors and not these.
    memory.open(FIRST, false).unwrap().write_at(6656, &[0; 512]).unwrap();
    let (log, torn) = Log::open(Arc::new(memory.clone()), wide).unwrap();
    assert_eq!((log.end(), torn.is_some()), (2, true));
    drop(log);
    memory.open(FIRST, false).unwrap().write_at(1024, &[0; 512]).unwrap();
    let opened = Log::open(Arc::new(memory), wide);
    assert!(opened.is_ok_and(|(log, _)| log.end() == 0), "nothing says that these were synced");
}

#[test]
fn damage_before_the_last_segment_or_a_missing_one_halts() {
    let memory = MemoryStorage::new();
    let mut log = open(&memory).unwrap();
    for offset in 0..40 {
        log.append(&[record(offset, 1, 40)]).unwrap();
    }
    drop(log);
    let segments: Vec<String> = memory.list().unwrap().into_iter().map(|(n, _)| n).collect();
    let cut = memory.open(&segments[1], false).unwrap();
    cut.truncate(cut.len().unwrap() - 3).unwrap();
    let error = open(&memory).err().unwrap().to_string();
    assert!(error.starts_with(&format!("log memory:{} is damaged", segments[1])), "{error}");
    memory.remove(&segments[1]).unwrap();
    let error = open(&memory).err().unwrap().to_string();
    assert!(error.contains("but the records before it end at"), "{error}");
}

#[test]
fn a_full_disk_is_an_error_that_passes() {
    let memory = MemoryStorage::new();
    let mut log = open(&memory).unwrap();
    log.append(&[record(0, 1, 40)]).unwrap();
    for room in 0..250 {
        memory.set_room(Some(room));
        let batch: Vec<Record> = (1..4).map(|o| record(o, 1, 40)).collect();
        let error = log.append(&batch).unwrap_err();
        assert!(matches!(error, LogError::DiskFull { .. }) && error.is_passing(), "{error}");
        assert_eq!(log.end(), 1);
    }
    memory.set_room(None);
    // Fills the segment, so that the next append needs a new file and finds no room for it.
    for offset in 1..12 {
        log.append(&[record(offset, 1, 40)]).unwrap();
    }
    memory.set_room(Some(4));
    assert!(log.append(&[record(12, 1, 900)]).is_err());
    memory.set_room(None);
    log.append(&[record(12, 1, 900), record(13, 1, 40)]).unwrap();
    drop(log);
    assert_eq!(open(&memory).unwrap().end(), 14);
}

#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    Truncate(u64),
    Sync,
    Crash(usize),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..5usize).prop_map(Step::Append),
        1 => (0..6u64).prop_map(Step::Truncate),
        3 => Just(Step::Sync),
        1 => (0..200usize).prop_map(Step::Crash),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// A plain list of records is the oracle; a crash keeps the synced prefix at least.
    #[test]
    fn it_holds_what_a_list_would(steps in steps()) {
        let memory = MemoryStorage::new();
        let mut log = open(&memory).unwrap();
        let (mut list, mut synced): (Vec<Record>, usize) = (Vec::new(), 0);
        let mut generation = 1;
        for step in steps {
            match step {
                Step::Append(count) => {
                    let next = list.len() as u64;
                    let batch: Vec<Record> =
                        (next..next + count as u64).map(|o| record(o, generation, 60)).collect();
                    log.append(&batch).unwrap();
                    list.extend(batch);
                }
                Step::Truncate(back) => {
                    let to = (list.len() as u64).saturating_sub(back);
                    log.truncate_from(to).unwrap();
                    list.truncate(to as usize);
                    generation += 1;
                    // What was cut off may come back unless the cut is synced.
                    sync(&mut log);
                    synced = list.len();
                }
                Step::Sync => {
                    sync(&mut log);
                    synced = list.len();
                    prop_assert_eq!(log.synced_end(), synced as u64);
                }
                Step::Crash(kept) => {
                    drop(log);
                    memory.crash(|appended| kept.min(appended));
                    log = open(&memory).unwrap();
                    let end = log.end() as usize;
                    prop_assert!(synced <= end && end <= list.len());
                    list.truncate(end);
                    synced = end;
                }
                Step::Reopen => {
                    drop(log);
                    log = open(&memory).unwrap();
                    synced = list.len();
                }
            }
            prop_assert_eq!(all(&log), list.clone());
        }
    }
}
