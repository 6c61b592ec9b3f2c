//! Where it ran: a figure says little without it.

use std::fmt;
use std::fs;
use std::process::Command;

use evenkeel_testkit::EtcdVersion;
use serde_json::{Value, json};

/// The machine of a run.
#[derive(Debug)]
pub struct Machine {
    cores: usize,
    processor: String,
    memory_gib: u64,
    kernel: String,
    etcd: String,
    load_before: String,
    load_after: String,
}

impl Machine {
    /// Looks around; the load is read again by [`Self::finished`].
    pub fn look(etcd: EtcdVersion) -> Self {
        let memory: Option<u64> = line("/proc/meminfo", "MemTotal:")
            .and_then(|text| text.trim_end_matches("kB").trim().parse().ok());
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: line("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            memory_gib: memory.map_or(0, |kib| (kib + (1 << 19)) >> 20),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
            etcd: release(etcd).unwrap_or_else(unknown),
            load_before: load(),
            load_after: String::new(),
        }
    }

    /// The run is over: reads the load again.
    pub fn finished(&mut self) {
        self.load_after = load();
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({
            "cores": self.cores, "processor": self.processor, "memory_gib": self.memory_gib,
            "kernel": self.kernel, "etcd": self.etcd, "evenkeel": env!("CARGO_PKG_VERSION"),
            "load_before": self.load_before, "load_after": self.load_after,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} cores ({}), {} GiB, Linux {}",
            self.cores, self.processor, self.memory_gib, self.kernel
        )?;
        writeln!(f, "Evenkeel {}, etcd {}", env!("CARGO_PKG_VERSION"), self.etcd)?;
        write!(f, "load (1, 5, 15 min) {} before, {} after", self.load_before, self.load_after)
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn read(file: &str) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

/// The rest of the first line that begins with `name`.
fn line(file: &str, name: &str) -> Option<String> {
    let text = read(file)?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim_matches([' ', '\t', ':']).to_owned())
}

fn load() -> String {
    let text = read("/proc/loadavg").unwrap_or_else(unknown);
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn release(version: EtcdVersion) -> Option<String> {
    let output = Command::new(version.find()?).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let release = text.lines().find_map(|line| line.strip_prefix("etcd Version:"))?;
    Some(release.trim().to_owned())
}
