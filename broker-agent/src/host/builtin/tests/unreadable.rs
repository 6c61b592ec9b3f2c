//! A disk that takes an index and does not give it back.

use std::io;
use std::sync::atomic::AtomicUsize;

use super::altered::{Altered, Meddling};
use super::*;
use crate::maintenance::Job;

/// The index of the first segment.
const SPOILT: &str = "00000000000000000000.idx";

#[derive(Default)]
struct Spoilt {
    is_mended: AtomicBool,
    /// How often the index was installed.
    made: AtomicUsize,
}

impl Meddling for Spoilt {
    fn before_reading(&self, name: &str) -> io::Result<()> {
        if name == SPOILT && !self.is_mended.load(Ordering::Relaxed) {
            return Err(io::Error::other("input/output error"));
        }
        Ok(())
    }

    fn on_install(&self, name: &str) {
        self.made.fetch_add(usize::from(name == SPOILT), Ordering::Relaxed);
    }
}

/// A leader whose disk does not give the first index back, some while after it was made.
async fn spoilt() -> (Fixture, Arc<Spoilt>, MemoryDisks) {
    let mut f = Fixture::start(false, &["b", "c"]).await;
    let spoilt = Arc::new(Spoilt::default());
    let disks = Altered::by(spoilt.clone());
    upkeep::replace(&mut f, "a", Arc::new(disks.clone()), upkeep::small_segments()).await;
    f.tell().await;
    f.until_serving("a").await;
    f.publish("a", 0..100).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    (f, spoilt, disks.disks)
}

#[tokio::test(start_paused = true)]
async fn an_index_that_cannot_be_read_back_is_made_again_with_pauses() {
    let (f, spoilt, disks) = spoilt().await;
    assert_eq!(spoilt.made.load(Ordering::Relaxed), 2);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let made = spoilt.made.load(Ordering::Relaxed);
    assert!((3..=4).contains(&made), "made {made} times in 70 s");
    spoilt.is_mended.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(31)).await;
    let storage = disks.shard(&f.shard).unwrap();
    let count = |ending: &str| upkeep::files(&storage, ending).len();
    assert_eq!(count(".idx") + 1, count(".log"));
}

#[tokio::test(start_paused = true)]
async fn an_index_that_waits_for_its_next_try_takes_nothing_from_copies() {
    let (f, spoilt, disks) = spoilt().await;
    let storage = disks.shard(&f.shard).unwrap();
    assert!(upkeep::files(&storage, ".idx").len() < 3, "there is more to do");
    let maintenance = &f.members[&id("a")].maintenance;
    let (announced, before) = maintenance.figures(Job::Index);
    assert_eq!(announced, 0);
    spoilt.is_mended.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(maintenance.figures(Job::Index).1 > before, "it is tried again");
}
