//! Damage to a shard's log on the disk of a broker.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The segments in a shard's folder, the oldest first.
pub fn segments(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        found.extend(Some(path).filter(|p| p.extension().is_some_and(|e| e == "log")));
    }
    found.sort();
    Ok(found)
}

/// Flips a bit in the middle of a file. Twice is as before.
pub fn flip(file: &Path) -> io::Result<()> {
    let mut bytes = fs::read(file)?;
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
    fs::write(file, bytes)
}
