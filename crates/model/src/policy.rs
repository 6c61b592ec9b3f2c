//! Placement policy: everything that can be changed while the cluster runs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Millis;

/// How brokers are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Shards led.
    Fair,
    /// 0.3 topic load, 0.35 CPU, 0.35 memory.
    #[default]
    Balanced,
    /// The four system metrics, the bottleneck at half the weight.
    WeightedLoad,
}

/// Preset of the load rebalancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggressiveness {
    /// CV 40 %, every 10 min, 5 moves an hour.
    Conservative,
    /// CV 30 %, every 5 min, 10 moves an hour.
    #[default]
    Balanced,
    /// CV 20 %, every 2 min, 20 moves an hour.
    Aggressive,
}

/// Rebalancing. A value that is set beats the preset of `aggressiveness`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RebalancingPolicy {
    /// Even out leaders per stream and in total.
    pub leaders: bool,
    /// Even out load instead of totals.
    pub enabled: bool,
    /// Preset for the three values below.
    pub aggressiveness: Aggressiveness,
    /// Act at or above this coefficient of variation, percent.
    pub cv_threshold_percent: Option<f64>,
    /// At most one move per interval, seconds.
    pub check_interval_seconds: Option<u64>,
    /// At most this many load moves in an hour; 0 holds them all.
    pub max_moves_per_hour: Option<u32>,
    /// A shard rests this long after a load move, seconds.
    pub cooldown_seconds: u64,
    /// Fewer active brokers: no load rebalancing.
    pub min_brokers_for_rebalance: u32,
    /// Shards of younger streams are left alone, seconds.
    pub min_topic_age_seconds: u64,
    /// Globs over `/<namespace>/<name>`; `*` also crosses `/`.
    pub blacklist_topics: Vec<String>,
}

impl Default for RebalancingPolicy {
    fn default() -> Self {
        Self {
            leaders: true,
            enabled: false,
            aggressiveness: Aggressiveness::Balanced,
            cv_threshold_percent: None,
            check_interval_seconds: None,
            max_moves_per_hour: None,
            cooldown_seconds: 60,
            min_brokers_for_rebalance: 2,
            min_topic_age_seconds: 300,
            blacklist_topics: Vec::new(),
        }
    }
}

impl RebalancingPolicy {
    /// Effective CV threshold, percent.
    pub fn cv_threshold(&self) -> f64 {
        self.cv_threshold_percent.unwrap_or(match self.aggressiveness {
            Aggressiveness::Conservative => 40.0,
            Aggressiveness::Balanced => 30.0,
            Aggressiveness::Aggressive => 20.0,
        })
    }

    /// Effective check interval, milliseconds.
    pub fn check_interval_ms(&self) -> Millis {
        let seconds = self.check_interval_seconds.unwrap_or(match self.aggressiveness {
            Aggressiveness::Conservative => 600,
            Aggressiveness::Balanced => 300,
            Aggressiveness::Aggressive => 120,
        });
        millis(seconds)
    }

    /// Effective hourly limit.
    pub fn moves_per_hour(&self) -> u32 {
        self.max_moves_per_hour.unwrap_or(match self.aggressiveness {
            Aggressiveness::Conservative => 5,
            Aggressiveness::Balanced => 10,
            Aggressiveness::Aggressive => 20,
        })
    }

    /// Cooldown, milliseconds.
    pub fn cooldown_ms(&self) -> Millis {
        millis(self.cooldown_seconds)
    }

    /// Minimum age of a stream, milliseconds.
    pub fn min_topic_age_ms(&self) -> Millis {
        millis(self.min_topic_age_seconds)
    }
}

fn millis(seconds: u64) -> Millis {
    Millis::try_from(seconds.saturating_mul(1000)).unwrap_or(Millis::MAX)
}

