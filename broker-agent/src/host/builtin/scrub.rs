//! Reads every closed segment once in an interval, to find decay while there are other replicas to
//! recover from.
//!
//! When each shard was last read, and how far the reading of the present one is, survives a
//! restart: a broker with many bytes gets round however often it is restarted.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_model::{Millis, ShardKey};
use evenkeel_shard_log::ClosedSegment;
use evenkeel_shard_log::storage::Storage;
use serde::{Deserialize, Serialize};

use super::Hosted;
use super::decay::halts;
use super::shard::{Shard, off_the_runtime};
use crate::maintenance::Job;
use crate::maintenance::admission::{Admission, Work};

const FILE: &str = "scrub.json";

/// How often it is looked for shards that are due, at most and at least.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// Where the scrub of one shard stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Standing {
    /// When it was last read in full, or first seen.
    at_ms: Millis,
    /// Offset up to which the present reading came; 0 between two.
    #[serde(default)]
    reached: u64,
}

/// All shards' standings, as they are stored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Notes {
    shards: BTreeMap<ShardKey, Standing>,
}

impl Notes {
    /// What is stored; nothing if it is not there or cannot be read, since it can be made anew.
    fn load(storage: &dyn Storage) -> Self {
        let read = storage.read(FILE).and_then(|bytes| match bytes {
            Some(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            None => Ok(Self::default()),
        });
        read.unwrap_or_else(|error| {
            let file = storage.describe(FILE);
            tracing::warn!(file, %error, "the scrub starts over");
            Self::default()
        })
    }

    /// Shards that are due, the longest unread first. Others are forgotten, new ones noted.
    fn due(&mut self, held: &[ShardKey], now: Millis, interval_ms: Millis) -> Vec<ShardKey> {
        self.shards.retain(|shard, _| held.contains(shard));
        for shard in held {
            let standing = Standing { at_ms: now, reached: 0 };
            let standing = self.shards.entry(shard.clone()).or_insert(standing);
            // A clock that was set back must not put it off.
            standing.at_ms = standing.at_ms.min(now);
        }
        let mut due: Vec<(Millis, &ShardKey)> = self
            .shards
            .iter()
            .filter(|(_, standing)| now - standing.at_ms >= interval_ms)
            .map(|(shard, standing)| (standing.at_ms, shard))
            .collect();
        due.sort();
        due.into_iter().map(|(_, shard)| shard.clone()).collect()
    }

    fn reached(&self, shard: &ShardKey) -> u64 {
        self.shards.get(shard).map_or(0, |standing| standing.reached)
    }
}

/// The scrub of one host.
pub(super) struct Scrub {
    hosted: Weak<Hosted>,
    admission: Admission,
    storage: Arc<dyn Storage>,
    interval: Duration,
    notes: Notes,
    stored: Notes,
}

impl Scrub {
    /// Reads everything once in `interval`.
    pub(super) fn new(
        hosted: &Arc<Hosted>,
        admission: Admission,
        storage: Arc<dyn Storage>,
        interval: Duration,
    ) -> Self {
        let notes = off_the_runtime(storage.is_blocking(), || Notes::load(storage.as_ref()));
        let (hosted, stored) = (Arc::downgrade(hosted), notes.clone());
        Self { hosted, admission, storage, interval, notes, stored }
    }

    /// Runs until the host is gone.
    pub(super) async fn run(mut self) {
        let look_every = (self.interval / 10).clamp(LOOK_EVERY.0, LOOK_EVERY.1);
        while let Some(due) = self.due() {
            // Announced together, so that the backlog is known before it is worked off.
            let announced: Vec<(Arc<Shard>, Work)> = due
                .into_iter()
                .map(|shard| {
                    let reached = self.notes.reached(&shard.key);
                    let bytes = shard.look(|replica| replica.log().closed_bytes(reached));
                    let work = self.admission.work(Job::Scrub, bytes.unwrap_or(0));
                    (shard, work)
                })
                .collect();
            for (shard, mut work) in announced {
                self.read(&shard, &mut work).await;
            }
            self.save(None).await;
            tokio::time::sleep(look_every).await;
        }
    }

    fn due(&mut self) -> Option<Vec<Arc<Shard>>> {
        let hosted = self.hosted.upgrade()?;
        let held: Vec<ShardKey> = hosted.held().keys().cloned().collect();
        let interval_ms = Millis::try_from(self.interval.as_millis()).unwrap_or(Millis::MAX);
        let due = self.notes.due(&held, hosted.clock.now_ms(), interval_ms);
        Some(due.iter().filter_map(|key| hosted.shard(key)).collect())
    }

