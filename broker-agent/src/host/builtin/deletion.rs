//! Erases discarded directories, segment by segment and each in small steps: unlinking a big file
//! at once would hold up everyone else's writes.
//!
//! A crash leaves a directory that is still discarded; after the restart erasing goes on with it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_shard_log::storage::{Storage, StoredFile};
use tokio::sync::watch;
use tokio::time::timeout;

use super::disks::Disks;
use super::shard::off_the_runtime;
use crate::maintenance::Job;
use crate::maintenance::admission::{Admission, Work};

/// Before what could not be erased is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// The eraser of one host.
pub(super) struct Eraser {
    pub(super) disks: Arc<dyn Disks>,
    pub(super) admission: Admission,
    /// Changes when something was discarded; closed when the host is gone.
    pub(super) discarded: watch::Receiver<u64>,
}

/// One discarded directory with the work that is left in it.
struct Doomed {
    storage: Arc<dyn Storage>,
    work: Work,
}

impl Eraser {
    /// Runs until the host is gone.
    pub(super) async fn run(mut self) {
        let mut doomed = BTreeMap::new();
        while self.discarded.has_changed().is_ok() {
            self.discarded.mark_changed();
            let all_gone = self.sweep(&mut doomed).await;
            let waited = match all_gone {
                true => self.discarded.changed().await,
                // What failed may work later.
                false => timeout(RETRY, self.discarded.changed()).await.unwrap_or(Ok(())),
            };
            if waited.is_err() {
                return;
            }
        }
    }

    /// Erases all there is; whether that worked. One directory that cannot be erased holds no
    /// other up.
    async fn sweep(&mut self, doomed: &mut BTreeMap<String, Doomed>) -> bool {
        let mut failed: BTreeSet<String> = BTreeSet::new();
        // Asked before each file, so that the backlog counts what came meanwhile.
        while let Ok(more) = self.discarded.has_changed() {
            self.discarded.mark_unchanged();
            if more && let Err(error) = self.look(doomed) {
                tracing::warn!(%error, "discarded directories cannot be listed");
                return false;
            }
            let next = doomed.iter_mut().find(|(name, _)| !failed.contains(*name));
            let Some((name, directory)) = next else { break };
            match self.erase_file(name, directory).await {
                Ok(true) => {}
                Ok(false) => {
                    let name = name.clone();
                    tracing::info!(directory = name, "discarded directory erased");
                    doomed.remove(&name);
                }
                Err(error) => {
                    tracing::warn!(directory = name, %error, "cannot be erased yet");
                    failed.insert(name.clone());
                }
            }
        }
        failed.is_empty()
    }

    /// Announces the directories that are not known yet.
    fn look(&self, doomed: &mut BTreeMap<String, Doomed>) -> io::Result<()> {
        let found = off_the_runtime(self.disks.is_blocking(), || self.disks.discarded())?;
        for (name, storage) in found {
            if doomed.contains_key(&name) {
                continue;
            }
            let files = off_the_runtime(storage.is_blocking(), || storage.list())?;
            let bytes = files.iter().map(|(_, bytes)| bytes).sum();
            let work = self.admission.work(Job::Deletion, bytes);
            doomed.insert(name, Doomed { storage, work });
        }
        Ok(())
    }

    /// Erases one file of a directory, or the directory if there is none; whether there was one.
    async fn erase_file(&self, name: &str, directory: &mut Doomed) -> io::Result<bool> {
        let Doomed { storage, work } = directory;
        let blocking = storage.is_blocking();
        let files = off_the_runtime(blocking, || storage.list())?;
        let Some((file_name, _)) = files.first() else {
            off_the_runtime(blocking, || self.disks.forget(name))?;
            return Ok(false);
        };
        let file = off_the_runtime(blocking, || storage.open(file_name, false))?;
        cut_down(file.as_ref(), blocking, &self.admission, work).await?;
        off_the_runtime(blocking, || storage.remove(file_name))?;
        Ok(true)
    }
}

/// Cuts a file down to nothing in steps that are admitted.
pub(super) async fn cut_down(
    file: &dyn StoredFile,
    blocking: bool,
    admission: &Admission,
    work: &mut Work,
) -> io::Result<()> {
    let mut left = off_the_runtime(blocking, || file.len())?;
    while left > 0 {
        let step = left.min(admission.step_bytes());
        work.acquire(step).await;
        left -= step;
        off_the_runtime(blocking, || file.truncate(left))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::builtin::disks::MemoryDisks;
    use evenkeel_model::ShardKey;
    use tokio::time::{Instant, sleep};

    const FILES: u64 = 3;
    const FILE_BYTES: u64 = 200_000;

    fn discarded(disks: &MemoryDisks, number: u32) {
        let shard: ShardKey = format!("stream/d/s/{number}").parse().unwrap();
        let storage = disks.open(&shard).unwrap();
        for file in 0..FILES {
            storage.replace(&format!("{file}.log"), &vec![7; FILE_BYTES as usize]).unwrap();
        }
        disks.discard(&shard).unwrap();
    }

    fn left(disks: &MemoryDisks) -> u64 {
        let all = disks.discarded().unwrap();
        all.iter().flat_map(|(_, s)| s.list().unwrap()).map(|(_, bytes)| bytes).sum()
    }

    #[tokio::test(start_paused = true)]
    async fn every_byte_is_admitted_before_it_goes_also_across_a_crash() {
        const LINK: u64 = 10_000_000;
        let disks = MemoryDisks::new();
        let (told, heard) = watch::channel(0);
        discarded(&disks, 0);
        let start = |admission: &Admission| {
            let eraser = Eraser {
                disks: Arc::new(disks.clone()),
                admission: admission.clone(),
                discarded: heard.clone(),
            };
            tokio::spawn(eraser.run())
        };
        let before = Admission::new(LINK);
        let running = start(&before);
        sleep(Duration::from_secs(3)).await;
        let (backlog, done) = before.figures(Job::Deletion);
        assert_eq!(backlog, left(&disks));
        assert_eq!(done, FILES * FILE_BYTES - left(&disks));
        // 1 % of the link, and a step ahead.
        assert!((290_000..330_000).contains(&done), "{done}");
        running.abort();

        let after = Admission::new(LINK);
        let began = Instant::now();
        start(&after);
        sleep(Duration::from_millis(1)).await;
        // One that comes meanwhile counts from then on.
        discarded(&disks, 1);
        told.send_replace(1);
        while left(&disks) > 0 {
            sleep(Duration::from_millis(10)).await;
        }
        let (backlog, rest) = after.figures(Job::Deletion);
        assert_eq!((backlog, done + rest), (0, 2 * FILES * FILE_BYTES));
        let ideal = rest as f64 / (LINK as f64 / 100.0);
        let took = began.elapsed().as_secs_f64();
        assert!((ideal - 0.3..ideal + 0.3).contains(&took), "{took} s, not {ideal} s");
        sleep(Duration::from_secs(1)).await;
        assert!(disks.discarded().unwrap().is_empty());
    }
}
