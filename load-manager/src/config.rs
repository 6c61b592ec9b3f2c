//! Configuration of a load manager.

use evenkeel_model::keys::DEFAULT_ROOT;
use evenkeel_model::{Millis, Policy};
use evenkeel_runtime::{EtcdOption, Invalid, Key, Settings};
use serde::{Deserialize, Serialize};

/// Everything that is fixed at start. Placement policy can be changed later through the admin
/// service; what is stored then goes before what is configured here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Name of this instance; `load-manager-` and its address if empty.
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
    /// A broker is down when its registration has been gone this long.
    pub down_grace_ms: Millis,
    /// History older than this is removed.
    pub history_keep_ms: Millis,
    /// Most history entries that are kept.
    pub history_max_entries: u32,
    /// Between two compactions of etcd.
    pub compaction_interval_ms: u64,
    /// Placement policy, under the stored one.
    pub policy: Policy,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            instance: String::new(),
            listen: "127.0.0.1:7100".to_owned(),
            advertise: None,
            metrics_listen: None,
            etcd: EtcdOption::default(),
            root: DEFAULT_ROOT.to_owned(),
            session_ttl_ms: 5_000,
            progress_timeout_ms: 15_000,
            down_grace_ms: 500,
            history_keep_ms: 86_400_000,
            history_max_entries: 10_000,
            compaction_interval_ms: 300_000,
            policy: Policy::default(),
        }
    }
}

impl Settings for Config {
    const SERVICE: &'static str = "load-manager";
    const KEYS: &'static [Key] = KEYS;

