//! The demo's child processes: started, killed, watched, and gone when the demo is.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::process::{Child, Command};

use crate::Failure;

/// Child processes by name. Dropping it kills them all; they also end by themselves when this
/// process does, however it dies, because their stdin ends with it.
pub(crate) struct Fleet {
    program: PathBuf,
    logs: PathBuf,
    children: Mutex<BTreeMap<String, Child>>,
}

impl Fleet {
    /// Logs go to `<dir>/logs`.
    pub(crate) fn new(dir: &Path) -> Result<Self, Failure> {
        let logs = dir.join("logs");
        std::fs::create_dir_all(&logs)
            .map_err(|e| Failure::Input(format!("cannot create {}: {e}", logs.display())))?;
        let program = std::env::current_exe()
            .map_err(|e| Failure::Input(format!("cannot find this program's file: {e}")))?;
        Ok(Self { program, logs, children: Mutex::default() })
    }

    fn children(&self) -> MutexGuard<'_, BTreeMap<String, Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a service under a name; its output goes to a log of that name.
    pub(crate) fn start(
        &self,
        name: &str,
        service: &str,
        arguments: &[String],
    ) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::Input(format!("cannot start {name}: {e}"));
        let path = self.log(name);
        let log = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|e| Failure::Input(format!("cannot write to {}: {e}", path.display())))?;
        let child = Command::new(&self.program)
            .args(["serve", "--with-parent", service])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            // Ctrl-C on the terminal is for this process, which then ends the others.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        self.children().insert(name.to_owned(), child);
        Ok(())
    }

    /// The log of a process.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// Kills a process without warning. It is not expected to run any more.
    pub(crate) fn kill(&self, name: &str) -> Result<(), Failure> {
        let mut child = self
            .children()
            .remove(name)
            .ok_or_else(|| Failure::No(format!("{name} does not run")))?;
        child.start_kill().map_err(|e| Failure::No(format!("cannot kill {name}: {e}")))?;
        // Reaped when it ends.
        tokio::spawn(async move { child.wait().await });
        Ok(())
    }

    /// Fails if a process that should run has ended, with the last line of its log.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let mut ended = None;
        for (name, child) in self.children().iter_mut() {
            if let Ok(Some(status)) = child.try_wait() {
                ended = Some((name.clone(), status));
                break;
            }
        }
        let Some((name, status)) = ended else { return Ok(()) };
        let log = self.log(&name);
        let last = std::fs::read_to_string(&log)
            .ok()
            .and_then(|text| text.lines().rfind(|l| !l.trim().is_empty()).map(str::to_owned))
            .unwrap_or_default();
        Err(Failure::No(format!("{name} ended ({status}): {last}; its log is {}", log.display())))
    }

    /// Kills everything that still runs and waits for it.
    pub(crate) async fn end(&self) {
        let mut children = std::mem::take(&mut *self.children());
        for child in children.values_mut() {
            // An error means that it ended already.
            let _ = child.start_kill();
        }
        for child in children.values_mut() {
            let _ = child.wait().await;
        }
    }
}
