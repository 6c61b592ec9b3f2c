//! Whether a process can do its work, as named conditions.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// Named conditions; ready when none stands against it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Health(Arc<watch::Sender<BTreeMap<&'static str, String>>>);

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl Health {
    /// Ready until something is said against it.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeMap::new())))
    }

    /// `condition` holds.
    pub fn ready(&self, condition: &'static str) {
        self.0.send_if_modified(|missing| missing.remove(condition).is_some());
    }

    /// `condition` does not hold, and why.
    pub fn not_ready(&self, condition: &'static str, reason: impl Into<String>) {
        let reason = reason.into();
        self.0.send_if_modified(|missing| {
            if missing.get(condition) == Some(&reason) {
                return false;
            }
            missing.insert(condition, reason);
            true
        });
    }

    /// Whether every condition holds.
    pub fn is_ready(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// What does not hold, one `condition: reason` a line; empty when ready.
    pub fn describe(&self) -> String {
        let missing = self.0.borrow();
        missing.iter().map(|(condition, reason)| format!("{condition}: {reason}\n")).collect()
    }

    /// Follows the changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<BTreeMap<&'static str, String>> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_only_when_nothing_stands_against_it() {
        let health = Health::new();
        assert!(health.is_ready());
        health.not_ready("etcd", "no session yet");
        health.not_ready("view", "not listed yet");
        assert_eq!(health.describe(), "etcd: no session yet\nview: not listed yet\n");
        health.ready("etcd");
        assert!(!health.is_ready());
        health.ready("view");
        assert!(health.is_ready());
    }
}
