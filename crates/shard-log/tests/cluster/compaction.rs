//! Compaction of the leader's log, and what each log must say for it, folded by key.

use std::collections::BTreeMap;

use bytes::Bytes;
use evenkeel_model::BrokerId;
use evenkeel_shard_log::{CompactionStep, Content, Event, ReadLimit, Record, RecordKind, Replica};

use super::{Cluster, Verdict};

/// What a log says, by key, and of records without one by producer and sequence.
type Said = BTreeMap<Bytes, Bytes>;

impl Cluster {
    /// Brokers that serve as leaders.
    pub(super) fn serving(&self) -> Vec<BrokerId> {
        let serves = |r: &Replica| r.serving_term().is_some();
        let serving = self.brokers.iter().filter(|(_, b)| b.replica.as_ref().is_some_and(serves));
        serving.map(|(name, _)| name.clone()).collect()
    }

    /// A serving leader goes on with its compaction.
    pub(super) fn compact(&mut self) -> Verdict {
        let Some(broker) = self.choices.pick(&self.serving()) else { return Ok(()) };
        let (now, most) = (self.now, 100 + self.choices.below(300));
        let replica = self.brokers.get_mut(&broker).and_then(|b| b.replica.as_mut());
        let Some(replica) = replica else { return Ok(()) };
        replica.note_keys(now, most);
        if let CompactionStep::GaveUp(start) = replica.compact(now, now as i64, most) {
            self.given_up.insert(start);
        }
        self.handle(&broker, Event::Tick)
    }

    /// A key and a value of a few, or none; sometimes one that deletes the key.
    pub(super) fn content(&mut self, text: Bytes) -> (Option<Bytes>, Bytes) {
        if !self.compacts || self.choices.percent(10) {
            return (None, text);
        }
        let key = Bytes::from(format!("k{}", self.choices.below(6)));
        let value = if self.choices.percent(15) { Bytes::new() } else { text };
        (Some(key), value)
    }

    /// Each log that holds what moved its start says what all that was ever committed says.
    pub(super) fn check_folds(&self) -> Verdict {
        if !self.compacts {
            return Ok(());
        }
        for (name, replica) in
            self.brokers.iter().filter_map(|(n, b)| Some((n, b.replica.as_ref()?)))
        {
            let (start, until) = (replica.log().start(), replica.committed());
            if until < self.moved_behind(start) {
                if replica.serving_term().is_some() {
                    return Err(format!("{name} serves {start}..{until}, not all that it must"));
                }
                continue;
            }
            let kept = replica.log().read(start, ReadLimit::bytes(until, usize::MAX));
            let kept = fold(&kept.map_err(|e| e.to_string())?, |_| true);
            let all = fold(&self.canon[..until as usize], |r| r.kind != RecordKind::Rewritten);
            if kept != all {
                return Err(format!("{name} says {kept:?} at {start}..{until}, not {all:?}"));
            }
        }
        Ok(())
    }

    /// Behind the record by which logs begin at `start`.
    fn moved_behind(&self, start: u64) -> u64 {
        let moves = |r: &&Record| {
            let to = r.payload.as_ref().try_into().map(u64::from_le_bytes);
            r.kind == RecordKind::LogStart && to.is_ok_and(|to| to >= start)
        };
        match start {
            0 => 0,
            _ => self.canon.iter().find(moves).map_or(u64::MAX, |r| r.offset + 1),
        }
    }

    /// What was written again was the newest of its key when it was.
    pub(super) fn check_rewrites(&self) -> Verdict {
        let mut said = Said::new();
        for record in &self.canon {
            let Some(content) = record.content() else { continue };
            let known = said.get(&name(record, &content));
            if content.rewrites.is_some() && known != Some(&content.value) {
                return Err(format!("{content:?} at {} hides {known:?}", record.offset));
            }
            say(&mut said, record, content);
        }
        Ok(())
    }

    /// Records that were written again.
    pub(crate) fn rewritten(&self) -> usize {
        self.canon.iter().filter(|r| r.kind == RecordKind::Rewritten).count()
    }
}

fn name(record: &Record, content: &Content) -> Bytes {
    let unnamed = || Bytes::from(format!("{}/{}", record.producer, record.sequence));
    content.key.clone().unwrap_or_else(unnamed)
}

fn say(said: &mut Said, record: &Record, content: Content) {
    let name = name(record, &content);
    if content.is_tombstone() {
        said.remove(&name);
    } else {
        said.insert(name, content.value);
    }
}

fn fold(records: &[Record], counts: impl Fn(&Record) -> bool) -> Said {
    let mut said = Said::new();
    for record in records.iter().filter(|record| counts(record)) {
        if let Some(content) = record.content() {
            say(&mut said, record, content);
        }
    }
    said
}
