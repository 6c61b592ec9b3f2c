//! What the machine, or the container on it, has and uses.
//!
//! Where a control group limits CPU or memory, percentages are of that limit and disk bytes are the
//! group's own; otherwise they are the machine's. Network bytes are those of the process's network
//! namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::smoothing::{Rate, Smoothed};
use super::{cgroup, procfs};

/// One reading. What cannot be read is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    /// CPUs that this process may use, fractions included, at least 1.
    pub cpus: Option<f64>,
    /// CPU use so far, and what 100 % of it would have been.
    pub cpu: Option<CpuUse>,
    /// 0–100 of the memory that may be used.
    pub memory_percent: Option<f64>,
    /// Bytes read and written so far.
    pub disk_bytes: Option<u64>,
    /// Bytes received and sent so far.
    pub network_bytes: Option<u64>,
}

/// Two ways to tell CPU use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CpuUse {
    /// The machine's ticks.
    Machine(procfs::CpuTicks),
    /// Microseconds used by a group that may use so many CPUs.
    Group {
        /// CPU time used.
        used_us: u64,
        /// Its quota.
        cpus: f64,
    },
}

/// Reads one machine's files.
#[derive(Debug, Clone)]
pub struct Machine {
    proc: PathBuf,
    cgroup: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self { proc: "/proc".into(), cgroup: "/sys/fs/cgroup".into() }
    }
}

impl Machine {
    /// A machine whose files are elsewhere.
    pub fn at(proc: impl Into<PathBuf>, cgroup: impl Into<PathBuf>) -> Self {
        Self { proc: proc.into(), cgroup: cgroup.into() }
    }

    /// Reads what there is.
    pub fn read(&self) -> Reading {
        let group = self.group();
        let allowed =
            self.proc("self/status").and_then(|t| procfs::allowed_cpus(&t)).map(f64::from);
        let cpus = match (allowed, group.cpus) {
            (Some(allowed), Some(quota)) => Some(allowed.min(quota)),
            (allowed, quota) => allowed.or(quota),
        };
        let limited = group.cpus.is_some() || group.memory_percent.is_some();
        let machine_disk = || self.proc("diskstats").and_then(|t| procfs::disk_bytes(&t));
        let machine_memory = || {
            let memory = procfs::memory(&self.proc("meminfo")?)?;
            Some(memory.used as f64 / memory.total as f64 * 100.0)
        };
        let cpu = match (group.cpus, group.cpu_us) {
            (Some(cpus), Some(used_us)) => Some(CpuUse::Group { used_us, cpus }),
            _ => self.proc("stat").and_then(|t| procfs::cpu_ticks(&t)).map(CpuUse::Machine),
        };
        Reading {
            cpus: cpus.map(|c| c.max(1.0)),
            cpu,
            memory_percent: group.memory_percent.or_else(machine_memory),
            disk_bytes: group.disk_bytes.filter(|_| limited).or_else(machine_disk),
            network_bytes: self.proc("self/net/dev").and_then(|t| procfs::network_bytes(&t)),
        }
    }

    fn proc(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.proc.join(file)).ok()
    }

    fn group(&self) -> Group {
        let membership =
            self.proc("self/cgroup").map(|t| cgroup::membership(&t)).unwrap_or_default();
        if membership.legacy_path("memory").is_some() || membership.legacy_path("cpu").is_some() {
            return self.legacy_group(&membership);
        }
        match membership.unified {
            Some(path) => self.unified_group(&path),
            None => Group::default(),
        }
    }

    /// The tightest limit on the way to the root binds; use is told for the group that has it.
    fn unified_group(&self, path: &str) -> Group {
        let mut group = Group::default();
        for dir in ancestors(&self.cgroup, path) {
            let text = |file: &str| fs::read_to_string(dir.join(file)).ok();
            if let Some(cpus) = text("cpu.max").and_then(|t| cgroup::cpu_max(&t))
                && group.cpus.is_none_or(|tighter| cpus < tighter)
            {
                group.cpus = Some(cpus);
                group.cpu_us = text("cpu.stat").and_then(|t| cgroup::cpu_usage_us(&t));
            }
            let limit = text("memory.max").and_then(|t| cgroup::memory_limit(&t));
            let current = text("memory.current");
            group.limit_memory(limit, current, text("memory.stat"));
            if group.disk_bytes.is_none() {
                group.disk_bytes = text("io.stat").and_then(|t| cgroup::io_bytes(&t));
            }
        }
        group
    }

    fn legacy_group(&self, membership: &cgroup::Membership) -> Group {
        let mut group = Group::default();
        let dirs = |controller: &str| {
            let path = membership.legacy_path(controller).unwrap_or("/");
            ancestors(&self.cgroup.join(controller), path)
        };
        let text = |dir: &Path, file: &str| fs::read_to_string(dir.join(file)).ok();
        for dir in dirs("cpu") {
            let quota = text(&dir, "cpu.cfs_quota_us").zip(text(&dir, "cpu.cfs_period_us"));
            if let Some(cpus) = quota.and_then(|(q, p)| cgroup::cpu_quota(&q, &p))
                && group.cpus.is_none_or(|tighter| cpus < tighter)
            {
                group.cpus = Some(cpus);
            }
        }
        let used_ns = dirs("cpuacct")
            .iter()
            .find_map(|dir| text(dir, "cpuacct.usage")?.trim().parse::<u64>().ok());
        group.cpu_us = used_ns.map(|ns| ns / 1000);
        for dir in dirs("memory") {
            let limit = text(&dir, "memory.limit_in_bytes").and_then(|t| cgroup::memory_limit(&t));
            let current = text(&dir, "memory.usage_in_bytes");
            group.limit_memory(limit, current, text(&dir, "memory.stat"));
        }
        group.disk_bytes = dirs("blkio").iter().find_map(|dir| {
            let recursive = "blkio.throttle.io_service_bytes_recursive";
            let file =
                text(dir, recursive).or_else(|| text(dir, "blkio.throttle.io_service_bytes"));
            cgroup::blkio_bytes(&file?)
        });
        group
    }
}

