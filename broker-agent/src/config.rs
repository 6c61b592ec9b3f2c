//! The broker-agent's configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use evenkeel_model::{BrokerId, broker};
use evenkeel_runtime::{EtcdOption, Invalid, Key, Settings};
use evenkeel_throttle::LawName;
use serde::{Deserialize, Serialize};

/// Every key, with its default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Which etcd.
    pub etcd: EtcdOption,
    /// Root of all keys in etcd.
    pub root: String,
    /// This broker; from the data directory if none.
    pub broker_id: Option<BrokerId>,
    /// Identity and logs.
    pub data_dir: PathBuf,
    /// Where the gRPC services listen.
    pub listen: String,
    /// Where others reach them.
    pub advertise: Option<String>,
    /// Where metrics and health listen.
    pub metrics_listen: String,
    /// Failure domain.
    pub zone: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// Most shards held in any role.
    pub max_shards: Option<u32>,
    /// Effective vCPUs; measured if none.
    pub weight: Option<f64>,
    /// Link, bytes per second.
    pub network_bytes_per_second: Option<u64>,
    /// Disk bandwidth, bytes per second.
    pub disk_bytes_per_second: Option<u64>,
    /// Life of the lease without a keep-alive.
    pub lease_ttl_ms: u64,
    /// Distance of load reports.
    pub load_report_interval_seconds: u64,
    /// Distance of the measurements that they smooth.
    pub load_sample_interval_ms: u64,
    /// How long a change takes to show by two thirds.
    pub load_smoothing_seconds: u64,
    /// Whether the machine's CPU, memory, disk and network are measured.
    pub measure_machine: bool,
    /// Longest wait of a publish between two leaders.
    pub move_hold_ms: u64,
    /// Most publishes that wait at once.
    pub move_hold_max: usize,
    /// Most client requests served at once.
    pub requests_max: usize,
    /// Most bytes of publishes that are served or wait at once.
    pub requests_max_bytes: u64,
    /// Mean latency of publishes above which fewer are taken in at once.
    pub shed_latency_ms: u64,
    /// Own request p99 that copies must not push up.
    pub copy_target_p99_ms: f64,
    /// How the copies' share of the link follows the p99.
    pub copy_law: LawName,
    /// How long a stopping broker goes on serving to hand its shards over.
    pub shutdown_handoff_timeout_ms: u64,
    /// How long bytes of a shard that others hold are kept.
    pub leftover_erase_after_ms: u64,
    /// Used part of the disk from which erasing goes before other maintenance.
    pub disk_high_water_percent: u32,
    /// The logs of the built-in host.
    pub log: LogConfig,
}

/// The logs of the built-in host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Size at which a segment file is closed.
    pub segment_bytes: u64,
    /// When appended records are synced to the disk.
    pub fsync: Fsync,
    /// Longest time between two syncs with `fsync` at `interval`.
    pub fsync_interval_ms: u64,
    /// Largest payload of one record.
    pub record_max_bytes: u32,
    /// How often closed segments are read to find decay.
    pub scrub_interval_seconds: u64,
    /// Bytes of each shard that are kept at least, where this broker leads.
    pub retention_bytes: u64,
    /// How long records are kept at least, where this broker leads.
    pub retention_seconds: u64,
    /// Superseded part of a cache's closed segments from which it is compacted, where this broker
    /// leads.
    pub cache_compaction_percent: u32,
}

/// When appended records are synced to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    /// Before they count as appended, in groups.
    #[default]
    Always,
    /// Every `fsync_interval_ms`: a crash of the machine may lose what was written since.
    Interval,
    /// When the operating system likes: survives a crash of the process, not of the machine.
    Never,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            fsync: Fsync::Always,
            fsync_interval_ms: 1000,
            record_max_bytes: 1 << 20,
            scrub_interval_seconds: 7 * 24 * 3600,
            retention_bytes: 0,
            retention_seconds: 0,
            cache_compaction_percent: 50,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            etcd: EtcdOption::default(),
            root: evenkeel_model::keys::DEFAULT_ROOT.to_owned(),
            broker_id: None,
            data_dir: "evenkeel-broker".into(),
            listen: "127.0.0.1:7720".to_owned(),
            advertise: None,
            metrics_listen: "127.0.0.1:7721".to_owned(),
            zone: None,
            region: None,
            labels: BTreeMap::new(),
            max_shards: None,
            weight: None,
            network_bytes_per_second: None,
            disk_bytes_per_second: None,
            lease_ttl_ms: 5_000,
            load_report_interval_seconds: 30,
            load_sample_interval_ms: 1_000,
            load_smoothing_seconds: 15,
            measure_machine: true,
            move_hold_ms: 2_000,
            move_hold_max: 1_024,
            requests_max: 4_096,
            requests_max_bytes: 256 << 20,
            shed_latency_ms: 100,
            copy_target_p99_ms: 100.0,
            copy_law: LawName::Steady,
            shutdown_handoff_timeout_ms: 30_000,
            leftover_erase_after_ms: 60_000,
            disk_high_water_percent: 90,
            log: LogConfig::default(),
        }
    }
}

