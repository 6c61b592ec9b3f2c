//! Disks in memory that a test looks into and meddles with.

use std::io;

use evenkeel_shard_log::storage::{Storage, StoredFile};

use super::*;

/// What is done beside the disk's own work.
pub(super) trait Meddling: Send + Sync + 'static {
    /// Before a small file is read.
    fn before_reading(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// When a small file takes its place.
    fn on_install(&self, _name: &str) {}
}

#[derive(Clone)]
pub(super) struct Altered {
    pub(super) disks: MemoryDisks,
    by: Arc<dyn Meddling>,
}

impl Altered {
    pub(super) fn by(meddling: Arc<dyn Meddling>) -> Self {
        Self { disks: MemoryDisks::new(), by: meddling }
    }
}

struct AlteredShard {
    storage: Arc<dyn Storage>,
    by: Arc<dyn Meddling>,
}

impl Disks for Altered {
    fn open(&self, shard: &ShardKey) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(AlteredShard { storage: self.disks.open(shard)?, by: self.by.clone() }))
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

impl Storage for AlteredShard {
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
        self.by.before_reading(name)?;
        self.storage.read(name)
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.storage.replace(name, content)
    }

    fn prepare(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.storage.prepare(name, content)
    }

    fn install(&self, name: &str) -> io::Result<()> {
        self.by.on_install(name);
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
