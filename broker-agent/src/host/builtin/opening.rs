//! Opening a shard's bytes: what had to be done for it, or why it failed.

use std::collections::BTreeMap;

use evenkeel_model::ShardKey;
use evenkeel_shard_log::{LogError, Replica, Scanned, TornTail};

use super::shard::Equipment;

/// Why a shard could not be opened.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) error: String,
    /// What is on the disk is not what was written.
    pub(super) is_damage: bool,
    /// How often it was tried in a row.
    pub(super) tries: u32,
}

/// Opens a shard's bytes, and says what that came to. `before` is why it failed last time.
pub(super) fn open_replica(
    key: &ShardKey,
    equipment: &Equipment,
    before: Option<Failure>,
) -> Result<Replica, Failure> {
    let opened = equipment.disks.open(key).map_err(|source| LogError::Io {
        action: "open",
        file: key.to_string(),
        source,
    });
    let opened = opened.and_then(|storage| {
        Replica::open(equipment.me.clone(), key.clone(), storage, equipment.config.clone())
    });
    match opened {
        Ok((replica, torn)) => {
            tell_opened(key, &replica, torn.as_ref(), before.as_ref());
            Ok(replica)
        }
        Err(error) => Err(failed_again(key, &error, before)),
    }
}

/// Says what opening a shard had to do.
fn tell_opened(
    key: &ShardKey,
    replica: &Replica,
    torn: Option<&TornTail>,
    before: Option<&Failure>,
) {
    if let Some(before) = before {
        tracing::info!(shard = %key, tries = before.tries + 1, "opened, which had failed before");
    }
    if let Some(torn) = torn {
        tracing::warn!(shard = %key, "{torn}");
    }
    // One line for each reason: without indexes, as after an upgrade, there may be many segments.
    let mut alike: BTreeMap<&str, (usize, u64, &str)> = BTreeMap::new();
    for Scanned { file, bytes, why } in replica.log().scanned() {
        let (segments, sum, _) = alike.entry(why).or_insert((0, 0, file));
        *segments += 1;
        *sum += bytes;
    }
    for (why, (segments, bytes, first)) in alike {
        tracing::info!(shard = %key, segments, bytes, first, "closed segments were read: {why}");
    }
}

/// Says that opening a shard failed, unless that was said before.
fn failed_again(key: &ShardKey, error: &LogError, before: Option<Failure>) -> Failure {
    let is_damage = matches!(error, LogError::Corrupt { .. });
    let error = error.to_string();
    let is_news = before.as_ref().is_none_or(|before| before.error != error);
    let tries = before.map_or(0, |before| before.tries) + 1;
    if is_news {
        tracing::error!(shard = %key, "halted: {error}");
    } else {
        tracing::debug!(shard = %key, tries, "still halted: {error}");
    }
    Failure { error, is_damage, tries }
}
