//! A disk that takes an index and does not give it back.

use std::io;
use std::sync::atomic::AtomicUsize;

use evenkeel_shard_log::storage::{Storage, StoredFile};

use super::*;
use crate::maintenance::Job;

/// The index of the first segment.
const SPOILT: &str = "00000000000000000000.idx";

#[derive(Clone, Default)]
struct Spoilt {
    disks: MemoryDisks,
    is_mended: Arc<AtomicBool>,
    /// How often the index was installed.
    made: Arc<AtomicUsize>,
}

struct SpoiltShard {
    storage: Arc<dyn Storage>,
    of: Spoilt,
}

impl Disks for Spoilt {
    fn open(&self, shard: &ShardKey) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(SpoiltShard { storage: self.disks.open(shard)?, of: self.clone() }))
    }

    fn list(&self) -> io::Result<Vec<ShardKey>> {
        self.disks.list()
    }

    fn discard(&self, shard: &ShardKey) -> io::Result<()> {
        self.disks.discard(shard)
    }

    fn discarded(&self) -> io::Result<Vec<(String, Arc<dyn Storage>)>> {
        self.disks.discarded()
    }

    fn forget(&self, name: &str) -> io::Result<()> {
        self.disks.forget(name)
    }

    fn notes(&self) -> io::Result<Arc<dyn Storage>> {
        self.disks.notes()
    }

    fn is_blocking(&self) -> bool {
        false
    }
}

impl Storage for SpoiltShard {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.storage.list()
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn StoredFile>> {
        self.storage.open(name, create)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.storage.remove(name)
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        if name == SPOILT && !self.of.is_mended.load(Ordering::Relaxed) {
            return Err(io::Error::other("input/output error"));
        }
        self.storage.read(name)
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.storage.replace(name, content)
    }

    fn prepare(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.storage.prepare(name, content)
    }

    fn install(&self, name: &str) -> io::Result<()> {
        self.of.made.fetch_add(usize::from(name == SPOILT), Ordering::Relaxed);
        self.storage.install(name)
    }

    fn settle(&self) -> io::Result<()> {
        self.storage.settle()
    }

    fn describe(&self, name: &str) -> String {
        self.storage.describe(name)
    }

    fn is_blocking(&self) -> bool {
        false
    }
}

/// A leader whose disk does not give the first index back, some while after it was made.
async fn spoilt() -> (Fixture, Spoilt) {
    let mut f = Fixture::start(false, &["b", "c"]).await;
    let disks = Spoilt::default();
    upkeep::replace(&mut f, "a", Arc::new(disks.clone()), upkeep::small_segments()).await;
    f.tell().await;
    f.until_serving("a").await;
    f.publish("a", 0..100).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    (f, disks)
}

#[tokio::test(start_paused = true)]
async fn an_index_that_cannot_be_read_back_is_made_again_with_pauses() {
    let (f, disks) = spoilt().await;
    assert_eq!(disks.made.load(Ordering::Relaxed), 2);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let made = disks.made.load(Ordering::Relaxed);
    assert!((3..=4).contains(&made), "made {made} times in 70 s");
    disks.is_mended.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(31)).await;
    let storage = disks.disks.shard(&f.shard).unwrap();
    let count = |ending: &str| upkeep::files(&storage, ending).len();
    assert_eq!(count(".idx") + 1, count(".log"));
}

#[tokio::test(start_paused = true)]
async fn an_index_that_waits_for_its_next_try_takes_nothing_from_copies() {
    let (f, disks) = spoilt().await;
    let storage = disks.disks.shard(&f.shard).unwrap();
    assert!(upkeep::files(&storage, ".idx").len() < 3, "there is more to do");
    let maintenance = &f.members[&id("a")].maintenance;
    let (announced, before) = maintenance.figures(Job::Index);
    assert_eq!(announced, 0);
    disks.is_mended.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(maintenance.figures(Job::Index).1 > before, "it is tried again");
}
