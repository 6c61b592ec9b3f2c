//! One etcd member.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;
use tokio::time::Instant;

use super::binary::EtcdVersion;
use super::guard::Guard;
use super::ports::Ports;
use super::ready::is_healthy;

/// Generous, because a laden machine has been seen to take seconds where an idle one takes 50 ms.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// How often other ports are tried when somebody took one between its choice and its use.
const PORT_ATTEMPTS: usize = 5;

/// What to start.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// The binary.
    pub binary: PathBuf,
    /// Further flags, after ours, so that they win where etcd takes the last one.
    pub flags: Vec<String>,
}

impl EtcdOptions {
    /// The given version, or a `NotFound` error that says how to provide it.
    pub fn of(version: EtcdVersion) -> io::Result<Self> {
        let binary = version.find().ok_or_else(|| {
            let text = format!("no {version} here: set {} to its binary", version.variable());
            io::Error::new(io::ErrorKind::NotFound, text)
        })?;
        Ok(Self { binary, flags: Vec::new() })
    }

    /// Adds flags, such as `["--quota-backend-bytes", "16777216"]`.
    #[must_use]
    pub fn flags<S: Into<String>>(mut self, flags: impl IntoIterator<Item = S>) -> Self {
        self.flags.extend(flags.into_iter().map(Into::into));
        self
    }
}

/// A running (or killed, or stopped) etcd member with its own folder and ports. Dropping it ends
/// the process, whatever state it is in, and removes the folder.
#[derive(Debug)]
pub struct Etcd {
    name: String,
    options: EtcdOptions,
    ports: Ports,
    /// Of all members of its cluster, itself included; fixed for the member's life.
    peers: String,
    running: Option<Running>,
    folder: TempDir,
}

#[derive(Debug)]
struct Running {
    guard: Guard,
    child: Child,
}

impl Etcd {
    /// A single member of the given version, ready for calls.
    pub async fn start(version: EtcdVersion) -> io::Result<Self> {
        Self::start_with(EtcdOptions::of(version)?).await
    }

    /// A single member with extra flags, ready for calls.
    pub async fn start_with(options: EtcdOptions) -> io::Result<Self> {
        for attempt in 1.. {
            let ports = Ports::choose()?;
            let peers = format!("m0=http://127.0.0.1:{}", ports.peer);
            let mut member = Self::member("m0", &options, ports, peers)?;
            member.spawn()?;
            match member.ready().await {
                Err(error) if member.lost_its_port() && attempt < PORT_ATTEMPTS => drop(error),
                outcome => return outcome.map(|()| member),
            }
        }
        unreachable!("the loop ends by returning")
    }

    pub(super) fn member(
        name: &str,
        options: &EtcdOptions,
        ports: Ports,
        peers: String,
    ) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("evenkeel-etcd-").tempdir()?;
        let options = options.clone();
        Ok(Self { name: name.to_owned(), options, ports, peers, running: None, folder })
    }

    /// Where clients connect, e.g. `http://127.0.0.1:23790`. The same through every restart.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The client address as `127.0.0.1:port`, for a proxy in front of it.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports.client)
    }

    /// Whether a process runs (it may be stopped).
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Ends the process at once, like a crash. Does nothing when none runs.
    pub fn kill9(&mut self) {
        self.end(Signal::KILL);
    }

    /// Ends the process in an orderly way and waits for it.
    pub fn terminate(&mut self) {
        self.end(Signal::TERM);
    }

    /// Starts the process on the data it had (killing it first when it still runs) and waits
    /// until it serves.
    pub async fn restart(&mut self) -> io::Result<()> {
        self.spawn_on_same_data()?;
        self.ready().await
    }

    /// Like [`restart`](Self::restart) without the wait, for a member whose cluster has no
    /// quorum yet.
    pub fn spawn_on_same_data(&mut self) -> io::Result<()> {
        self.kill9();
        self.spawn()
    }

    /// Kills the process, removes its data and starts it again: the same address, another
    /// cluster id, revisions from 1. Only meant for a single member.
    pub async fn wipe_and_restart(&mut self) -> io::Result<()> {
        self.kill9();
        fs::remove_dir_all(self.data())?;
        self.spawn()?;
        self.ready().await
    }

    /// Stops the process where it is (SIGSTOP): connections stay open and nothing answers.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        // Its other threads go on for a moment, and an etcd answers within less than that.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.process()?), stopped)?;
        Ok(())
    }

    /// Lets a stopped process go on (SIGCONT).
    pub fn cont(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits until the member serves linearizable reads.
    pub async fn ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            let healthy = is_healthy(self.ports.health).await;
            // Looked at even when healthy: somebody else may have got the port and answer on it.
            if let Some(running) = &mut self.running
                && let Some(status) = running.child.try_wait()?
            {
                self.running = None;
                return Err(self.failure(&format!("ended with {status}")));
            }
            if healthy {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.failure(&format!("does not serve after {START_PATIENCE:?}")));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What the process has logged so far.
    pub fn log(&self) -> String {
        fs::read(self.log_path()).map_or_else(
            |error| format!("(no log: {error})"),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    pub(super) fn spawn(&mut self) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let child = Command::new(&self.options.binary)
            .args(self.arguments())
            .args(&self.options.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| {
                let binary = self.options.binary.display();
                io::Error::new(error.kind(), format!("cannot start {binary}: {error}"))
            })?;
        let guard = Guard::watch(child.id(), self.folder.path())?;
        self.running = Some(Running { guard, child });
        Ok(())
    }

    fn arguments(&self) -> Vec<String> {
        let client = self.url();
        let peer = format!("http://127.0.0.1:{}", self.ports.peer);
        let health = format!("http://127.0.0.1:{}", self.ports.health);
        let data = self.data().display().to_string();
        [
            ("--name", self.name.as_str()),
            ("--data-dir", &data),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &self.peers),
            ("--listen-metrics-urls", &health),
            // A tenth of the defaults: elections and starts take tens of milliseconds.
            ("--heartbeat-interval", "10"),
            ("--election-timeout", "100"),
            ("--logger", "zap"),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value.to_owned()])
        .collect()
    }

    fn end(&mut self, signal: Signal) {
        // Waiting for a stopped process would last for ever.
        let _ = self.cont();
        let _ = self.signal(signal);
        if let Some(Running { guard, mut child }) = self.running.take() {
            // The guard goes first: once reaped, the process id may be somebody else's.
            drop(guard);
            // Fails only when it was reaped already.
            let _ = child.wait();
        }
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        kill_process(self.process()?, signal).map_err(io::Error::from)
    }

    fn process(&self) -> io::Result<Pid> {
        let running =
            self.running.as_ref().ok_or_else(|| io::Error::other("etcd is not running"))?;
        let id = i32::try_from(running.child.id()).map_err(io::Error::other)?;
        Pid::from_raw(id).ok_or_else(|| io::Error::other("process id 0"))
    }

    fn lost_its_port(&self) -> bool {
        self.running.is_none() && self.log().contains("address already in use")
    }

    fn failure(&self, what: &str) -> io::Error {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        // A refused flag is told first, before the whole usage; most else is told last.
        let told = match lines.len() {
            0..=20 => lines.join("\n"),
            long => [&lines[..5], &["..."], &lines[long - 15..]].concat().join("\n"),
        };
        let binary = self.options.binary.display();
        io::Error::other(format!("{binary} {what}; it said:\n{told}"))
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// The folder of this member, for files a test hands to etcd (certificates and such).
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill9();
    }
}
