//! Configuration of a migrator.

use evenkeel_model::keys::DEFAULT_ROOT;
use evenkeel_runtime::{EtcdOption, Invalid, Key, Settings};
use serde::{Deserialize, Serialize};

/// Everything that is fixed at start. What operators cap at run time is stored, not configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Name of this instance; `migrator-` and its address if empty.
    pub instance: String,
    /// Where gRPC is served.
    pub listen: String,
    /// The address that others use.
    pub advertise: Option<String>,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub metrics_listen: Option<String>,
    /// Which etcd.
    pub etcd: EtcdOption,
    /// Root of all keys.
    pub root: String,
    /// Time to live of the leader's lease.
    pub session_ttl_ms: u64,
    /// A leader whose work stands still this long gives its leadership up.
    pub progress_timeout_ms: u64,
    /// Copies at once in the cluster.
    pub copies_max_concurrent: u32,
    /// Copies at once out of one node, and into one node.
    pub copies_max_per_node: u32,
    /// Time between two rounds of grants; a grant lives two.
    pub round_ms: u64,
    /// Least time between two writes of one copy's numbers.
    pub record_interval_ms: u64,
    /// A copy with credit and without a byte for so long is tried from another source; 0 never.
    pub copy_stall_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            instance: String::new(),
            listen: "127.0.0.1:7300".to_owned(),
            advertise: None,
            metrics_listen: None,
            etcd: EtcdOption::default(),
            root: DEFAULT_ROOT.to_owned(),
            session_ttl_ms: 5_000,
            progress_timeout_ms: 10_000,
            copies_max_concurrent: 8,
            copies_max_per_node: 2,
            round_ms: 250,
            record_interval_ms: 5_000,
            copy_stall_ms: 30_000,
        }
    }
}

impl Settings for Config {
    const SERVICE: &'static str = "migrator";
    const KEYS: &'static [Key] = KEYS;

    fn check(&self) -> Result<(), Invalid> {
        if !self.root.starts_with('/') || self.root.ends_with('/') {
            let expected = "a path that starts with / and does not end with one, such as /cluster";
            return Err(Invalid::new("root", &self.root, expected));
        }
        for (key, value, from, to) in [
            ("session_ttl_ms", self.session_ttl_ms, 1_000, 600_000),
            ("progress_timeout_ms", self.progress_timeout_ms, 3_000, 600_000),
            ("round_ms", self.round_ms, 20, 2_000),
            ("record_interval_ms", self.record_interval_ms, 0, 600_000),
            ("copy_stall_ms", self.copy_stall_ms, 0, 3_600_000),
        ] {
            if value < from || value > to {
                let expected = format!("{from} to {to} milliseconds");
                return Err(Invalid::new(key, value, expected));
            }
        }
        Ok(())
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

const KEYS: &[Key] = &[
    key("instance", "text", "name of this instance", "`migrator-` and its address"),
    key("listen", "host:port", "where gRPC is served", "port 0 takes any free one"),
    key("advertise", "host:port", "the address that others use", "the one that is listened on"),
    key("metrics_listen", "host:port", "where metrics and health are served", "not served"),
    key("etcd", "embedded, spawn or URLs", "which etcd is used", "not allowed"),
    key("root", "key path", "root of all keys", "not allowed"),
    key("session_ttl_ms", "milliseconds", "time to live of the leader's lease", "not allowed"),
    key(
        "progress_timeout_ms",
        "milliseconds",
        "a leader whose work stands still this long gives its leadership up",
        "not allowed",
    ),
    key("copies_max_concurrent", "copies", "copies at once in the cluster", "every copy is held"),
    key(
        "copies_max_per_node",
        "copies",
        "copies at once out of one node, and into one node",
        "every copy is held",
    ),
    key(
        "round_ms",
        "milliseconds",
        "time between two rounds of byte grants; a grant lives two",
        "not allowed",
    ),
    key(
        "record_interval_ms",
        "milliseconds",
        "least time between two writes of one copy's progress",
        "written every round",
    ),
    key(
        "copy_stall_ms",
        "milliseconds",
        "a copy with credit and without a byte for so long is tried from another source",
        "never",
    ),
];

/// Flags of a migrator; each sets the configuration key of its name.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct Args {
    /// Name of this instance.
    #[arg(long, value_name = "NAME")]
    pub instance: Option<String>,
    /// Where gRPC is served; port 0 takes any free one.
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// The address that others use.
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Where metrics and health are served.
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics_listen: Option<String>,
    /// Which etcd: embedded[:host:port], spawn[:path], or URLs.
    #[arg(long, value_name = "ETCD")]
    pub etcd: Option<String>,
    /// Root of all keys.
    #[arg(long, value_name = "PATH")]
    pub root: Option<String>,
    /// Time to live of the leader's lease, milliseconds.
    #[arg(long, value_name = "MS")]
    pub session_ttl_ms: Option<u64>,
    /// Copies at once in the cluster.
    #[arg(long, value_name = "COPIES")]
    pub copies_max_concurrent: Option<u32>,
    /// Copies at once out of one node, and into one node.
    #[arg(long, value_name = "COPIES")]
    pub copies_max_per_node: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_documented_and_bad_values_are_named() {
        assert_eq!(evenkeel_runtime::config::check_table::<Config>(), Vec::<String>::new());
        assert_eq!(Config::default().check(), Ok(()));
        let bad = Config { root: "cluster/".to_owned(), ..Config::default() };
        assert_eq!(bad.check().unwrap_err().key, "root");
        let bad = Config { round_ms: 0, ..Config::default() };
        let expected = Invalid::new("round_ms", 0, "20 to 2000 milliseconds");
        assert_eq!(bad.check(), Err(expected));
    }
}
