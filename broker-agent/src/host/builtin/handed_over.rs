//! What this broker knows of a shard that it handed over.

use std::sync::Arc;

use evenkeel_model::ShardKey;
use evenkeel_shard_log::storage::Storage;
use evenkeel_shard_log::{Log, LogConfig, LogError, Memo};

use super::shard::off_the_runtime;
use super::{HandedOver, Hosted};

impl Hosted {
    /// Where the log of a shard ended that this broker handed over and holds no more.
    pub(super) async fn handed_over(&self, key: &ShardKey) -> Result<Option<HandedOver>, String> {
        let _changing = self.changing.read().await;
        if self.shard(key).is_some() {
            return Ok(None);
        }
        let disks = &self.equipment.disks;
        let read = || {
            let storage = disks.open(key).map_err(|e| format!("cannot open {key}: {e}"))?;
            drained(storage, self.equipment.config.log).map_err(|e| e.to_string())
        };
        off_the_runtime(disks.is_blocking(), read)
    }
}

/// What the last duty was and came to, if that was to drain.
fn drained(storage: Arc<dyn Storage>, config: LogConfig) -> Result<Option<HandedOver>, LogError> {
    let memo = Memo::load(&storage)?;
    let generation = memo.drained_at;
    if memo.held.is_none_or(|held| held.generation != generation) {
        return Ok(None);
    }
    // An older version noted no end; nothing was written since it drained.
    let log_end = match memo.drained_end {
        0 => Log::open(storage, config)?.0.end(),
        end => end,
    };
    Ok(Some(HandedOver { generation, log_end }))
}
