//! Compacts the caches led here: reads their keys, writes again what still counts of the oldest
//! segments, and lets the logs begin behind them, all in small steps that are admitted.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_model::{Kind, ShardKey};
use evenkeel_shard_log::{Compactable, CompactionStep, Replica};
use tokio::time::{sleep, timeout};

use super::Hosted;
use super::shard::{Shard, off_the_runtime};
use crate::maintenance::Job;
use crate::maintenance::admission::{Admission, Work};

/// How often it is looked for what is superseded.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What was written again and is not committed after this long is left to a later look.
const COMMITS_WITHIN: Duration = Duration::from_secs(10);

/// Keys are read under the shard's lock, so no more than this at once.
const STEP_MAX_BYTES: u64 = 64 << 10;

/// So much is read of one shard before it is another one's turn.
const TURN_BYTES: u64 = 16 << 20;

/// The compactor of one host.
pub(super) struct Compactor {
    hosted: Weak<Hosted>,
    admission: Admission,
    /// Superseded part of the closed bytes from which a cache is compacted.
    percent: u32,
    /// What is announced of each shard.
    announced: BTreeMap<ShardKey, Work>,
}

impl Compactor {
    pub(super) fn new(hosted: &Arc<Hosted>, admission: Admission, percent: u32) -> Self {
        Self { hosted: Arc::downgrade(hosted), admission, percent, announced: BTreeMap::new() }
    }

    /// Runs until the host is gone.
    pub(super) async fn run(mut self) {
        while let Some(waiting) = self.look() {
            let mut went_on = false;
            for shard in waiting {
                self.read_keys(&shard).await;
                self.look();
                went_on |= match shard.look(Replica::compactable).flatten() {
                    Some(now) if !now.is_known => true,
                    Some(now) if self.is_due(&now) => self.compact(&shard).await,
                    _ => false,
                };
                self.look();
            }
            if !went_on {
                sleep(LOOK_EVERY).await;
            }
        }
    }

    fn is_due(&self, compactable: &Compactable) -> bool {
        is_due(compactable, self.percent, self.admission.is_disk_high())
    }

    /// Announces what there is to do; the shards of which some is to be done.
    fn look(&mut self) -> Option<Vec<Arc<Shard>>> {
        let hosted = self.hosted.upgrade()?;
        let mut shards: Vec<Arc<Shard>> = hosted.held().values().cloned().collect();
        shards.retain(|shard| shard.key.stream.kind == Kind::Cache);
        let mut announced = std::mem::take(&mut self.announced);
        let mut waiting = Vec::new();
        for shard in shards {
            let Some(now) = shard.look(Replica::compactable).flatten() else { continue };
            let left = match now {
                Compactable { is_known: false, unread, .. } => unread,
                // A segment of which nothing counts is work too.
                _ if self.is_due(&now) => now.oldest_live.max(1),
                Compactable { unread: 0, .. } => continue,
                // A little that came since is read in passing.
                _ => 0,
            };
            let known = announced.remove(&shard.key);
            let mut work = known.unwrap_or_else(|| self.admission.work(Job::Compaction, 0));
            work.set_left(left);
            self.announced.insert(shard.key.clone(), work);
            waiting.push(shard);
        }
        Some(waiting)
    }

    /// Waits until about so many bytes may be done for the shard; how many are admitted.
    async fn admit(&mut self, shard: &Arc<Shard>) -> Option<u64> {
        let most = self.admission.step_bytes().min(STEP_MAX_BYTES);
        let work = self.announced.get_mut(&shard.key)?;
        let asked = most.min(work.left()).max(1);
        work.acquire(asked).await;
        Some(asked)
    }

    /// Counts what a step took beyond what was admitted.
    async fn settle(&mut self, shard: &Arc<Shard>, asked: u64, done: u64) {
        if let Some(work) = self.announced.get_mut(&shard.key).filter(|_| done > asked) {
            work.acquire(done - asked).await;
        }
    }

    /// Reads keys that were not read yet.
    async fn read_keys(&mut self, shard: &Arc<Shard>) {
        let blocking = shard.is_blocking();
        let mut read = 0;
        while read < TURN_BYTES && unread(shard) > 0 {
            let Some(asked) = self.admit(shard).await else { return };
            let done = shard.change(|now, replica| {
                off_the_runtime(blocking, || replica.note_keys(now, STEP_MAX_BYTES as usize))
            });
            let Some(done) = done.filter(|done| *done > 0) else { return };
            self.settle(shard, asked, done).await;
            read += done;
            // Under load there is always a little more; that is for the next look.
            if done < STEP_MAX_BYTES / 2 {
                return;
            }
        }
    }

    /// Gives up the oldest segment, as far as that can be done now; whether it got on.
    async fn compact(&mut self, shard: &Arc<Shard>) -> bool {
        let blocking = shard.is_blocking();
        let mut went_on = false;
        loop {
            let Some(asked) = self.admit(shard).await else { return went_on };
            let Some(now_ms) = self.hosted.upgrade().map(|hosted| hosted.clock.now_ms()) else {
                return false;
            };
            let most = STEP_MAX_BYTES as usize;
            let step = shard.change(|now, replica| {
                off_the_runtime(blocking, || replica.compact(now, now_ms, most))
            });
            match step {
                None | Some(CompactionStep::Waits) => return went_on,
                Some(CompactionStep::Rewrote(done)) => {
                    self.settle(shard, asked, done).await;
                    went_on = true;
                }
                Some(CompactionStep::GaveUp(start)) => {
                    tracing::info!(shard = %shard.key, start, "compacted: the log is to begin later");
                    return committed(shard).await;
                }
            }
            if !committed(shard).await {
                return went_on;
            }
        }
    }
}

/// Whether the oldest segment is to be given up. Above the disk's high-water mark half of the usual
/// part is enough.
fn is_due(compactable: &Compactable, percent: u32, is_urgent: bool) -> bool {
    let Compactable { closed, superseded, .. } = *compactable;
    let percent = if is_urgent { percent.div_ceil(2) } else { percent };
    superseded > 0 && u128::from(superseded) * 100 >= u128::from(closed) * u128::from(percent)
}

fn unread(shard: &Arc<Shard>) -> u64 {
    shard.look(Replica::compactable).flatten().map_or(0, |now| now.unread)
}

/// Waits until everything that is in the log now is committed; whether that came about.
async fn committed(shard: &Arc<Shard>) -> bool {
    let mut status = shard.watch();
    let (end, generation) = {
        let now = status.borrow();
        (now.log_end, now.assignment.generation)
    };
    let waited = status
        .wait_for(|status| status.committed >= end || status.assignment.generation != generation);
    matches!(timeout(COMMITS_WITHIN, waited).await, Ok(Ok(status)) if status.committed >= end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_due_at_the_part_of_its_closed_bytes_and_earlier_on_a_full_disk() {
        let half =
            Compactable { is_known: true, closed: 1000, superseded: 500, ..Default::default() };
        assert!(is_due(&half, 50, false));
        let less = Compactable { superseded: 499, ..half };
        assert_eq!((is_due(&less, 50, false), is_due(&less, 50, true)), (false, true));
        assert!(!is_due(&Compactable { superseded: 249, ..half }, 50, true));
        assert!(!is_due(&Compactable::default(), 50, true));
    }
}