#[derive(Debug, Default)]
struct Group {
    cpus: Option<f64>,
    cpu_us: Option<u64>,
    memory_limit: Option<u64>,
    memory_percent: Option<f64>,
    disk_bytes: Option<u64>,
}

impl Group {
    fn limit_memory(&mut self, limit: Option<u64>, current: Option<String>, stat: Option<String>) {
        let Some(limit) = limit.filter(|l| self.memory_limit.is_none_or(|tighter| *l < tighter))
        else {
            return;
        };
        let used = current
            .and_then(|current| cgroup::memory_used(&current, stat.as_deref().unwrap_or_default()));
        self.memory_limit = Some(limit);
        self.memory_percent = used.map(|used| (used as f64 / limit as f64 * 100.0).min(100.0));
    }
}

/// The group's directory, then its parents up to the root. Inside a container the path is often
/// the outside's, and only the root is there.
fn ancestors(root: &Path, path: &str) -> Vec<PathBuf> {
    let own = root.join(path.trim_start_matches('/'));
    own.ancestors().take_while(|dir| dir.starts_with(root)).map(Path::to_owned).collect()
}

/// Smoothed use of the machine.
#[derive(Debug, Default)]
pub struct MachineLoad {
    last_cpu: Option<CpuUse>,
    cpu: Smoothed,
    memory: Smoothed,
    disk: Rate,
    network: Rate,
}

impl MachineLoad {
    /// Takes in a reading made `elapsed` after the last.
    pub fn add(&mut self, reading: &Reading, elapsed: Duration, time_constant: Duration) {
        let percent = self.last_cpu.zip(reading.cpu).and_then(|(a, b)| cpu_percent(a, b, elapsed));
        if let Some(percent) = percent {
            self.cpu.add(percent, elapsed, time_constant);
        }
        self.last_cpu = reading.cpu;
        if let Some(percent) = reading.memory_percent {
            self.memory.add(percent, elapsed, time_constant);
        }
        self.disk.read(reading.disk_bytes, elapsed, time_constant);
        self.network.read(reading.network_bytes, elapsed, time_constant);
    }

    /// 0–100.
    pub fn cpu_percent(&self) -> Option<f64> {
        self.cpu.value()
    }

    /// 0–100.
    pub fn memory_percent(&self) -> Option<f64> {
        self.memory.value()
    }

    /// Bytes per second read and written.
    pub fn disk_bytes_per_second(&self) -> Option<f64> {
        self.disk.per_second()
    }

    /// Bytes per second received and sent.
    pub fn network_bytes_per_second(&self) -> Option<f64> {
        self.network.per_second()
    }
}

