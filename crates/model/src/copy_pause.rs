//! Operators' pauses of copies: of a class, or of one shard.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{CopyClass, Millis, ShardKey, record_version};

/// What a pause of copies holds. As text, and in keys: `class/drain` or `shard/stream/d/s/0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum PauseScope {
    /// Every copy of a class.
    Class(CopyClass),
    /// The copy of a shard, whatever its class.
    Shard(ShardKey),
}

impl PauseScope {
    /// Whether a copy is held by it.
    pub fn holds(&self, class: CopyClass, shard: &ShardKey) -> bool {
        match self {
            Self::Class(held) => *held == class,
            Self::Shard(held) => held == shard,
        }
    }
}

impl fmt::Display for PauseScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(class) => write!(f, "class/{}", class.as_str()),
            Self::Shard(shard) => write!(f, "shard/{shard}"),
        }
    }
}

/// Text that is no [`PauseScope`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scope '{0}' is not valid: expected class/CLASS or shard/SHARD")]
pub struct PauseScopeError(pub String);

impl FromStr for PauseScope {
    type Err = PauseScopeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let scope = match text.split_once('/') {
            Some(("class", word)) => word.parse().ok().map(Self::Class),
            Some(("shard", shard)) => shard.parse().ok().map(Self::Shard),
            _ => None,
        };
        scope.ok_or_else(|| PauseScopeError(text.to_owned()))
    }
}

impl TryFrom<String> for PauseScope {
    type Error = PauseScopeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PauseScope> for String {
    fn from(scope: PauseScope) -> Self {
        scope.to_string()
    }
}

/// An operator's pause of copies, written by the migrator's leader. It is kept for a while after its
/// end: the time that it held copies does not count against their moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyPauseRecord {
    /// Layout version.
    #[serde(default = "record_version")]
    pub v: u32,
    /// What it holds.
    pub scope: PauseScope,
    /// Who paused.
    pub by: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Since when, on the migrator's clock.
    pub at_ms: Millis,
    /// When it ends, or ended; never by itself if none.
    #[serde(default)]
    pub until_ms: Option<Millis>,
}

impl CopyPauseRecord {
    /// Whether it holds what it names at this time.
    pub fn is_on(&self, now_ms: Millis) -> bool {
        self.until_ms.is_none_or(|until| now_ms < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_its_text_and_back() {
        for text in ["class/drain", "class/last_copy", "shard/stream/default/orders/3"] {
            let scope: PauseScope = text.parse().unwrap();
            assert_eq!(scope.to_string(), text);
        }
        for bad in ["", "class", "class/none", "shard/", "shard/x", "drain"] {
            assert_eq!(bad.parse::<PauseScope>(), Err(PauseScopeError(bad.to_owned())));
        }
    }

    #[test]
    fn a_pause_holds_its_class_or_its_shard_until_its_end() {
        let (one, two) = ("stream/d/s/1".parse().unwrap(), "stream/d/s/2".parse().unwrap());
        let class: PauseScope = "class/balance".parse().unwrap();
        assert!(class.holds(CopyClass::Balance, &one) && !class.holds(CopyClass::Drain, &one));
        let shard: PauseScope = "shard/stream/d/s/1".parse().unwrap();
        assert!(shard.holds(CopyClass::LastCopy, &one) && !shard.holds(CopyClass::LastCopy, &two));
        let text = r#"{"scope":"class/drain","by":"ann","at_ms":5,"until_ms":9}"#;
        let pause: CopyPauseRecord = serde_json::from_str(text).unwrap();
        assert!(pause.is_on(8) && !pause.is_on(9));
        assert!(CopyPauseRecord { until_ms: None, ..pause }.is_on(Millis::MAX));
    }
}
