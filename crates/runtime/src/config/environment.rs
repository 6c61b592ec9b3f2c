//! Names of keys in the environment.

/// `EVENKEEL_REBALANCING_ENABLED` for `rebalancing.enabled`.
pub fn variable(key: &str) -> String {
    let name: String = key
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    format!("EVENKEEL_{name}")
}

/// The key that a variable names. Looked up rather than parsed: `_` also stands inside names.
pub(super) fn key_of(name: &str, keys: &[String]) -> Option<String> {
    keys.iter().find(|key| variable(key) == name).cloned()
}

/// Kubernetes puts the addresses of services into every container's environment, so a service
/// named `evenkeel-…` would look like a key: `EVENKEEL_MIGRATOR_PORT=tcp://10.0.0.7:7800`.
pub(super) fn is_service_link(name: &str, value: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.contains("_TCP_PORT")
        || name.contains("_TCP_PROTO")
        || name.contains("_TCP_ADDR")
        || value.starts_with("tcp://")
}
