//! How the logs of shards grow on the brokers' disks: what was copied, seen from outside.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_model::ShardKey;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::Cluster;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);

/// Sizes of the logs at each look.
type Points = Vec<(Instant, Vec<u64>)>;

/// Watches some logs until it is dropped.
pub struct Growth {
    points: Arc<Mutex<Points>>,
    task: AbortHandle,
}

impl Growth {
    /// Of these shards at these brokers.
    pub fn watch(cluster: &Cluster, logs: &[(&str, &ShardKey)]) -> Self {
        let folders: Vec<PathBuf> =
            logs.iter().map(|(broker, shard)| cluster.shard_folder(broker, shard)).collect();
        let points = Arc::<Mutex<Points>>::default();
        let seen = points.clone();
        let task = tokio::spawn(async move {
            let mut ticks = interval(LOOK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let sizes = folders.iter().map(|folder| stored(folder)).collect();
                let mut points = seen.lock().unwrap_or_else(PoisonError::into_inner);
                points.push((Instant::now(), sizes));
            }
        });
        Self { points, task: task.abort_handle() }
    }

    /// What was seen of one log, or of all together.
    pub fn course(&self, log: Option<usize>) -> Course {
        let points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |sizes: &[u64]| match log {
            Some(log) => sizes.get(log).copied().unwrap_or(0),
            None => sizes.iter().sum(),
        };
        Course(points.iter().map(|(at, sizes)| (*at, of(sizes))).collect())
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Bytes of a shard's log on disk; 0 if it has none.
pub fn stored(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let logs = entries.flatten().filter(|e| e.path().extension().is_some_and(|e| e == "log"));
    logs.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Bytes over time, which only rise but for a log that is cut.
#[derive(Debug, Clone, Default)]
pub struct Course(pub Vec<(Instant, u64)>);

impl Course {
    /// Bytes at a time, between two looks as if they had grown evenly.
    pub fn at(&self, time: Instant) -> f64 {
        let after = self.0.partition_point(|(at, _)| *at < time);
        let Some((next, bytes)) = self.0.get(after) else {
            return self.0.last().map_or(0.0, |(_, bytes)| *bytes as f64);
        };
        let Some((last, before)) = after.checked_sub(1).and_then(|i| self.0.get(i)) else {
            return *bytes as f64;
        };
        let part = (time - *last).as_secs_f64() / (*next - *last).as_secs_f64().max(1e-9);
        *before as f64 + (*bytes as f64 - *before as f64) * part
    }

    /// Bytes per second between two times.
    pub fn rate(&self, from: Instant, to: Instant) -> f64 {
        (self.at(to) - self.at(from)) / (to - from).as_secs_f64()
    }

    /// When it first grew after a time.
    pub fn first_growth(&self, after: Instant) -> Option<Instant> {
        let begun = self.at(after);
        self.0.iter().find(|(at, bytes)| *at > after && *bytes as f64 > begun).map(|(at, _)| *at)
    }

    /// When it last grew.
    pub fn last_growth(&self) -> Option<Instant> {
        self.0.windows(2).rev().find(|pair| pair[1].1 > pair[0].1).map(|pair| pair[1].0)
    }

    /// The start of the first window of this length after a time in which the rate is one that is
    /// looked for.
    pub fn first_window(
        &self,
        after: Instant,
        length: Duration,
        is_it: impl Fn(f64) -> bool,
    ) -> Option<Instant> {
        let (end, _) = self.0.last()?;
        let starts = std::iter::once(after).chain(self.0.iter().map(|(at, _)| *at));
        starts
            .filter(|at| *at >= after && *at + length <= *end)
            .find(|at| is_it(self.rate(*at, *at + length)))
    }

    /// The highest rate over any window of this length between two times.
    pub fn fastest(&self, from: Instant, to: Instant, length: Duration) -> f64 {
        let starts = self.0.iter().map(|(at, _)| *at);
        starts
            .filter(|at| *at >= from && *at + length <= to)
            .map(|at| self.rate(at, at + length))
            .fold(0.0, f64::max)
    }

    /// The longest time without growth between two times.
    pub fn longest_pause(&self, from: Instant, to: Instant) -> Duration {
        let mut grew = from;
        let mut longest = Duration::ZERO;
        for pair in self.0.windows(2).filter(|pair| pair[1].0 > from && pair[1].0 <= to) {
            if pair[1].1 > pair[0].1 {
                longest = longest.max(pair[1].0 - grew);
                grew = pair[1].0;
            }
        }
        longest.max(to.saturating_duration_since(grew))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(points: &[(u64, u64)]) -> (Instant, Course) {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        (start, Course(points.iter().map(|(ms, bytes)| (at(*ms), *bytes)).collect()))
    }

    #[test]
    fn rates_are_taken_between_looks() {
        let (start, course) = course(&[(0, 0), (100, 1000), (200, 1000), (300, 4000)]);
        let at = |ms| start + Duration::from_millis(ms);
        assert!((course.at(at(50)) - 500.0).abs() < 1e-6);
        assert!((course.at(at(900)) - 4000.0).abs() < 1e-6);
        assert!((course.rate(at(0), at(200)) - 5000.0).abs() < 1e-6);
        assert!((course.fastest(at(0), at(300), Duration::from_millis(100)) - 3e4).abs() < 1e-3);
        let window = course.first_window(at(10), Duration::from_millis(100), |rate| rate > 2e4);
        assert_eq!(window, Some(at(200)));
    }

    #[test]
    fn pauses_and_growth_are_found() {
        let (start, course) = course(&[(0, 0), (100, 10), (200, 10), (300, 10), (400, 30)]);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(course.first_growth(at(150)), Some(at(400)));
        assert_eq!(course.last_growth(), Some(at(400)));
        assert_eq!(course.longest_pause(at(0), at(400)), Duration::from_millis(300));
        assert_eq!(course.longest_pause(at(0), at(900)), Duration::from_millis(500));
    }
}
