//! A shell that outlives the test process just long enough to clean up after it.
//!
//! A test run that is interrupted, or a server kept in a `static`, never runs `Drop`. The guard
//! waits for the end of its standard input, which comes with the end of the test process however
//! that happens, then kills the server and removes its folder.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SCRIPT: &str = r#"read -r _; kill -CONT "$1"; kill -KILL "$1"; rm -rf -- "${2:?}""#;

#[derive(Debug)]
pub(super) struct Guard(Child);

impl Guard {
    pub(super) fn watch(process: u32, folder: &Path) -> io::Result<Self> {
        Command::new("sh")
            .args(["-c", SCRIPT, "etcd-guard", &process.to_string()])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed before its input ends: the process id may already belong to somebody else.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
