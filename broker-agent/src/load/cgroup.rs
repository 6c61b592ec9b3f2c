//! Parsers of control group files, of both versions. What is unlimited is `None`.

/// Where this process is in the hierarchies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// Path in the unified hierarchy (version 2).
    pub unified: Option<String>,
    /// `(controllers, path)` of the version 1 hierarchies.
    pub legacy: Vec<(Vec<String>, String)>,
}

impl Membership {
    /// The path of a version 1 controller.
    pub fn legacy_path(&self, controller: &str) -> Option<&str> {
        let found = self.legacy.iter().find(|(names, _)| names.iter().any(|n| n == controller))?;
        Some(&found.1)
    }
}

/// From `/proc/self/cgroup`.
pub fn membership(text: &str) -> Membership {
    let mut membership = Membership::default();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if id == "0" && controllers.is_empty() {
            membership.unified = Some(path.to_owned());
        } else if !controllers.is_empty() {
            let names = controllers.split(',').map(str::to_owned).collect();
            membership.legacy.push((names, path.to_owned()));
        }
    }
    membership
}

/// CPUs' worth of time allowed by a version 2 `cpu.max`.
pub fn cpu_max(text: &str) -> Option<f64> {
    let mut fields = text.split_whitespace();
    let quota: f64 = fields.next()?.parse().ok()?;
    let period: f64 = fields.next().unwrap_or("100000").parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// CPUs' worth of time allowed by the version 1 `cpu.cfs_quota_us` and `cpu.cfs_period_us`.
pub fn cpu_quota(quota_us: &str, period_us: &str) -> Option<f64> {
    let quota: f64 = quota_us.trim().parse().ok()?;
    let period: f64 = period_us.trim().parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// CPU time used, in microseconds, from a version 2 `cpu.stat`.
pub fn cpu_usage_us(cpu_stat: &str) -> Option<u64> {
    field(cpu_stat, "usage_usec")
}

/// A limit in bytes; version 1 writes a huge number, version 2 the word `max`, for none.
pub fn memory_limit(text: &str) -> Option<u64> {
    const NO_LIMIT: u64 = 1 << 60;
    text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT && *bytes > 0)
}

/// Memory in use that the kernel would not give back under pressure: all but the inactive part of
/// the page cache.
pub fn memory_used(current: &str, memory_stat: &str) -> Option<u64> {
    let current: u64 = current.trim().parse().ok()?;
    let inactive =
        field(memory_stat, "total_inactive_file").or_else(|| field(memory_stat, "inactive_file"));
    Some(current.saturating_sub(inactive.unwrap_or(0)))
}

/// Bytes read and written, from a version 2 `io.stat`.
pub fn io_bytes(io_stat: &str) -> Option<u64> {
    let mut bytes = None;
    for word in io_stat.split_whitespace() {
        let value = word.strip_prefix("rbytes=").or_else(|| word.strip_prefix("wbytes="));
        if let Some(value) = value {
            *bytes.get_or_insert(0) += value.parse::<u64>().ok()?;
        }
    }
    bytes
}

/// Bytes read and written, from a version 1 `blkio.throttle.io_service_bytes`.
pub fn blkio_bytes(text: &str) -> Option<u64> {
    let mut bytes = None;
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [_, "Read" | "Write", value] = fields[..] {
            *bytes.get_or_insert(0) += value.parse::<u64>().ok()?;
        }
    }
    bytes
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_the_membership_are_read() {
        let text =
            "12:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n1:name=systemd:/x\n0::/user\n";
        let membership = membership(text);
        assert_eq!(membership.unified.as_deref(), Some("/user"));
        assert_eq!(membership.legacy_path("cpuacct"), Some("/docker/abc"));
        assert_eq!(membership.legacy_path("memory"), Some("/docker/abc"));
        assert_eq!(membership.legacy_path("blkio"), None);
    }

    #[test]
    fn quotas_are_cpus_and_no_quota_is_none() {
        assert_eq!(cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(cpu_max("max 100000\n"), None);
        assert_eq!(cpu_max(""), None);
        assert_eq!(cpu_quota("50000\n", "100000\n"), Some(0.5));
        assert_eq!(cpu_quota("-1\n", "100000\n"), None);
        assert_eq!(cpu_quota("50000", "0"), None);
    }

    #[test]
    fn memory_leaves_out_the_inactive_page_cache() {
        assert_eq!(memory_limit("max\n"), None);
        assert_eq!(memory_limit("9223372036854771712\n"), None);
        assert_eq!(memory_limit("1048576\n"), Some(1_048_576));
        assert_eq!(memory_used("1000\n", "anon 5\ninactive_file 300\n"), Some(700));
        let v1 = "inactive_file 1\ntotal_inactive_file 400\n";
        assert_eq!(memory_used("1000\n", v1), Some(600));
        assert_eq!(memory_used("x", v1), None);
    }

    #[test]
    fn io_is_summed_over_devices() {
        let v2 = "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=7 dios=0\n8:16 rbytes=1 wbytes=2\n";
        assert_eq!(io_bytes(v2), Some(33));
        assert_eq!(io_bytes(""), None);
        let v1 = "8:0 Read 5\n8:0 Write 6\n8:0 Sync 11\nTotal 11\n";
        assert_eq!(blkio_bytes(v1), Some(11));
        assert_eq!(cpu_usage_us("usage_usec 123\nuser_usec 1\n"), Some(123));
    }
}
