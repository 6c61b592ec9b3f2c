//! What is done for the logs beside replication: records are given up, indexes made, files erased.

use evenkeel_model::BrokerId;
use evenkeel_shard_log::{Event, IndexStep, RecordKind, Replica};

use super::{Cluster, Verdict};

impl Cluster {
    /// One of these, somewhere.
    pub(super) fn upkeep(&mut self) -> Verdict {
        let open: Vec<BrokerId> = self
            .brokers
            .iter()
            .filter(|(_, b)| b.replica.is_some())
            .map(|(name, _)| name.clone())
            .collect();
        let Some(broker) = self.choices.pick(&open) else { return Ok(()) };
        if !self.compacts && self.choices.percent(40) {
            return self.give_up();
        }
        let erases = self.choices.percent(30);
        let replica = self.brokers.get_mut(&broker).and_then(|b| b.replica.as_mut());
        let Some(replica) = replica else { return Ok(()) };
        let done = if erases { erase(replica) } else { index(replica) };
        done.map_err(|e| e.to_string())
    }

    /// A serving leader is asked to begin later.
    fn give_up(&mut self) -> Verdict {
        let Some(broker) = self.choices.pick(&self.serving()) else { return Ok(()) };
        let replica = self.brokers[&broker].replica.as_ref();
        let Some((start, committed)) = replica.map(|r| (r.log().start(), r.committed())) else {
            return Ok(());
        };
        let offset = start + self.choices.below((committed - start + 1) as usize) as u64;
        self.given_up.insert(offset);
        let timestamp_ms = self.now as i64;
        self.handle(&broker, Event::GiveUpBefore { offset, timestamp_ms })
    }

    /// Whether the record at `offset` was given up before the one at `later` was written: a
    /// repeated record is known only while the first one is kept.
    pub(super) fn was_given_up(&self, offset: u64, later: u64) -> bool {
        let before = self.canon.iter().take_while(|record| record.offset < later);
        before.filter(|record| record.kind == RecordKind::LogStart).any(|record| {
            record.payload.as_ref().try_into().is_ok_and(|le| u64::from_le_bytes(le) > offset)
        })
    }
}

fn index(replica: &mut Replica) -> Result<(), evenkeel_shard_log::LogError> {
    let Some(mut job) = replica.log().next_index() else { return Ok(()) };
    while !job.is_whole() {
        if job.step(u64::MAX)? == IndexStep::NeedsEarlier {
            replica.forget_index_before(&job);
            return Ok(());
        }
    }
    let content = job.content();
    job.prepare(&content)?;
    replica.install_index(&job)?;
    Ok(())
}

fn erase(replica: &mut Replica) -> Result<(), evenkeel_shard_log::LogError> {
    match replica.log().removed().first().cloned() {
        Some(segment) => replica.erase_removed(&segment),
        None => Ok(()),
    }
}
