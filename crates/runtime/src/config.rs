//! Configuration: defaults < YAML file < environment < flags, checked as a whole.
//!
//! A service declares one serde struct with `#[serde(default, deny_unknown_fields)]` and a table of
//! its keys. Every key has a name in the file (`rebalancing.enabled`), in the environment
//! (`EVENKEEL_REBALANCING_ENABLED`) and on the command line (`--set rebalancing.enabled=true`; most
//! have a flag of their own).

mod environment;
mod layers;
mod table;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use environment::variable;
pub use table::{check_table, table};

use layers::{Layers, Origin};

/// Seldom named by a service: read by the runtime itself or by the command line.
pub const RESERVED_VARIABLES: [&str; 11] = [
    "EVENKEEL_CONFIG",
    "EVENKEEL_LOG",
    "EVENKEEL_LOG_FORMAT",
    "EVENKEEL_ADMIN",
    "EVENKEEL_MIGRATOR",
    "EVENKEEL_BROKERS",
    "EVENKEEL_OUTPUT",
    // Of the tests, which start services with whatever they were given themselves.
    "EVENKEEL_ETCD_34",
    "EVENKEEL_ETCD_35",
    "EVENKEEL_E2E_SEEDS",
    "EVENKEEL_E2E_FIRST_SEED",
];

/// One key of a configuration, for its documented table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Dotted path, such as `rebalancing.enabled`.
    pub name: &'static str,
    /// Unit or form of the value: `milliseconds`, `bytes per second`, `host:port`.
    pub unit: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// What 0, empty or absent means.
    pub zero: &'static str,
}

/// A service's configuration.
pub trait Settings: Serialize + DeserializeOwned + Default {
    /// The service, as on the command line.
    const SERVICE: &'static str;
    /// Every key; a test holds it to the struct with [`check_table`].
    const KEYS: &'static [Key];

    /// What types cannot say. The first violation is reported with its origin.
    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

/// A value that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// Dotted path of the key.
    pub key: String,
    /// What was given.
    pub value: String,
    /// What is expected.
    pub expected: String,
}

impl Invalid {
    /// Names the key, the value and what is expected instead.
    pub fn new(key: impl Into<String>, value: impl ToString, expected: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.to_string(), expected: expected.into() }
    }
}

/// Why a configuration is refused: one line that names the source, the key and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Where the layers above the defaults come from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The YAML file.
    pub file: Option<PathBuf>,
    /// Variables that start with `EVENKEEL_`.
    pub environment: Vec<(String, String)>,
    /// `--set key=value`.
    pub set: Vec<String>,
    /// Flags of the service, as a JSON object; nulls are flags not given.
    pub flags: Value,
}

/// A configuration and where each of its values came from.
#[derive(Debug, Clone)]
pub struct Loaded<C> {
    /// The checked value.
    pub config: C,
    layers: Layers,
}

/// Loads, merges and checks.
pub fn load<C: Settings>(sources: &Sources) -> Result<Loaded<C>, ConfigError> {
    let defaults = serde_json::to_value(C::default())
        .map_err(|e| ConfigError(format!("defaults cannot be written down: {e}")))?;
    let mut layers = Layers::new(defaults);
    if let Some(path) = &sources.file {
        let origin = Origin::File(path.display().to_string());
        layers.merge::<C>(read_file(path)?, &origin)?;
    }
    for (variable, text) in &sources.environment {
        if RESERVED_VARIABLES.contains(&variable.as_str())
            || environment::is_service_link(variable, text)
        {
            continue;
        }
        let key = environment::key_of(variable, &layers.keys()).ok_or_else(|| {
            ConfigError(format!(
                "environment {variable}: unknown key, expected EVENKEEL_ and one of the keys of {}",
                C::SERVICE
            ))
        })?;
        layers.set_text::<C>(&key, text, &Origin::Environment(variable.clone()))?;
    }
    layers.merge::<C>(sources.flags.clone(), &Origin::Flag)?;
    for setting in &sources.set {
        let (key, text) = setting.split_once('=').ok_or_else(|| {
            ConfigError(format!("flag --set: '{setting}' is not valid: expected KEY=VALUE"))
        })?;
        layers.set_text::<C>(key.trim(), text, &Origin::Set)?;
    }
    let config: C = layers.read()?;
    config.check().map_err(|invalid| {
        let Invalid { key, value, expected } = invalid;
        ConfigError(format!(
            "{}: '{value}' is not valid: expected {expected}",
            layers.describe(&key)
        ))
    })?;
    Ok(Loaded { config, layers })
}

impl<C> Loaded<C> {
    /// The effective configuration as YAML, each value with the place it came from.
    pub fn print(&self) -> String {
        self.layers.print()
    }
}

fn read_file(path: &Path) -> Result<Value, ConfigError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| {
        ConfigError(format!("config file {shown}: cannot be read: {e}: expected a YAML file"))
    })?;
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_yaml_ng::from_str(&text).map_err(|e| {
        ConfigError(format!("config file {shown}: not YAML: {}", one_line(&e.to_string())))
    })
}

/// Errors of libraries may span lines; ours never do.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Variables of the process's environment that start with `EVENKEEL_`, in order of name.
pub fn process_environment() -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with("EVENKEEL_"))
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect();
    variables.sort();
    variables
}

#[cfg(test)]
mod tests;
