//! A shard's directory on a real file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{PREPARED, Storage, StoredFile};

/// A directory of the file system. Clones name the same directory.
#[derive(Debug, Clone)]
pub struct DiskStorage {
    directory: PathBuf,
}

impl DiskStorage {
    /// Opens the directory, making it and its parents if they are not there.
    pub fn open(directory: &Path) -> io::Result<Self> {
        if !directory.is_dir() {
            fs::create_dir_all(directory)?;
            if let Some(parent) = directory.parent().filter(|p| !p.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(Self { directory: directory.to_owned() })
    }

    /// Removes the directory with everything in it.
    pub fn destroy(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.directory)
    }

    fn scratch(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}{PREPARED}"))
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

impl Storage for DiskStorage {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                files.push((name, metadata.len()));
            }
        }
        files.sort();
        Ok(files)
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn StoredFile>> {
        let path = self.directory.join(name);
        let existed = path.exists();
        let file =
            OpenOptions::new().read(true).write(true).create(create).truncate(false).open(path)?;
        if create && !existed {
            self.sync_directory()?;
        }
        Ok(Arc::new(DiskFile { file }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))?;
        self.sync_directory()
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.directory.join(name)) {
            Ok(content) => Ok(Some(content)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.prepare(name, content)?;
        self.install(name)?;
        self.settle()
    }

    fn prepare(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = File::create(self.scratch(name))?;
        file.write_all(content)?;
        file.sync_all()
    }

    fn install(&self, name: &str) -> io::Result<()> {
        fs::rename(self.scratch(name), self.directory.join(name))
    }

    fn settle(&self) -> io::Result<()> {
        self.sync_directory()
    }

    fn describe(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn is_blocking(&self) -> bool {
        true
    }
}

struct DiskFile {
    file: File,
}

impl StoredFile for DiskFile {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