    /// Reads what is left of one shard.
    async fn read(&mut self, shard: &Arc<Shard>, work: &mut Work) {
        let mut reached = self.notes.reached(&shard.key);
        while let Some(segment) = next_segment(shard, reached) {
            match read_segment(shard, &segment, &self.admission, work).await {
                Found::Whole => reached = segment.end(),
                // It was cut off meanwhile: what is there now is looked for again.
                Found::Gone => {}
                Found::Damaged => return,
            }
            self.save(Some((&shard.key, reached))).await;
        }
        let Some(hosted) = self.hosted.upgrade() else { return };
        // What was closed or halted meanwhile was not read to its end.
        if shard.look(|replica| replica.halted().is_some()) != Some(false) {
            return;
        }
        let standing = Standing { at_ms: hosted.clock.now_ms(), reached: 0 };
        self.notes.shards.insert(shard.key.clone(), standing);
    }

    /// Stores where the scrub is.
    async fn save(&mut self, reached: Option<(&ShardKey, u64)>) {
        if let Some((shard, reached)) = reached
            && let Some(standing) = self.notes.shards.get_mut(shard)
        {
            standing.reached = reached;
        }
        if self.notes == self.stored {
            return;
        }
        let storage = self.storage.clone();
        let saved = match serde_json::to_vec(&self.notes) {
            Ok(bytes) => {
                self.admission.acquire(Job::Scrub, bytes.len() as u64).await;
                off_the_runtime(storage.is_blocking(), || storage.replace(FILE, &bytes))
            }
            Err(error) => Err(error.into()),
        };
        match saved {
            Ok(()) => self.stored = self.notes.clone(),
            Err(error) => {
                let file = storage.describe(FILE);
                tracing::warn!(file, %error, "the scrub's place is not kept");
            }
        }
    }
}

/// What reading a segment came to.
enum Found {
    Whole,
    Gone,
    Damaged,
}

fn next_segment(shard: &Shard, reached: u64) -> Option<ClosedSegment> {
    let looked = shard.look(|replica| match replica.halted() {
        Some(_) => None,
        None => replica.log().closed_segment(reached),
    });
    looked.flatten()
}

/// Reads one segment in small steps, none of which holds the shard up.
async fn read_segment(
    shard: &Arc<Shard>,
    segment: &ClosedSegment,
    admission: &Admission,
    work: &mut Work,
) -> Found {
    let mut at = segment.start();
    while !segment.is_whole(at) {
        let most = admission.step_bytes();
        let asked = segment.step_bytes(at, most);
        work.acquire(asked).await;
        match off_the_runtime(shard.is_blocking(), || segment.verify(at, most)) {
            Ok((next, read)) => {
                if read > asked {
                    work.acquire(read - asked).await;
                }
                at = next;
            }
            Err(error) if halts(shard, segment, at, most, &error) => return Found::Damaged,
            Err(_) => return Found::Gone,
        }
    }
    Found::Whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_shard_log::storage::MemoryStorage;

    #[test]
    fn a_shard_is_due_an_interval_after_it_was_seen_or_read() {
        let key = |number: u32| format!("stream/d/s/{number}").parse::<ShardKey>().unwrap();
        let mut notes = Notes::default();
        assert!(notes.due(&[key(0), key(1)], 1000, 500).is_empty(), "new ones wait");
        notes.shards.insert(key(1), Standing { at_ms: 900, reached: 7 });
        assert_eq!(notes.due(&[key(0), key(1), key(2)], 1400, 500), [key(1)]);
        assert_eq!(notes.due(&[key(0), key(1), key(2)], 1500, 500), [key(1), key(0)]);
        // The clock was set back, and one shard is held no more.
        assert!(notes.due(&[key(1), key(2)], 100, 500).is_empty());
        assert_eq!(notes.due(&[key(1), key(2)], 600, 500), [key(1), key(2)]);

        let storage = MemoryStorage::new();
        assert_eq!(Notes::load(&storage), Notes::default());
        storage.replace(FILE, &serde_json::to_vec(&notes).unwrap()).unwrap();
        assert_eq!(Notes::load(&storage), notes);
        assert_eq!(notes.reached(&key(1)), 7);
        storage.replace(FILE, b"{").unwrap();
        assert_eq!(Notes::load(&storage), Notes::default());
    }
}
