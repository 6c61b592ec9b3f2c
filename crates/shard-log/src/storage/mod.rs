//! The border to the disk: one directory of files per shard, on a real file system or in memory.

mod disk;
mod memory;

use std::io;
use std::sync::Arc;

pub use disk::DiskStorage;
pub use memory::MemoryStorage;

/// Ends the name under which prepared content waits; one that a crash left is harmless.
pub const PREPARED: &str = ".new";

/// One directory of files. Names hold no separators.
pub trait Storage: Send + Sync {
    /// Every file with its length in bytes, by name.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;
    /// Opens a file; with `create` an empty one is made, durably, if there is none.
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn StoredFile>>;
    /// Removes a file, durably.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// The content of a small file, if it is there.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Replaces a small file in one step that survives a crash: either the old or the new content
    /// is there, and the new one once this returns.
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()>;
    /// Writes content, durably, that is to take the place of a small file: the slow part of a
    /// replacement, which changes nothing yet.
    fn prepare(&self, name: &str, content: &[u8]) -> io::Result<()>;
    /// Puts what was prepared in the file's place, without waiting for the disk: until
    /// [`Storage::settle`], or the next removal, a crash may bring the old content back.
    fn install(&self, name: &str) -> io::Result<()>;
    /// Makes what was installed durable.
    fn settle(&self) -> io::Result<()>;
    /// Where it is, for messages.
    fn describe(&self, name: &str) -> String;
    /// Whether calls may wait for a disk, so that an async caller must keep them off its runtime.
    fn is_blocking(&self) -> bool;
}

/// An open file.
pub trait StoredFile: Send + Sync {
    /// Fills `buffer` from `at`; an error if the file is shorter.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `at`. After an error any part of it may be there.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file to `len` bytes.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Returns once everything written before is durable.
    fn sync(&self) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether it holds nothing.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}
