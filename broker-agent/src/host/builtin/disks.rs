//! Where the shards' directories are: on a disk, or in memory for simulations.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_model::ShardKey;
use evenkeel_shard_log::storage::{DiskStorage, MemoryStorage, Storage};

/// One directory per shard.
pub trait Disks: Send + Sync + 'static {
    /// Opens a shard's directory, making it if it is not there.
    fn open(&self, shard: &ShardKey) -> io::Result<Arc<dyn Storage>>;
    /// Every shard with a directory, in key order.
    fn list(&self) -> io::Result<Vec<ShardKey>>;
    /// Moves a shard's directory out of sight in one durable step, to be erased later; harmless if
    /// there is none.
    fn discard(&self, shard: &ShardKey) -> io::Result<()>;
    /// Every discarded directory, by a name that is never used again while it is there.
    fn discarded(&self) -> io::Result<Vec<(String, Arc<dyn Storage>)>>;
    /// Removes a discarded directory that holds no file any more.
    fn forget(&self, name: &str) -> io::Result<()>;
    /// A directory for what is kept about all shards.
    fn notes(&self) -> io::Result<Arc<dyn Storage>>;
    /// Whether calls may wait for a disk.
    fn is_blocking(&self) -> bool;
}

/// Holds the discarded directories; no kind of stream is named so.
const DISCARDED: &str = ".discarded";

/// Directories `<root>/<kind>/<namespace>/<name>/<number>` of the file system.
#[derive(Debug, Clone)]
pub struct FileDisks {
    root: PathBuf,
}

impl FileDisks {
    /// Under `root`, which is made if it is not there.
    pub fn open(root: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&root)?;
        Ok(Self { root })
    }

    fn directory(&self, shard: &ShardKey) -> PathBuf {
        let stream = &shard.stream;
        let names: [&str; 3] = [stream.kind.as_str(), &stream.namespace, &stream.name];
        let mut path = self.root.clone();
        path.extend(names);
        path.push(shard.number.to_string());
        path
    }
}

fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    Ok(names)
}

impl Disks for FileDisks {
    fn open(&self, shard: &ShardKey) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(DiskStorage::open(&self.directory(shard))?))
    }

    fn list(&self) -> io::Result<Vec<ShardKey>> {
        let mut paths = vec![(self.root.clone(), String::new())];
        for _ in 0..4 {
            let mut deeper = Vec::new();
            for (path, text) in paths {
                for name in names_in(&path)? {
                    let text =
                        if text.is_empty() { name.clone() } else { format!("{text}/{name}") };
                    deeper.push((path.join(&name), text));
                }
            }
            paths = deeper;
        }
        let mut shards: Vec<ShardKey> =
            paths.iter().filter_map(|(_, text)| text.parse().ok()).collect();
        shards.sort();
        Ok(shards)
    }

    fn discard(&self, shard: &ShardKey) -> io::Result<()> {
        let directory = self.directory(shard);
        if !directory.is_dir() {
            return Ok(());
        }
        let bin = self.root.join(DISCARDED);
        std::fs::create_dir_all(&bin)?;
        let last = names_in(&bin)?.iter().filter_map(|name| name.parse::<u64>().ok()).max();
        let place = bin.join(last.map_or(0, |last| last + 1).to_string());
        std::fs::rename(&directory, place)?;
        File::open(&bin)?.sync_all()?;
        if let Some(parent) = directory.parent() {
            File::open(parent)?.sync_all()?;
        }
        Ok(())
    }

    fn discarded(&self) -> io::Result<Vec<(String, Arc<dyn Storage>)>> {
        let bin = self.root.join(DISCARDED);
        if !bin.is_dir() {
            return Ok(Vec::new());
        }
        let opened = names_in(&bin)?.into_iter().map(|name| {
            let storage: Arc<dyn Storage> = Arc::new(DiskStorage::open(&bin.join(&name))?);
            Ok((name, storage))
        });
        opened.collect()
    }

    fn forget(&self, name: &str) -> io::Result<()> {
        std::fs::remove_dir(self.root.join(DISCARDED).join(name))
    }

    fn notes(&self) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(DiskStorage::open(&self.root)?))
    }

    fn is_blocking(&self) -> bool {
        true
    }
}

