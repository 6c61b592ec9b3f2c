//! A shard's directory in memory, for simulation and tests: it can lose what was not synced, run
//! full, stop in the middle of what it is told, and have its bits flipped.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use super::{PREPARED, Storage, StoredFile};

type Files = BTreeMap<String, Arc<MemoryFile>>;

/// Names with the file that was there before.
type Replaced = Vec<(String, Option<Arc<MemoryFile>>)>;

/// A directory in memory. Clones share it, as reopening a directory does.
#[derive(Clone, Default)]
pub struct MemoryStorage {
    files: Arc<Mutex<Files>>,
    /// What was in the place of files installed since the directory was last settled.
    unsettled: Arc<Mutex<Replaced>>,
    limits: Arc<Limits>,
}

/// What the directory and its files still take.
#[derive(Default)]
struct Limits {
    /// Bytes.
    room: Mutex<Option<u64>>,
    /// Changes of any kind.
    changes: Mutex<Option<u64>>,
}

impl Limits {
    /// One more change, unless the process was killed before it.
    fn change(&self) -> io::Result<()> {
        let mut left = lock(&self.changes);
        match *left {
            Some(0) => Err(io::ErrorKind::Interrupted.into()),
            _ => {
                *left = left.map(|left| left - 1);
                Ok(())
            }
        }
    }

    /// How many of so many bytes there is room for.
    fn fit(&self, bytes: usize) -> usize {
        lock(&self.room).map_or(bytes, |left| bytes.min(left as usize))
    }

    fn fill(&self, bytes: usize) {
        let mut room = lock(&self.room);
        *room = room.map(|left| left.saturating_sub(bytes as u64));
    }
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    /// Length at the last sync.
    synced: usize,
    /// Synced bytes that were cut or overwritten since, oldest first.
    replaced: Vec<(usize, Vec<u8>)>,
    /// Bytes read from it.
    read: u64,
}

struct MemoryFile {
    content: Mutex<Content>,
    limits: Arc<Limits>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl MemoryStorage {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a power failure leaves: every file as it was last synced, plus, of the bytes appended
    /// since, as many as `kept` says when asked with their number. A file that was installed and
    /// not settled is there if all of its bytes are kept. What was to stop the process is over.
    pub fn crash(&self, mut kept: impl FnMut(usize) -> usize) {
        self.stop_after(None);
        let mut files = lock(&self.files);
        for (name, before) in lock(&self.unsettled).drain(..).rev() {
            let bytes = files.get(&name).map_or(0, |f| lock(&f.content).bytes.len());
            if kept(bytes) >= bytes {
                continue;
            }
            match before {
                Some(before) => files.insert(name, before),
                None => files.remove(&name),
            };
        }
        for file in files.values() {
            let mut content = lock(&file.content);
            let untouched = content.replaced.is_empty();
            let appended = content.bytes.len().saturating_sub(content.synced);
            let keep = if untouched { kept(appended).min(appended) } else { 0 };
            let length = content.synced + keep;
            content.bytes.resize(length, 0);
            let replaced = std::mem::take(&mut content.replaced);
            for (at, old) in replaced.into_iter().rev() {
                content.bytes[at..at + old.len()].copy_from_slice(&old);
            }
            content.synced = content.bytes.len();
        }
    }

    /// Lets at most this many more bytes be written; `None` lifts the limit.
    pub fn set_room(&self, bytes: Option<u64>) {
        *lock(&self.limits.room) = bytes;
    }

    /// Lets at most this many more changes happen, as if the process were killed before the next;
    /// `None` lifts the limit.
    pub fn stop_after(&self, changes: Option<u64>) {
        *lock(&self.limits.changes) = changes;
    }

    /// Bytes read from a file since it was made.
    pub fn bytes_read(&self, name: &str) -> u64 {
        lock(&self.files).get(name).map_or(0, |file| lock(&file.content).read)
    }

    /// Flips one bit of a file, as decay does.
    pub fn flip_bit(&self, name: &str, byte: usize, bit: u8) {
        if let Some(file) = lock(&self.files).get(name)
            && let Some(byte) = lock(&file.content).bytes.get_mut(byte)
        {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// Removes everything, as a new disk does.
    pub fn destroy(&self) {
        lock(&self.files).clear();
        lock(&self.unsettled).clear();
    }
}

impl Storage for MemoryStorage {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let files = lock(&self.files);
        Ok(files.iter().map(|(n, f)| (n.clone(), lock(&f.content).bytes.len() as u64)).collect())
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn StoredFile>> {
        let mut files = lock(&self.files);
        if let Some(file) = files.get(name) {
            return Ok(file.clone());
        }
        if !create {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.limits.change()?;
        let file = Arc::new(MemoryFile { content: Mutex::default(), limits: self.limits.clone() });
        files.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.limits.change()?;
        let removed = lock(&self.files).remove(name);
        lock(&self.unsettled).clear();
        removed.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = lock(&self.files).get(name).cloned();
        Ok(file.map(|file| {
            let mut content = lock(&file.content);
            content.read += content.bytes.len() as u64;
            content.bytes.clone()
        }))
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.prepare(name, content)?;
        self.install(name)?;
        self.settle()
    }

    fn prepare(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.limits.change()?;
        if self.limits.fit(content.len()) < content.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.limits.fill(content.len());
        let content =
            Content { bytes: content.to_vec(), synced: content.len(), ..Content::default() };
        let content = Mutex::new(content);
        let file = Arc::new(MemoryFile { content, limits: self.limits.clone() });
        lock(&self.files).insert(format!("{name}{PREPARED}"), file);
        Ok(())
    }

    fn install(&self, name: &str) -> io::Result<()> {
        self.limits.change()?;
        let mut files = lock(&self.files);
        let file = files.remove(&format!("{name}{PREPARED}")).ok_or(io::ErrorKind::NotFound)?;
        let before = files.insert(name.to_owned(), file);
        lock(&self.unsettled).push((name.to_owned(), before));
        Ok(())
    }

    fn settle(&self) -> io::Result<()> {
        self.limits.change()?;
        lock(&self.unsettled).clear();
        Ok(())
    }

    fn describe(&self, name: &str) -> String {
        format!("memory:{name}")
    }

    fn is_blocking(&self) -> bool {
        false
    }
}

impl Content {
    /// Remembers the synced bytes of `from..to` that are about to go.
    fn save(&mut self, from: usize, to: usize) {
        let to = to.min(self.synced).min(self.bytes.len());
        if from < to {
            self.replaced.push((from, self.bytes[from..to].to_vec()));
        }
    }
}

impl StoredFile for MemoryFile {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut content = lock(&self.content);
        let at = at as usize;
        match content.bytes.get(at..at + buffer.len()) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        content.read += buffer.len() as u64;
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.limits.change()?;
        let fits = self.limits.fit(bytes.len());
        self.limits.fill(fits);
        let mut content = lock(&self.content);
        let (at, written) = (at as usize, &bytes[..fits]);
        content.save(at, at + written.len());
        if content.bytes.len() < at + written.len() {
            content.bytes.resize(at + written.len(), 0);
        }
        content.bytes[at..at + written.len()].copy_from_slice(written);
        if fits < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.limits.change()?;
        let mut content = lock(&self.content);
        let len = len as usize;
        let end = content.bytes.len();
        content.save(len, end);
        content.bytes.truncate(len);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.limits.change()?;
        let mut content = lock(&self.content);
        content.synced = content.bytes.len();
        content.replaced.clear();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.content).bytes.len() as u64)
    }
}
