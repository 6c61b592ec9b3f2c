//! Reading closed segments away from their log: all of them, each byte once, and what decay and
//! truncation do to it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_shard_log::storage::{DiskStorage, MemoryStorage, Storage};
use evenkeel_shard_log::{
    ClosedSegment, Log, LogConfig, LogError, Record, RecordKind, Term, Verified,
};
use proptest::prelude::*;

const CONFIG: LogConfig = LogConfig { segment_bytes: 20_000, tail_bytes: 300 };
const FIRST: &str = "00000000000000000000.log";

fn record(offset: u64, bytes: usize) -> Record {
    Record {
        term: Term::new(1, 1),
        offset,
        timestamp_ms: 1_700_000_000_000,
        producer: 3,
        sequence: offset,
        kind: RecordKind::Data,
        payload: Bytes::from(vec![b'a' + (offset % 26) as u8; bytes]),
    }
}

fn log_of(storage: Arc<dyn Storage>, payloads: &[usize]) -> Log {
    let (mut log, _) = Log::open(storage, CONFIG).unwrap();
    for (offset, bytes) in (0..).zip(payloads) {
        log.append(&[record(offset, *bytes)]).unwrap();
    }
    log
}

/// Reads one segment in steps; how many bytes that took.
fn read(segment: &ClosedSegment, step: u64) -> Result<u64, (Verified, LogError)> {
    let (mut at, mut sum) = (segment.start(), 0);
    while !segment.is_whole(at) {
        let (next, read) = segment.verify(at, step).map_err(|error| (at, error))?;
        assert_ne!(next, at, "no step stands still");
        (at, sum) = (next, sum + read);
    }
    Ok(sum)
}

#[test]
fn every_closed_segment_is_read_once_and_the_open_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let storages: [Arc<dyn Storage>; 2] = [
        Arc::new(MemoryStorage::new()),
        Arc::new(DiskStorage::open(&directory.path().join("shard")).unwrap()),
    ];
    // One record is longer than a step.
    let payloads: Vec<usize> = (0..300).map(|i| if i == 150 { 9000 } else { 500 }).collect();
    for storage in storages {
        let log = log_of(storage.clone(), &payloads);
        let files = storage.list().unwrap();
        let closed: u64 = files[..files.len() - 1].iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(log.closed_bytes(0), closed);
        let (mut reached, mut segments, mut sum) = (0, 0, 0);
        while let Some(segment) = log.closed_segment(reached) {
            sum += read(&segment, 5000).unwrap();
            assert!(log.has_closed(&segment));
            (reached, segments) = (segment.end(), segments + 1);
        }
        assert_eq!(segments, files.len() - 1);
        assert_eq!(log.closed_bytes(reached), 0);
        // Only a record that a step ends in is read twice.
        assert!((closed..closed * 5 / 4).contains(&sum), "{sum} of {closed}");
    }
}

#[test]
fn what_is_cut_off_is_no_part_of_the_log_any_more() {
    let storage = MemoryStorage::new();
    let mut log = log_of(Arc::new(storage), &[500; 300]);
    let first = log.closed_segment(0).unwrap();
    let second = log.closed_segment(first.end()).unwrap();
    log.truncate_from(first.end() + 3).unwrap();
    assert!(log.has_closed(&first) && !log.has_closed(&second));
    assert!(read(&second, 5000).is_err(), "its bytes are gone");
    assert!(log.closed_segment(first.end()).is_none(), "it is the open one now");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_flipped_bit_anywhere_is_found_and_named(byte in 0usize..20_000, bit in 0u8..8) {
        let storage = MemoryStorage::new();
        let log = log_of(Arc::new(storage.clone()), &[500; 80]);
        let segment = log.closed_segment(0).unwrap();
        let clean = read(&segment, 5000).unwrap();
        prop_assert!(clean >= 20_000);
        storage.flip_bit(FIRST, byte, bit);
        let (at, error) = read(&segment, 5000).unwrap_err();
        let LogError::Corrupt { file, byte: named, .. } = &error else { panic!("{error}") };
        prop_assert_eq!(file, "memory:00000000000000000000.log");
        // The record that holds the bit.
        prop_assert!(*named <= byte as u64 && byte as u64 - named < 600, "{} for {}", named, byte);
        // From the same place it is found again.
        prop_assert!(segment.verify(at, 5000).is_err());
        storage.flip_bit(FIRST, byte, bit);
        prop_assert_eq!(read(&segment, 5000).unwrap(), clean);
    }
}