/// Directories in memory. Clones share them, as a restarted process finds its disk again.
#[derive(Clone, Default)]
pub struct MemoryDisks {
    shards: Arc<Mutex<BTreeMap<ShardKey, MemoryStorage>>>,
    discarded: Arc<Mutex<BTreeMap<u64, MemoryStorage>>>,
    notes: MemoryStorage,
}

impl MemoryDisks {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// One shard's directory, if it is there, to crash it or to damage it.
    pub fn shard(&self, shard: &ShardKey) -> Option<MemoryStorage> {
        self.lock().get(shard).cloned()
    }

    /// What a power failure leaves: everything as it was last synced.
    pub fn crash(&self) {
        for storage in self.lock().values() {
            storage.crash(|_| 0);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ShardKey, MemoryStorage>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bin(&self) -> MutexGuard<'_, BTreeMap<u64, MemoryStorage>> {
        self.discarded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disks for MemoryDisks {
    fn open(&self, shard: &ShardKey) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.lock().entry(shard.clone()).or_default().clone()))
    }

    fn list(&self) -> io::Result<Vec<ShardKey>> {
        Ok(self.lock().keys().cloned().collect())
    }

    fn discard(&self, shard: &ShardKey) -> io::Result<()> {
        let Some(storage) = self.lock().remove(shard) else { return Ok(()) };
        let mut bin = self.bin();
        let number = bin.last_key_value().map_or(0, |(last, _)| last + 1);
        bin.insert(number, storage);
        Ok(())
    }

    fn discarded(&self) -> io::Result<Vec<(String, Arc<dyn Storage>)>> {
        let bin = self.bin();
        let opened = bin.iter().map(|(number, storage)| {
            let storage: Arc<dyn Storage> = Arc::new(storage.clone());
            (number.to_string(), storage)
        });
        Ok(opened.collect())
    }

    fn forget(&self, name: &str) -> io::Result<()> {
        let number: u64 = name.parse().map_err(|_| io::ErrorKind::NotFound)?;
        self.bin().remove(&number);
        Ok(())
    }

    fn notes(&self) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.notes.clone()))
    }

    fn is_blocking(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_list_what_was_opened_and_what_was_discarded() {
        let directory = tempfile::tempdir().unwrap();
        let disks: [Box<dyn Disks>; 2] = [
            Box::new(FileDisks::open(directory.path().join("shards")).unwrap()),
            Box::new(MemoryDisks::new()),
        ];
        for disks in disks {
            let keys = ["cache/d/s/0", "stream/d/s/2", "stream/d/s/10"];
            let shards: Vec<ShardKey> = keys.iter().map(|k| k.parse().unwrap()).collect();
            for shard in shards.iter().rev() {
                disks.open(shard).unwrap().replace("x", b"y").unwrap();
            }
            assert_eq!(disks.list().unwrap(), shards);
            disks.discard(&shards[0]).unwrap();
            disks.discard(&shards[0]).unwrap();
            disks.discard(&shards[2]).unwrap();
            assert_eq!(disks.list().unwrap(), shards[1..2]);
            let discarded = disks.discarded().unwrap();
            let names: Vec<&str> = discarded.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["0", "1"]);
            assert!(disks.open(&shards[0]).unwrap().list().unwrap().is_empty(), "it starts anew");
            for (name, storage) in &discarded {
                assert_eq!(storage.read("x").unwrap().unwrap(), b"y");
                storage.remove("x").unwrap();
                disks.forget(name).unwrap();
            }
            assert!(disks.discarded().unwrap().is_empty());
            disks.notes().unwrap().replace("note", b"kept").unwrap();
            assert_eq!(disks.list().unwrap().len(), 2, "notes are no shard");
            assert_eq!(disks.open(&shards[1]).unwrap().read("x").unwrap().unwrap(), b"y");
        }
    }
}