const fn key(
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    zero: &'static str,
) -> Key {
    Key { name, unit, about, zero }
}

impl Settings for Config {
    const SERVICE: &'static str = "broker-agent";

    #[rustfmt::skip]
    const KEYS: &'static [Key] = &[
        key("etcd", "embedded, spawn or URLs", "the etcd that holds the cluster's records", "refused"),
        key("root", "path", "root of all keys in etcd", "refused"),
        key("broker_id", "id", "this broker", "the id kept in the data directory, or a new one"),
        key("data_dir", "path", "holds identity and logs; one broker-agent each", "refused"),
        key("listen", "host:port", "address of the gRPC services; port 0 takes any", "refused"),
        key("advertise", "host:port", "address that others are told", "the bound address"),
        key("metrics_listen", "host:port", "address of metrics and health; port 0 takes any", "refused"),
        key("zone", "name", "failure domain; replicas are spread over zones", "no zone"),
        key("region", "name", "region; streams may be bound to one", "no region"),
        key("labels", "name: value", "free labels", "none"),
        key("max_shards", "shards", "most shards held in any role", "absent: no limit; 0: none"),
        key("weight", "vCPUs", "share of work beside other brokers", "measured"),
        key("network_bytes_per_second", "bytes per second", "the link; rates and copies are measured against it", "1 Gbit/s"),
        key("disk_bytes_per_second", "bytes per second", "the disk's bandwidth", "200 MB/s"),
        key("lease_ttl_ms", "milliseconds", "the broker counts as gone so long after its last sign of life", "refused"),
        key("load_report_interval_seconds", "seconds", "distance of load reports", "refused"),
        key("load_sample_interval_ms", "milliseconds", "distance of load measurements", "refused"),
        key("load_smoothing_seconds", "seconds", "how long a change of load takes to show by two thirds", "not smoothed"),
        key("measure_machine", "true or false", "measure CPU, memory, disk and network", "those are reported as unknown"),
        key("move_hold_ms", "milliseconds", "longest wait of a publish between two leaders", "refused at once"),
        key("move_hold_max", "publishes", "most publishes that wait at once", "none waits"),
        key("requests_max", "requests", "most client requests served at once; more are refused with a delay", "refused"),
        key("requests_max_bytes", "bytes", "most bytes of publishes served or waiting at once; more are refused with a delay", "refused"),
        key("shed_latency_ms", "milliseconds", "mean latency of publishes above which fewer are taken in at once, if it is also half as much again as usual; the rest is refused with a delay", "only requests_max limits them"),
        key("copy_target_p99_ms", "milliseconds", "own request p99 that copies must not push up", "refused"),
        key("copy_law", "plain or steady", "how copies follow the p99", "refused"),
        key("shutdown_handoff_timeout_ms", "milliseconds", "how long a stopping broker serves to hand its shards over", "stops at once"),
        key("leftover_erase_after_ms", "milliseconds", "how long bytes of a shard that only others hold are kept at least; longer until its leader serves", "as soon as its leader serves"),
        key("disk_high_water_percent", "percent of the disk", "from here on erasing takes all that copies and maintenance may; not looked at without measure_machine", "erasing never hurries"),
        key("log.segment_bytes", "bytes", "size at which a segment file is closed", "refused"),
        key("log.fsync", "always, interval or never", "when records are synced to disk; only with always before they count", "refused"),
        key("log.fsync_interval_ms", "milliseconds", "time between two syncs with log.fsync interval", "refused"),
        key("log.record_max_bytes", "bytes", "largest payload of one record", "refused"),
        key("log.scrub_interval_seconds", "seconds", "every closed segment is read once in so long to find decay", "never"),
        key("log.retention_bytes", "bytes", "of each shard led here, closed segments beyond so many bytes are given up on all its brokers", "kept whatever their size"),
        key("log.retention_seconds", "seconds", "of each shard led here, closed segments whose records are all older are given up on all its brokers", "kept whatever their age"),
        key("log.cache_compaction_percent", "percent of closed bytes", "each cache led here is compacted while so much of it is superseded, and log.retention_* does not apply to it", "caches are not compacted, and kept like streams"),
    ];

    fn check(&self) -> Result<(), Invalid> {
        let at_least = |key: &str, value: u64, least: u64| {
            let expected = || format!("a number of at least {least}");
            if value < least { Err(Invalid::new(key, value, expected())) } else { Ok(()) }
        };
        at_least("lease_ttl_ms", self.lease_ttl_ms, 1_000)?;
        at_least("load_report_interval_seconds", self.load_report_interval_seconds, 1)?;
        at_least("load_sample_interval_ms", self.load_sample_interval_ms, 100)?;
        at_least("requests_max", self.requests_max as u64, 1)?;
        // One of the largest requests must fit.
        at_least("requests_max_bytes", self.requests_max_bytes, 8 << 20)?;
        at_least("log.fsync_interval_ms", self.log.fsync_interval_ms, 1)?;
        at_least("log.segment_bytes", self.log.segment_bytes, 64 << 10)?;
        at_least("log.record_max_bytes", self.log.record_max_bytes.into(), 1)?;
        // A gRPC message carries 4 MiB, a record and its frame among it.
        if self.log.record_max_bytes > 3 << 20 {
            let expected = "at most 3145728 bytes";
            return Err(Invalid::new("log.record_max_bytes", self.log.record_max_bytes, expected));
        }
        for (key, given) in [
            ("disk_high_water_percent", self.disk_high_water_percent),
            ("log.cache_compaction_percent", self.log.cache_compaction_percent),
        ] {
            if given > 100 {
                return Err(Invalid::new(key, given, "a number of at most 100"));
            }
        }
        if !(self.copy_target_p99_ms.is_finite() && self.copy_target_p99_ms > 0.0) {
            let expected = "a number above 0";
            return Err(Invalid::new("copy_target_p99_ms", self.copy_target_p99_ms, expected));
        }
        if let Some(weight) = self.weight.filter(|w| !(w.is_finite() && *w >= 1.0)) {
            return Err(Invalid::new("weight", weight, "a number of at least 1"));
        }
        let given = [
            ("network_bytes_per_second", self.network_bytes_per_second),
            ("disk_bytes_per_second", self.disk_bytes_per_second),
        ];
        for (key, value) in given {
            at_least(key, value.unwrap_or(1), 1)?;
        }
        if !self.root.starts_with('/') || self.root.trim_end_matches('/').is_empty() {
            return Err(Invalid::new("root", &self.root, "a path such as /cluster"));
        }
        Ok(())
    }
}

