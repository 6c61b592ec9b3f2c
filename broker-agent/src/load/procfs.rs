//! Parsers of the texts under `/proc`. A text of another form gives `None`: unknown, not idle.

/// CPU time since boot, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTicks {
    /// Not idle.
    pub busy: u64,
    /// All.
    pub total: u64,
}

/// Physical memory, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What cannot be had without taking it from somebody.
    pub used: u64,
    /// All there is.
    pub total: u64,
}

/// The sum over all CPUs, from `/proc/stat`.
pub fn cpu_ticks(stat: &str) -> Option<CpuTicks> {
    let line = stat.lines().find(|l| l.starts_with("cpu "))?;
    let fields: Vec<u64> =
        line.split_whitespace().skip(1).map(|f| f.parse().ok()).collect::<Option<_>>()?;
    if fields.len() < 4 {
        return None;
    }
    // Guest time is counted in user time already; waiting for a disk is idle.
    let total: u64 = fields.iter().take(8).sum();
    let idle = fields[3] + fields.get(4).copied().unwrap_or(0);
    Some(CpuTicks { busy: total.saturating_sub(idle), total })
}

/// From `/proc/meminfo`.
pub fn memory(meminfo: &str) -> Option<Memory> {
    let kib = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    let (total, available) = (kib("MemTotal:")?, kib("MemAvailable:")?);
    (total > 0)
        .then(|| Memory { used: total.saturating_sub(available) * 1024, total: total * 1024 })
}

/// Bytes read and written by whole devices since boot, from `/proc/diskstats`.
pub fn disk_bytes(diskstats: &str) -> Option<u64> {
    const SECTOR: u64 = 512;
    let mut sectors = 0_u64;
    let mut seen: Vec<&str> = Vec::new();
    for line in diskstats.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, name, _, _, read, _, _, _, written, ..] = fields[..] else { continue };
        // What stacks on other devices would count the same bytes twice.
        let stacked =
            ["loop", "ram", "dm-", "md", "zram", "sr"].iter().any(|p| name.starts_with(p));
        let partition = seen.iter().any(|device| is_partition(name, device));
        if stacked || partition {
            continue;
        }
        seen.push(name);
        sectors += read.parse::<u64>().ok()? + written.parse::<u64>().ok()?;
    }
    (!seen.is_empty()).then_some(sectors * SECTOR)
}

/// `sda1` of `sda`, `nvme0n1p2` of `nvme0n1`.
fn is_partition(name: &str, device: &str) -> bool {
    let Some(rest) = name.strip_prefix(device) else { return false };
    let number = rest.strip_prefix('p').unwrap_or(rest);
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

/// Bytes received and sent by every interface but the loopback, from `/proc/net/dev`.
pub fn network_bytes(dev: &str) -> Option<u64> {
    let mut bytes = None;
    for line in dev.lines() {
        let Some((name, counters)) = line.split_once(':') else { continue };
        if name.trim() == "lo" {
            bytes.get_or_insert(0);
            continue;
        }
        let counters: Vec<&str> = counters.split_whitespace().collect();
        let received: u64 = counters.first()?.parse().ok()?;
        let sent: u64 = counters.get(8)?.parse().ok()?;
        *bytes.get_or_insert(0) += received + sent;
    }
    bytes
}

/// How many CPUs this process may run on, from `/proc/self/status`.
pub fn allowed_cpus(status: &str) -> Option<u32> {
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?.trim();
    let mut count = 0;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count += last.checked_sub(first)? + 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_counts_waiting_for_disks_as_idle_and_guests_once() {
        let stat = "cpu  100 5 45 800 40 3 7 0 90 1\ncpu0 1 2 3 4\nintr 5\n";
        assert_eq!(cpu_ticks(stat), Some(CpuTicks { busy: 160, total: 1000 }));
        assert_eq!(cpu_ticks("cpu  1 2\n"), None);
        assert_eq!(cpu_ticks("cpu  1 2 x 4\n"), None);
        assert_eq!(cpu_ticks(""), None);
    }

    #[test]
    fn memory_is_what_is_not_available() {
        let text = "MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    400 kB\n";
        assert_eq!(memory(text), Some(Memory { used: 600 * 1024, total: 1000 * 1024 }));
        assert_eq!(memory("MemTotal: 1000 kB\n"), None);
    }

    #[test]
    fn disks_are_counted_once() {
        let text = "   8       0 sda 10 0 100 0 5 0 50 0 0 0 0\n\
                    \x20  8       1 sda1 10 0 100 0 5 0 50 0 0 0 0\n\
                    \x20259       0 nvme0n1 1 0 7 0 1 0 3 0 0 0 0\n\
                    \x20259       1 nvme0n1p1 1 0 7 0 1 0 3 0 0 0 0\n\
                    \x20253       0 dm-0 1 0 100 0 1 0 3 0 0 0 0\n\
                    \x20  7       0 loop0 1 0 100 0 1 0 3 0 0 0 0\n";
        assert_eq!(disk_bytes(text), Some((150 + 10) * 512));
        assert_eq!(disk_bytes(""), None);
    }

    #[test]
    fn the_loopback_is_no_network() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets\n\
                    \x20   lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n\
                    \x20 eth0: 100 1 0 0 0 0 0 0 23 1 0 0 0 0 0 0\n";
        assert_eq!(network_bytes(text), Some(123));
        assert_eq!(network_bytes("    lo: 900 1 0 0 0 0 0 0 900 1\n"), Some(0));
        assert_eq!(network_bytes("eth0: x"), None);
    }

    #[test]
    fn cpus_are_counted_over_ranges() {
        assert_eq!(allowed_cpus("Name: x\nCpus_allowed_list:\t0-3,8,10-11\n"), Some(7));
        assert_eq!(allowed_cpus("Cpus_allowed_list:\tx\n"), None);
        assert_eq!(allowed_cpus("Cpus_allowed_list:\t3-1\n"), None);
    }
}
