//! Gives closed segments their indexes, one after the other and each in small steps.
//!
//! A log that is opened without some of them is read where they are missing, and they are made here
//! as other maintenance is done: when nothing more urgent runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_model::ShardKey;
use evenkeel_shard_log::{IndexJob, IndexStep, LogError, Verified};
use tokio::time::{Instant, sleep};

use super::Hosted;
use super::decay::halts;
use super::shard::{Shard, off_the_runtime};
use crate::maintenance::Job;
use crate::maintenance::admission::{Admission, Work};

/// How often it is looked for segments that were closed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Before a shard is tried again whose index could not be written, or not be read back.
const RETRY: Duration = Duration::from_secs(30);

/// Makes the indexes of one host.
pub(super) struct Indexer {
    hosted: Weak<Hosted>,
    admission: Admission,
    /// What is announced of each shard that is not to be tried again later.
    announced: BTreeMap<ShardKey, Work>,
    /// The segment of each shard for which the index before was made again.
    again_for: BTreeMap<ShardKey, Verified>,
    not_before: BTreeMap<ShardKey, Instant>,
}

impl Indexer {
    pub(super) fn new(hosted: &Arc<Hosted>, admission: Admission) -> Self {
        Self {
            hosted: Arc::downgrade(hosted),
            admission,
            announced: BTreeMap::new(),
            again_for: BTreeMap::new(),
            not_before: BTreeMap::new(),
        }
    }

    /// Runs until the host is gone.
    pub(super) async fn run(mut self) {
        while let Some(waiting) = self.look() {
            if waiting.is_empty() {
                sleep(LOOK_EVERY).await;
            }
            // One segment of each in turn, so that a large shard holds no other up.
            for shard in waiting {
                if let Err(error) = self.index_next(&shard).await {
                    self.put_off(&shard.key, &error.to_string());
                }
                self.look();
            }
        }
    }

    fn put_off(&mut self, shard: &ShardKey, why: &str) {
        tracing::warn!(%shard, "no index yet: {why}");
        self.not_before.insert(shard.clone(), Instant::now() + RETRY);
    }

    /// Announces what there is to do now; the shards of which that is.
    fn look(&mut self) -> Option<Vec<Arc<Shard>>> {
        let hosted = self.hosted.upgrade()?;
        let shards: Vec<Arc<Shard>> = hosted.held().values().cloned().collect();
        let (mut waiting, mut unfinished) = (Vec::new(), BTreeSet::new());
        let mut announced = std::mem::take(&mut self.announced);
        for shard in shards {
            let looked = shard.look(|replica| match replica.halted() {
                Some(_) => 0,
                None => replica.log().unindexed_bytes(),
            });
            let bytes = looked.unwrap_or(0);
            if bytes == 0 {
                continue;
            }
            unfinished.insert(shard.key.clone());
            // What waits for its next try takes nothing from copies.
            if self.not_before.get(&shard.key).is_some_and(|later| *later > Instant::now()) {
                continue;
            }
            let known = announced.remove(&shard.key);
            let mut work = known.unwrap_or_else(|| self.admission.work(Job::Index, 0));
            work.set_left(bytes);
            self.announced.insert(shard.key.clone(), work);
            waiting.push(shard);
        }
        self.again_for.retain(|shard, _| unfinished.contains(shard));
        self.not_before.retain(|shard, _| unfinished.contains(shard));
        Some(waiting)
    }

    /// Makes one index.
    async fn index_next(&mut self, shard: &Arc<Shard>) -> Result<(), LogError> {
        let Some(mut job) = shard.look(|replica| replica.log().next_index()).flatten() else {
            return Ok(());
        };
        if !self.read(shard, &mut job).await {
            return Ok(());
        }
        let blocking = shard.is_blocking();
        let content = job.content();
        self.admission.acquire(Job::Index, content.len() as u64).await;
        off_the_runtime(blocking, || job.prepare(&content))?;
        let installed = shard.change(|_, replica| replica.install_index(&job));
        if installed.transpose()? == Some(true) {
            off_the_runtime(blocking, || job.settle())?;
        }
        Ok(())
    }

    /// Reads the segment; whether that can be built upon.
    async fn read(&mut self, shard: &Arc<Shard>, job: &mut IndexJob) -> bool {
        while !job.is_whole() {
            let (at, most) = (job.verified(), self.admission.step_bytes());
            let asked = job.segment().step_bytes(at, most);
            let Some(work) = self.announced.get_mut(&shard.key) else { return false };
            work.acquire(asked).await;
            match off_the_runtime(shard.is_blocking(), || job.step(most)) {
                Ok(IndexStep::Read(read)) if read > asked => work.acquire(read - asked).await,
                Ok(IndexStep::Read(_)) => {}
                Ok(IndexStep::NeedsEarlier) => {
                    shard.change(|_, replica| replica.forget_index_before(job));
                    if self.again_for.insert(shard.key.clone(), at) == Some(at) {
                        self.put_off(&shard.key, "the one before was made and cannot be read");
                    }
                    return false;
                }
                Err(error) => {
                    halts(shard, job.segment(), at, most, &error);
                    return false;
                }
            }
        }
        true
    }
}