impl Config {
    /// The link that copies share, bytes per second.
    pub fn link(&self) -> u64 {
        self.network_bytes_per_second.unwrap_or(broker::DEFAULT_NETWORK_BYTES_PER_SECOND)
    }

    /// Life of the lease.
    pub fn lease_ttl(&self) -> Duration {
        Duration::from_millis(self.lease_ttl_ms)
    }
}

/// Flags; each sets the key of its name.
#[derive(Debug, Clone, Default, Serialize, clap::Args)]
pub struct Args {
    /// etcd: embedded[:host:port], spawn[:path] or URLs separated by commas.
    #[arg(long, value_name = "ETCD")]
    pub etcd: Option<String>,
    /// Root of all keys in etcd.
    #[arg(long, value_name = "PATH")]
    pub root: Option<String>,
    /// This broker's id.
    #[arg(long, value_name = "ID")]
    pub broker_id: Option<String>,
    /// Directory of identity and logs.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address of the gRPC services; port 0 takes any.
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Address that others are told.
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Address of metrics and health; port 0 takes any.
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics_listen: Option<String>,
    /// Failure domain.
    #[arg(long, value_name = "NAME")]
    pub zone: Option<String>,
    /// Region.
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Most shards held in any role.
    #[arg(long, value_name = "N")]
    pub max_shards: Option<u32>,
    /// Share of work beside other brokers, in vCPUs.
    #[arg(long, value_name = "VCPUS")]
    pub weight: Option<f64>,
    /// Link, bytes per second.
    #[arg(long, value_name = "N")]
    pub network_bytes_per_second: Option<u64>,
    /// The broker counts as gone so many milliseconds after its last sign of life.
    #[arg(long, value_name = "MS")]
    pub lease_ttl_ms: Option<u64>,
    /// Seconds between load reports.
    #[arg(long, value_name = "S")]
    pub load_report_interval_seconds: Option<u64>,
    /// How long a stopping broker serves to hand its shards over.
    #[arg(long, value_name = "MS")]
    pub shutdown_handoff_timeout_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::config::{Sources, check_table, load};
    use serde_json::json;

    #[test]
    fn every_key_is_in_the_table() {
        assert_eq!(check_table::<Config>(), Vec::<String>::new());
    }

    #[test]
    fn flags_set_the_keys_of_their_names() {
        let args = Args {
            broker_id: Some("b1".to_owned()),
            etcd: Some("http://h:1".to_owned()),
            lease_ttl_ms: Some(2000),
            ..Args::default()
        };
        let flags = serde_json::to_value(&args).unwrap();
        let config = load::<Config>(&Sources { flags, ..Sources::default() }).unwrap().config;
        assert_eq!(config.broker_id, Some("b1".parse().unwrap()));
        assert_eq!(config.lease_ttl_ms, 2000);
        assert_eq!(config.etcd.to_string(), "http://h:1");
    }

    #[test]
    fn bad_values_are_one_line_with_key_value_and_expectation() {
        let refused = |flags| {
            load::<Config>(&Sources { flags, ..Sources::default() }).err().unwrap().to_string()
        };
        assert_eq!(
            refused(json!({"lease_ttl_ms": 10})),
            "flag --lease-ttl-ms: '10' is not valid: expected a number of at least 1000"
        );
        assert_eq!(
            refused(json!({"weight": 0.5})),
            "flag --weight: '0.5' is not valid: expected a number of at least 1"
        );
        let error = refused(json!({"broker_id": "B 1"}));
        assert!(error.contains("broker id 'B 1' is not valid"), "{error}");
        let error = refused(json!({"root": "/"}));
        assert!(error.contains("expected a path such as /cluster"), "{error}");
    }
}
