//! Who this broker is: an id that lives with its data, and an incarnation that rises with every
//! start.
//!
//! **Invariant:** at most one process uses a data directory, and no two starts from it have the
//! same incarnation.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use evenkeel_model::BrokerId;
use serde::{Deserialize, Serialize};

const IDENTITY_FILE: &str = "identity.json";
const LOCK_FILE: &str = "lock";

/// Why a broker cannot take its data directory.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file system refused.
    #[error("cannot {verb} {path}: {}", cause(.source))]
    Storage {
        /// What was tried.
        verb: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process runs on the directory.
    #[error("data directory {0} is in use by another broker-agent: give each its own --data-dir")]
    InUse(PathBuf),
    /// The identity file is not one.
    #[error(
        "{path} cannot be read: {detail}; expected {{\"v\":1,\"broker\":<id>,\"incarnation\":<n>}}. \
         Restore it, or remove it and start with --broker-id to join as a broker with empty history"
    )]
    Malformed {
        /// The identity file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The directory is another broker's.
    #[error("data directory {path} belongs to broker '{stored}', not to '{wanted}'")]
    Foreign {
        /// The data directory.
        path: PathBuf,
        /// Whose it is.
        stored: BrokerId,
        /// Who asked.
        wanted: BrokerId,
    },
}

fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => "the disk is full".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        _ => error.to_string(),
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    v: u32,
    broker: BrokerId,
    incarnation: u64,
}

/// A broker's identity, and the lock on its data directory for as long as this value lives.
#[derive(Debug)]
pub struct Identity {
    /// The broker.
    pub broker: BrokerId,
    /// This start's number, from 1.
    pub incarnation: u64,
    /// Where its data is.
    pub data_dir: PathBuf,
    _lock: File,
}

impl Identity {
    /// Locks the directory (made if it is missing), reads who it belongs to and raises the
    /// incarnation durably. `wanted` is the configured id; without it the stored one is used, or
    /// `fallback` in a new directory.
    pub fn take(
        data_dir: &Path,
        wanted: Option<&BrokerId>,
        fallback: impl FnOnce() -> BrokerId,
    ) -> Result<Self, IdentityError> {
        fs::create_dir_all(data_dir).map_err(storage("create", data_dir))?;
        let lock = lock(data_dir)?;
        let path = data_dir.join(IDENTITY_FILE);
        let stored = read(&path)?;
        let (broker, last) = match (stored, wanted) {
            (Some(stored), Some(wanted)) if stored.broker != *wanted => {
                return Err(IdentityError::Foreign {
                    path: data_dir.to_owned(),
                    stored: stored.broker,
                    wanted: wanted.clone(),
                });
            }
            (Some(stored), _) => (stored.broker, stored.incarnation),
            (None, Some(wanted)) => (wanted.clone(), 0),
            (None, None) => (fallback(), 0),
        };
        let incarnation = last + 1;
        write(data_dir, &path, &Stored { v: 1, broker: broker.clone(), incarnation })?;
        Ok(Self { broker, incarnation, data_dir: data_dir.to_owned(), _lock: lock })
    }
}

fn storage<'a>(verb: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> IdentityError + 'a {
    move |source| IdentityError::Storage { verb, path: path.to_owned(), source }
}

fn lock(data_dir: &Path) -> Result<File, IdentityError> {
    let path = data_dir.join(LOCK_FILE);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(storage("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(IdentityError::InUse(data_dir.to_owned())),
        Err(fs::TryLockError::Error(source)) => Err(storage("lock", &path)(source)),
    }
}

fn read(path: &Path) -> Result<Option<Stored>, IdentityError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(storage("read", path)(e)),
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|e| IdentityError::Malformed { path: path.to_owned(), detail: e.to_string() })
}

/// Replaces the file as a whole: a crash leaves the old one or the new one. On a full disk it is
/// written where it is, which takes no room and lies within one sector: a broker serves what it
/// holds all the same.
fn write(data_dir: &Path, path: &Path, stored: &Stored) -> Result<(), IdentityError> {
    let new = data_dir.join("identity.json.new");
    let content = evenkeel_model::encode(stored);
    let write_new = || -> io::Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(&content)?;
        file.sync_all()
    };
    match write_new() {
        Ok(()) => fs::rename(&new, path).map_err(storage("replace", path))?,
        Err(e) if e.kind() == io::ErrorKind::StorageFull && path.exists() => {
            // It is empty and in nobody's way if it stays.
            let _ = fs::remove_file(&new);
            overwrite(path, &content).map_err(storage("write", path))?;
        }
        Err(e) => return Err(storage("write", &new)(e)),
    }
    File::open(data_dir).and_then(|d| d.sync_all()).map_err(storage("sync", data_dir))
}

/// The content only ever grows, by a digit.
fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(s: &str) -> BrokerId {
        s.parse().unwrap()
    }

    #[test]
    fn the_incarnation_rises_with_every_start_and_the_id_stays() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::take(dir.path(), Some(&id("b1")), || unreachable!()).unwrap();
        assert_eq!((first.broker.as_str(), first.incarnation), ("b1", 1));
        drop(first);
        let second = Identity::take(dir.path(), None, || unreachable!()).unwrap();
        assert_eq!((second.broker.as_str(), second.incarnation), ("b1", 2));
    }

    #[test]
    fn two_agents_cannot_share_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Identity::take(dir.path(), None, || id("made-up")).unwrap();
        let error = Identity::take(dir.path(), None, || id("other")).unwrap_err();
        assert!(matches!(error, IdentityError::InUse(_)), "{error}");
    }

    #[test]
    fn another_brokers_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(Identity::take(dir.path(), Some(&id("b1")), || unreachable!()).unwrap());
        let error = Identity::take(dir.path(), Some(&id("b2")), || unreachable!()).unwrap_err();
        let expected =
            format!("data directory {} belongs to broker 'b1', not to 'b2'", dir.path().display());
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_damaged_identity_is_named_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(IDENTITY_FILE);
        for bad in ["", "{\"v\":1,\"broker\":\"B 1\",\"incarnation\":3}", "{\"v\":1"] {
            fs::write(&path, bad).unwrap();
            let error = Identity::take(dir.path(), None, || id("x")).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{} cannot be read: ", path.display())), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), bad);
        }
    }

    #[test]
    fn on_a_full_disk_the_incarnation_rises_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let start = || Identity::take(dir.path(), None, || id("b1"));
        let full = || {
            let new = dir.path().join("identity.json.new");
            std::os::unix::fs::symlink("/dev/full", new).unwrap();
        };
        full();
        let error = start().unwrap_err().to_string();
        assert!(error.ends_with("identity.json.new: the disk is full"), "a new broker: {error}");
        fs::remove_file(dir.path().join("identity.json.new")).unwrap();
        drop(start().unwrap());
        for incarnation in 2..=11 {
            full();
            assert_eq!(start().unwrap().incarnation, incarnation);
        }
        assert_eq!(start().unwrap().incarnation, 12);
    }

    #[test]
    fn an_unusable_directory_is_one_clear_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Identity::take(&file.path().join("below"), None, || id("x")).unwrap_err();
        assert!(error.to_string().starts_with("cannot create "), "{error}");
        let full = IdentityError::Storage {
            verb: "write",
            path: "/d/identity.json.new".into(),
            source: io::ErrorKind::StorageFull.into(),
        };
        assert_eq!(full.to_string(), "cannot write /d/identity.json.new: the disk is full");
    }
}