/// Placement policy. The meaning of zero is with each field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// How brokers are scored.
    pub assignment_strategy: Strategy,
    /// Scores within this of the lowest in a tier are equal, percent.
    pub tie_band_percent: f64,
    /// Floors and ceilings in proportion to the brokers' weights.
    pub capacity_weighted: bool,
    /// Moves at once in the cluster; 0 holds every move.
    pub moves_max_concurrent: u32,
    /// Copies into or out of one broker at once; none is no limit.
    pub moves_max_per_node: Option<u32>,
    /// Repairs of the first two classes at once; 0 holds them.
    pub repairs_max_concurrent: u32,
    /// Fence when the destination is this close, records, inclusive.
    pub move_fence_max_lag_records: u64,
    /// Give a move up after this; 0 never.
    pub move_timeout_ms: Millis,
    /// Give a fence up after this; 0 waits for ever.
    pub fence_timeout_ms: Millis,
    /// Replace a lost follower after this; 0 never (a short set is still topped up).
    pub restore_after_ms: Millis,
    /// Give a restore up when its position stood still this long; 0 waits for the move timeout.
    pub restore_stall_ms: Millis,
    /// New shards wait this long after the cluster's first registration for enough brokers.
    pub settle_ms: Millis,
    /// Time between passes when nothing wakes one.
    pub reconcile_interval_ms: Millis,
    /// A broker is down when it was silent this long: the time to live of its lease.
    pub broker_expiry_ms: Millis,
    /// An older load report is none.
    pub load_stale_after_ms: Millis,
    /// At or above this share of brokers lost at once, no repair copy starts, percent.
    pub mass_loss_percent: f64,
    /// A broker whose disk is used to this part gets no copies, and hands over what a follower can
    /// lead; 0 never, percent.
    pub disk_full_percent: f64,
    /// When an operator released the guard against mass loss.
    pub mass_loss_released_at_ms: Option<Millis>,
    /// Rebalancing.
    pub rebalancing: RebalancingPolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            assignment_strategy: Strategy::Balanced,
            tie_band_percent: 10.0,
            capacity_weighted: false,
            moves_max_concurrent: 1,
            moves_max_per_node: None,
            repairs_max_concurrent: 4,
            move_fence_max_lag_records: 1000,
            move_timeout_ms: 1_800_000,
            fence_timeout_ms: 120_000,
            restore_after_ms: 300_000,
            restore_stall_ms: 120_000,
            settle_ms: 10_000,
            reconcile_interval_ms: 5_000,
            broker_expiry_ms: 15_000,
            load_stale_after_ms: 90_000,
            mass_loss_percent: 40.0,
            disk_full_percent: 95.0,
            mass_loss_released_at_ms: None,
            rebalancing: RebalancingPolicy::default(),
        }
    }
}

/// A policy that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy field '{field}': {detail}")]
pub struct PolicyError {
    /// Path of the field, such as `rebalancing.enabled`.
    pub field: String,
    /// What is wrong and what was expected.
    pub detail: String,
}

impl Policy {
    /// This policy with the fields of `patch` (a JSON object) laid over it. Unknown keys are
    /// refused by name.
    pub fn merged(&self, patch: &Value) -> Result<Self, PolicyError> {
        let mut whole = serde_json::to_value(self).expect("a policy is plain data");
        merge(&mut whole, patch, "")?;
        let merged: Self = serde_json::from_value(whole.clone()).map_err(|e| PolicyError {
            field: offending_field(self, patch),
            detail: e.to_string(),
        })?;
        merged.validate()?;
        Ok(merged)
    }

    /// Checks ranges.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let percent = |field: &str, value: f64, max: f64| {
            if value.is_finite() && (0.0..=max).contains(&value) {
                return Ok(());
            }
            let detail = format!("{value} is out of range: expected 0 to {max}");
            Err(PolicyError { field: field.to_owned(), detail })
        };
        percent("tie_band_percent", self.tie_band_percent, 1000.0)?;
        percent("mass_loss_percent", self.mass_loss_percent, 100.0)?;
        percent("disk_full_percent", self.disk_full_percent, 100.0)?;
        if let Some(cv) = self.rebalancing.cv_threshold_percent {
            percent("rebalancing.cv_threshold_percent", cv, 1000.0)?;
        }
        let durations = [
            ("move_timeout_ms", self.move_timeout_ms, 0),
            ("fence_timeout_ms", self.fence_timeout_ms, 0),
            ("restore_after_ms", self.restore_after_ms, 0),
            ("restore_stall_ms", self.restore_stall_ms, 0),
            ("settle_ms", self.settle_ms, 0),
            ("reconcile_interval_ms", self.reconcile_interval_ms, 10),
            ("broker_expiry_ms", self.broker_expiry_ms, 1),
            ("load_stale_after_ms", self.load_stale_after_ms, 1),
        ];
        for (field, value, least) in durations {
            if value < least {
                let detail = format!("{value} is out of range: expected at least {least}");
                return Err(PolicyError { field: field.to_owned(), detail });
            }
        }
        Ok(())
    }
}