fn cpu_percent(before: CpuUse, after: CpuUse, elapsed: Duration) -> Option<f64> {
    let share = match (before, after) {
        (CpuUse::Machine(before), CpuUse::Machine(after)) => {
            let total = after.total.checked_sub(before.total).filter(|t| *t > 0)?;
            after.busy.saturating_sub(before.busy) as f64 / total as f64
        }
        (CpuUse::Group { used_us: before, .. }, CpuUse::Group { used_us: after, cpus }) => {
            let allowed_us = elapsed.as_micros() as f64 * cpus;
            after.checked_sub(before)? as f64 / allowed_us
        }
        _ => return None,
    };
    share.is_finite().then(|| (share * 100.0).clamp(0.0, 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn machine(root: &Path) -> Machine {
        put(root, "proc/stat", "cpu  100 0 100 800 0 0 0 0\n");
        put(root, "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 750 kB\n");
        put(root, "proc/diskstats", " 8 0 sda 1 0 2 0 1 0 4 0\n");
        put(root, "proc/self/net/dev", "eth0: 10 0 0 0 0 0 0 0 5 0\n");
        put(root, "proc/self/status", "Cpus_allowed_list: 0-7\n");
        Machine::at(root.join("proc"), root.join("cgroup"))
    }

    #[test]
    fn without_limits_the_machine_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let reading = machine(dir.path()).read();
        let ticks = procfs::CpuTicks { busy: 200, total: 1000 };
        let expected = Reading {
            cpus: Some(8.0),
            cpu: Some(CpuUse::Machine(ticks)),
            memory_percent: Some(25.0),
            disk_bytes: Some(6 * 512),
            network_bytes: Some(15),
        };
        assert_eq!(reading, expected);
    }

    #[test]
    fn the_tightest_limit_of_a_version_2_hierarchy_binds() {
        let dir = tempfile::tempdir().unwrap();
        let machine = machine(dir.path());
        put(dir.path(), "proc/self/cgroup", "0::/pod/box\n");
        put(dir.path(), "cgroup/pod/box/cpu.max", "max 100000\n");
        put(dir.path(), "cgroup/pod/box/memory.max", "2000\n");
        put(dir.path(), "cgroup/pod/box/memory.current", "900\n");
        put(dir.path(), "cgroup/pod/box/memory.stat", "inactive_file 100\n");
        put(dir.path(), "cgroup/pod/box/io.stat", "8:0 rbytes=7 wbytes=3\n");
        put(dir.path(), "cgroup/pod/cpu.max", "250000 100000\n");
        put(dir.path(), "cgroup/pod/cpu.stat", "usage_usec 77\n");
        put(dir.path(), "cgroup/pod/memory.max", "4000\n");
        put(dir.path(), "cgroup/pod/memory.current", "4000\n");
        let reading = machine.read();
        assert_eq!(reading.cpus, Some(2.5));
        assert_eq!(reading.cpu, Some(CpuUse::Group { used_us: 77, cpus: 2.5 }));
        assert_eq!(reading.memory_percent, Some(40.0));
        assert_eq!(reading.disk_bytes, Some(10));
    }

    #[test]
    fn a_version_1_container_sees_only_the_root_of_its_hierarchies() {
        let dir = tempfile::tempdir().unwrap();
        let machine = machine(dir.path());
        put(dir.path(), "proc/self/cgroup", "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n");
        put(dir.path(), "cgroup/cpu/cpu.cfs_quota_us", "50000\n");
        put(dir.path(), "cgroup/cpu/cpu.cfs_period_us", "100000\n");
        put(dir.path(), "cgroup/cpuacct/cpuacct.usage", "5000000\n");
        put(dir.path(), "cgroup/memory/memory.limit_in_bytes", "1000\n");
        put(dir.path(), "cgroup/memory/memory.usage_in_bytes", "500\n");
        let reading = machine.read();
        assert_eq!(reading.cpus, Some(1.0), "a weight is at least 1");
        assert_eq!(reading.cpu, Some(CpuUse::Group { used_us: 5000, cpus: 0.5 }));
        assert_eq!(reading.memory_percent, Some(50.0));
        assert_eq!(reading.disk_bytes, Some(6 * 512));
    }

    #[test]
    fn nothing_readable_is_nothing_known() {
        let dir = tempfile::tempdir().unwrap();
        let reading = Machine::at(dir.path(), dir.path()).read();
        assert_eq!(reading, Reading::default());
        let mut load = MachineLoad::default();
        load.add(&reading, Duration::from_secs(1), Duration::ZERO);
        assert_eq!(load.cpu_percent(), None);
    }

    #[test]
    fn cpu_is_a_share_of_what_may_be_used() {
        let mut load = MachineLoad::default();
        let group = |used_us| Reading {
            cpu: Some(CpuUse::Group { used_us, cpus: 2.0 }),
            ..Reading::default()
        };
        load.add(&group(0), Duration::from_secs(1), Duration::ZERO);
        load.add(&group(500_000), Duration::from_secs(1), Duration::ZERO);
        assert_eq!(load.cpu_percent(), Some(25.0));
    }
}
