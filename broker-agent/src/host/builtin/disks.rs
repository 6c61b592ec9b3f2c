//! Where the shards' directories are: on a disk, or in memory for simulations.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_model::ShardKey;
use evenkeel_shard_log::storage::{DiskStorage, MemoryStorage, Storage};

/// One directory per shard.
pub trait Disks: Send + Sync + 'static {
    /// Opens a shard's directory, making it if it is not there.
    fn open(&self, shard: &ShardKey) -> io::Result<Arc<dyn Storage>>;
    /// Every shard with a directory, in key order.
    fn list(&self) -> io::Result<Vec<ShardKey>>;
    /// Removes a shard's directory; harmless if there is none.
    fn remove(&self, shard: &ShardKey) -> io::Result<()>;
    /// Whether calls may wait for a disk.
    fn is_blocking(&self) -> bool;
}

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

    fn remove(&self, shard: &ShardKey) -> io::Result<()> {
        match std::fs::remove_dir_all(self.directory(shard)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn is_blocking(&self) -> bool {
        true
    }
}

/// Directories in memory. Clones share them, as a restarted process finds its disk again.
#[derive(Clone, Default)]
pub struct MemoryDisks {
    shards: Arc<Mutex<BTreeMap<ShardKey, MemoryStorage>>>,
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

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ShardKey, MemoryStorage>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disks for MemoryDisks {
    fn open(&self, shard: &ShardKey) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.lock().entry(shard.clone()).or_default().clone()))
    }

    fn list(&self) -> io::Result<Vec<ShardKey>> {
        Ok(self.lock().keys().cloned().collect())
    }

    fn remove(&self, shard: &ShardKey) -> io::Result<()> {
        self.lock().remove(shard);
        Ok(())
    }

    fn is_blocking(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_list_what_was_opened_and_forget_what_was_removed() {
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
            disks.remove(&shards[0]).unwrap();
            disks.remove(&shards[0]).unwrap();
            assert_eq!(disks.list().unwrap(), shards[1..]);
            assert_eq!(disks.open(&shards[1]).unwrap().read("x").unwrap().unwrap(), b"y");
        }
    }
}