fn merge(into: &mut Value, patch: &Value, path: &str) -> Result<(), PolicyError> {
    let (Value::Object(into), Value::Object(patch)) = (into, patch) else {
        let field = if path.is_empty() { "(document)" } else { path };
        let detail = "expected an object".to_owned();
        return Err(PolicyError { field: field.to_owned(), detail });
    };
    for (key, value) in patch {
        let field = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let Some(known) = into.get_mut(key) else {
            let detail = "there is no such setting".to_owned();
            return Err(PolicyError { field, detail });
        };
        if known.is_object() {
            merge(known, value, &field)?;
        } else {
            *known = value.clone();
        }
    }
    Ok(())
}

/// The field of `patch` that alone makes the policy unreadable.
fn offending_field(policy: &Policy, patch: &Value) -> String {
    fn leaves(value: &Value, path: &[String], out: &mut Vec<(Vec<String>, Value)>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    leaves(value, &[path, std::slice::from_ref(key)].concat(), out);
                }
            }
            other => out.push((path.to_vec(), other.clone())),
        }
    }
    let mut all = Vec::new();
    leaves(patch, &[], &mut all);
    for (path, value) in all {
        let mut whole = serde_json::to_value(policy).expect("a policy is plain data");
        let one = path.iter().rev().fold(value, |v, key| serde_json::json!({ key: v }));
        if merge(&mut whole, &one, "").is_ok() && serde_json::from_value::<Policy>(whole).is_err() {
            return path.join(".");
        }
    }
    "(document)".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_is_laid_over_and_its_faults_are_named() {
        let policy = Policy::default();
        let merged =
            policy.merged(&json!({"settle_ms": 0, "rebalancing": {"enabled": true}})).unwrap();
        assert!(merged.rebalancing.enabled && merged.settle_ms == 0 && merged.rebalancing.leaders);
        let cases = [
            (json!({"setle_ms": 1}), "policy field 'setle_ms': there is no such setting"),
            (json!({"rebalancing": {"x": 1}}), "policy field 'rebalancing.x': there is no such"),
            (json!({"rebalancing": {"enabled": 3}}), "policy field 'rebalancing.enabled': invalid"),
            (json!({"assignment_strategy": "best"}), "policy field 'assignment_strategy': unknown"),
            (json!({"mass_loss_percent": 101}), "policy field 'mass_loss_percent': 101 is out of"),
            (json!([]), "policy field '(document)': expected an object"),
        ];
        for (patch, expected) in cases {
            let error = policy.merged(&patch).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_preset_is_a_threshold_an_interval_and_moves_per_hour() {
        let presets = [
            (Aggressiveness::Conservative, (40.0, 600_000, 5)),
            (Aggressiveness::Balanced, (30.0, 300_000, 10)),
            (Aggressiveness::Aggressive, (20.0, 120_000, 20)),
        ];
        for (aggressiveness, values) in presets {
            let r = RebalancingPolicy { aggressiveness, ..Default::default() };
            assert_eq!((r.cv_threshold(), r.check_interval_ms(), r.moves_per_hour()), values);
        }
    }

    #[test]
    fn explicit_settings_beat_the_preset() {
        let mut r =
            RebalancingPolicy { aggressiveness: Aggressiveness::Aggressive, ..Default::default() };
        assert_eq!(
            (r.cv_threshold(), r.check_interval_ms(), r.moves_per_hour()),
            (20.0, 120_000, 20)
        );
        r.max_moves_per_hour = Some(0);
        r.check_interval_seconds = Some(1);
        assert_eq!((r.check_interval_ms(), r.moves_per_hour()), (1000, 0));
    }
}
