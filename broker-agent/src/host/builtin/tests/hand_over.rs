//! Shards of one copy that are handed over to a disk that turns out to be damaged.

use std::io;
use std::sync::atomic::AtomicUsize;

use evenkeel_shard_log::Memo;
use evenkeel_shard_log::storage::{MemoryStorage, Storage};

use super::altered::{Altered, Meddling};
use super::*;

/// Shard `a` is fenced and has drained for `d`, which has everything; both on disks of their own.
async fn drained(a: MemoryDisks, d: Arc<dyn Disks>) -> Fixture {
    let mut f = Fixture::start(false, &[]).await;
    upkeep::replace(&mut f, "a", Arc::new(a), upkeep::small_segments()).await;
    upkeep::replace(&mut f, "d", d, upkeep::small_segments()).await;
    f.tell().await;
    f.until_serving("a").await;
    f.publish("a", 0..100).await;
    f.change(|a| a.successor = Some(id("d"))).await;
    f.until_reported("d", |r| r.caught_up).await;
    f.change(|a| a.state = ShardState::Draining).await;
    f.until_reported("a", |r| r.drained).await;
    f
}

fn cut_over(assignment: &mut Assignment) {
    assignment.leader = Some(id("d"));
    (assignment.successor, assignment.state) = (None, ShardState::Assigning);
}

/// Damages the first segment, or mends it.
fn flip(storage: &MemoryStorage) {
    storage.flip_bit("00000000000000000000.log", 500, 1);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_halted_as_it_ran_declines_even_if_it_was_mended_meanwhile() {
    for mended_before in [false, true] {
        let disks = MemoryDisks::new();
        let mut f = drained(MemoryDisks::new(), Arc::new(disks.clone())).await;
        let storage = disks.shard(&f.shard).unwrap();
        flip(&storage);
        let refused = f.host("d").digest(&f.shard, 0, 50, u64::MAX).await;
        assert!(matches!(refused, Err(ShardError::Storage(_))), "{refused:?}");
        f.until_reported("d", |r| r.halted.is_some()).await;
        if mended_before {
            flip(&storage);
        }

        // It was not heard.
        f.change(cut_over).await;
        if !mended_before {
            f.until_reported("d", |r| r.declined && r.halted.is_some()).await;
            flip(&storage);
        }
        f.until_reported("d", ShardReport::is_mended).await;
        assert_eq!(f.host("d").watch(&f.shard).unwrap().borrow().phase, Phase::Halted);
        f.change(|_| {}).await;
        f.until_serving("d").await;
        assert_eq!(f.read_all("d").await, expected(0..100));
    }
}

/// A disk that fails to give back what a replica must not forget, once.
#[derive(Default)]
struct Forgetful {
    /// At which of the next reads; 0 for none.
    at: AtomicUsize,
}

impl Meddling for Forgetful {
    fn before_reading(&self, name: &str) -> io::Result<()> {
        let counted = |left: usize| left.checked_sub(1);
        let is_it = name == "replica.json"
            && self.at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted) == Ok(1);
        if is_it { Err(io::Error::other("input/output error")) } else { Ok(()) }
    }
}

#[tokio::test(start_paused = true)]
async fn who_declined_keeps_its_word_whichever_read_fails_and_says_it_once() {
    for at in 1..=3 {
        let forgetful = Arc::new(Forgetful::default());
        let disks = Altered::by(forgetful.clone());
        let mut f = drained(MemoryDisks::new(), Arc::new(disks.clone())).await;
        let storage = disks.disks.shard(&f.shard).unwrap();
        flip(&storage);
        f.restart("d").await;
        f.change(cut_over).await;
        f.until_reported("d", |r| r.declined).await;
        flip(&storage);
        forgetful.at.store(at, Ordering::Relaxed);
        f.until_reported("d", ShardReport::is_mended).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let said_more = f.members.get_mut(&id("d")).unwrap().reports.try_recv();
        assert!(said_more.is_err(), "read {at}: {said_more:?}");
        assert_eq!(f.host("d").watch(&f.shard).unwrap().borrow().phase, Phase::Halted);
    }
}

#[tokio::test(start_paused = true)]
async fn where_it_drained_is_known_even_if_an_older_version_did_not_note_it() {
    let disks = MemoryDisks::new();
    let mut f = drained(disks.clone(), Arc::new(MemoryDisks::new())).await;
    let end = f.host("a").watch(&f.shard).unwrap().borrow().log_end;
    assert_eq!(f.host("a").handed_over(&f.shard).await, Ok(None), "it is held");
    f.change(cut_over).await;
    let known = f.host("a").handed_over(&f.shard).await.unwrap().unwrap();
    assert_eq!((known.generation + 1, known.log_end), (f.assignment.generation, end));
    let storage: Arc<dyn Storage> = Arc::new(disks.shard(&f.shard).unwrap());
    let memo = Memo { drained_end: 0, ..Memo::load(&storage).unwrap() };
    memo.save(&storage).unwrap();
    assert_eq!(f.host("a").handed_over(&f.shard).await, Ok(Some(known)));
}