    fn check(&self) -> Result<(), Invalid> {
        if !self.root.starts_with('/') || self.root.ends_with('/') {
            let expected = "a path that starts with / and does not end with one, such as /cluster";
            return Err(Invalid::new("root", &self.root, expected));
        }
        let least = [
            ("session_ttl_ms", self.session_ttl_ms, 1_000),
            ("progress_timeout_ms", self.progress_timeout_ms, 3_000),
        ];
        for (key, value, least) in least {
            if value < least {
                return Err(Invalid::new(key, value, format!("at least {least}")));
            }
        }
        for (key, value) in
            [("down_grace_ms", self.down_grace_ms), ("history_keep_ms", self.history_keep_ms)]
        {
            if value < 0 {
                return Err(Invalid::new(key, value, "at least 0"));
            }
        }
        self.policy.validate().map_err(|error| {
            let pointer = format!("/{}", error.field.replace('.', "/"));
            let policy = serde_json::to_value(&self.policy).unwrap_or_default();
            let value = policy.pointer(&pointer).map(ToString::to_string).unwrap_or_default();
            let expected = error.detail.rsplit("expected ").next().unwrap_or_default();
            Invalid::new(format!("policy.{}", error.field), value, expected)
        })
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
    key("instance", "text", "name of this instance", "`load-manager-` and its address"),
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
    key(
        "down_grace_ms",
        "milliseconds",
        "a broker is down when its registration has been gone this long",
        "down at once",
    ),
    key("history_keep_ms", "milliseconds", "older history is removed", "kept by number alone"),
    key("history_max_entries", "entries", "most history entries that are kept", "none is kept"),
    key(
        "compaction_interval_ms",
        "milliseconds",
        "between two compactions of etcd",
        "left to etcd itself",
    ),
    key(
        "policy.assignment_strategy",
        "fair, balanced or weighted_load",
        "how brokers are scored",
        "not allowed",
    ),
    key(
        "policy.tie_band_percent",
        "percent",
        "scores within this of the lowest in a tier are equal",
        "only equal scores are",
    ),
    key(
        "policy.capacity_weighted",
        "true or false",
        "shares in proportion to the brokers' weights",
        "false: equal shares",
    ),
    key("policy.moves_max_concurrent", "moves", "moves at once in the cluster", "no move starts"),
    key(
        "policy.moves_max_per_node",
        "copies",
        "copies into or out of one broker at once",
        "absent: no limit; 0: none",
    ),
    key(
        "policy.repairs_max_concurrent",
        "copies",
        "repairs of the first two classes at once",
        "they are held",
    ),
    key(
        "policy.move_fence_max_lag_records",
        "records",
        "a move is fenced when its destination is this close",
        "only when it is level",
    ),
    key("policy.move_timeout_ms", "milliseconds", "a move is given up after this", "never"),
    key("policy.fence_timeout_ms", "milliseconds", "a fence is given up after this", "never"),
    key(
        "policy.restore_after_ms",
        "milliseconds",
        "a lost follower is replaced after this",
        "never; a short set is still topped up",
    ),
    key(
        "policy.restore_stall_ms",
        "milliseconds",
        "a restore that stands still this long is given up",
        "the move timeout holds",
    ),
    key(
        "policy.settle_ms",
        "milliseconds",
        "new shards wait this long for enough brokers in a young cluster",
        "they do not wait",
    ),
    key(
        "policy.reconcile_interval_ms",
        "milliseconds",
        "between two passes when nothing wakes one",
        "not allowed",
    ),
    key(
        "policy.broker_expiry_ms",
        "milliseconds",
        "time to live of the brokers' leases",
        "not allowed",
    ),
    key(
        "policy.load_stale_after_ms",
        "milliseconds",
        "an older load report is none",
        "not allowed",
    ),
    key(
        "policy.mass_loss_percent",
        "percent",
        "no repair copy starts when at least this share of brokers was lost at once",
        "two lost brokers are enough",
    ),
    key(
        "policy.disk_full_percent",
        "percent of the disk",
        "a broker whose disk is used to this part gets no copies, and hands over what a follower \
         leads as well",
        "no disk is full",
    ),
    key(
        "policy.mass_loss_released_at_ms",
        "milliseconds since 1970",
        "when an operator released the guard against mass loss",
        "not released",
    ),
    key("policy.rebalancing.leaders", "true or false", "even out leaders", "false: not"),
    key("policy.rebalancing.enabled", "true or false", "even out load", "false: not"),
    key(
        "policy.rebalancing.aggressiveness",
        "conservative, balanced or aggressive",
        "preset of the three keys below",
        "not allowed",
    ),
    key(
        "policy.rebalancing.cv_threshold_percent",
        "percent",
        "act at or above this coefficient of variation",
        "absent: the preset; 0: always",
    ),
    key(
        "policy.rebalancing.check_interval_seconds",
        "seconds",
        "at most one load move in this time",
        "absent: the preset; 0: no interval",
    ),
    key(
        "policy.rebalancing.max_moves_per_hour",
        "moves",
        "most load moves in an hour",
        "absent: the preset; 0: none",
    ),
    key(
        "policy.rebalancing.cooldown_seconds",
        "seconds",
        "a shard rests this long after a load move",
        "no rest",
    ),
    key(
        "policy.rebalancing.min_brokers_for_rebalance",
        "brokers",
        "fewer active brokers: load is not evened out",
        "no minimum",
    ),
    key(
        "policy.rebalancing.min_topic_age_seconds",
        "seconds",
        "shards of younger streams are left alone",
        "every stream is old enough",
    ),
    key(
        "policy.rebalancing.blacklist_topics",
        "globs over /namespace/name",
        "streams that load rebalancing leaves alone",
        "none",
    ),
];

/// Flags of a load manager; each sets the configuration key of its name.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_documented_and_the_defaults_hold() {
        assert_eq!(evenkeel_runtime::config::check_table::<Config>(), Vec::<String>::new());
        assert_eq!(Config::default().check(), Ok(()));
        let bad = Config { root: "cluster/".to_owned(), ..Config::default() };
        assert_eq!(bad.check().unwrap_err().key, "root");
        let mut bad = Config::default();
        bad.policy.settle_ms = -5;
        let expected = Invalid::new("policy.settle_ms", -5, "at least 0");
        assert_eq!(bad.check(), Err(expected));
    }
}
