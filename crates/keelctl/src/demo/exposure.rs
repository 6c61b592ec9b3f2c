//! How long shards were short of running replicas, and without a leader: measured from outside, as
//! an operator would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_proto::admin::{Assignment, ListShardsRequest};
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::admin::Admin;
use crate::commands::shards;

/// Time between looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// Seconds of exposure.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Exposure {
    /// Summed over shards: fewer replicas on running brokers than the replication factor.
    pub(crate) shard_seconds: f64,
    /// Any shard was short.
    pub(crate) seconds: f64,
    /// The longest that one shard was short.
    pub(crate) longest_seconds: f64,
    /// The longest that one shard was led by a dead broker or by none.
    pub(crate) longest_leaderless_seconds: f64,
}

/// Measures in the background until it is dropped.
pub(crate) struct Observer {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    dead: Mutex<BTreeSet<String>>,
    account: Mutex<Account>,
}

#[derive(Default)]
struct Account {
    exposure: Exposure,
    /// Since when each shard is short, and without a running leader.
    short: BTreeMap<String, f64>,
    leaderless: BTreeMap<String, f64>,
}

impl Account {
    /// `seconds` went by with these assignments.
    fn add(
        &mut self,
        assignments: &[Assignment],
        factor: usize,
        dead: &BTreeSet<String>,
        seconds: f64,
    ) {
        let mut any = false;
        for a in assignments {
            let runs = |id: &&String| !dead.contains(*id);
            let running = a.leader.iter().chain(&a.followers).filter(runs).count();
            let short = running < factor;
            any |= short;
            if short {
                self.exposure.shard_seconds += seconds;
            }
            let led =
                a.leader.as_ref().is_some_and(|l| !dead.contains(l)) && a.state != "assigning";
            let exposure = &mut self.exposure;
            track(&mut self.short, &a.shard, short, seconds, &mut exposure.longest_seconds);
            let longest = &mut exposure.longest_leaderless_seconds;
            track(&mut self.leaderless, &a.shard, !led, seconds, longest);
        }
        if any {
            self.exposure.seconds += seconds;
        }
    }
}

fn track(
    since: &mut BTreeMap<String, f64>,
    shard: &str,
    holds: bool,
    seconds: f64,
    longest: &mut f64,
) {
    if !holds {
        since.remove(shard);
        return;
    }
    let total = since.entry(shard.to_owned()).or_default();
    *total += seconds;
    *longest = longest.max(*total);
}

impl Observer {
    /// Starts looking at shards whose replication factor is `factor`.
    pub(crate) fn start(admin: Admin, factor: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(observe(admin, factor, Arc::clone(&shared)));
        Self { shared, task }
    }

    /// A broker was killed now: its copies do not count until it is said to run again.
    pub(crate) fn died(&self, broker: &str) {
        let mut dead = self.shared.dead.lock().unwrap_or_else(PoisonError::into_inner);
        dead.insert(broker.to_owned());
    }

    /// What was measured so far.
    pub(crate) fn exposure(&self) -> Exposure {
        let account = self.shared.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.exposure.clone()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn observe(admin: Admin, factor: usize, shared: Arc<Shared>) {
    let mut last = Instant::now();
    let mut assignments = Vec::new();
    loop {
        tokio::time::sleep(INTERVAL).await;
        // While no load manager answers, the last answer stands: nothing changes without one.
        if let Ok(now) = shards::list(&admin, ListShardsRequest::default()).await {
            assignments = now;
        }
        let now = Instant::now();
        let seconds = now.duration_since(last).as_secs_f64();
        last = now;
        let dead = shared.dead.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut account = shared.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.add(&assignments, factor, &dead, seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposure_is_summed_over_shards_and_its_longest_stretch_is_kept() {
        let shard = |number: u32, leader: &str, followers: &[&str]| Assignment {
            shard: format!("stream/d/s/{number}"),
            leader: Some(leader.into()),
            followers: followers.iter().map(ToString::to_string).collect(),
            state: "active".into(),
            ..Default::default()
        };
        let shards = [shard(0, "a", &["b"]), shard(1, "b", &["c"]), shard(2, "a", &["c"])];
        let mut account = Account::default();
        account.add(&shards, 2, &BTreeSet::new(), 5.0);
        assert_eq!(account.exposure, Exposure::default());
        let dead = BTreeSet::from(["b".to_owned()]);
        account.add(&shards, 2, &dead, 1.0);
        account.add(&[shard(0, "a", &["c"]), shard(1, "c", &["b"])], 2, &dead, 0.5);
        let expected = Exposure {
            shard_seconds: 2.5,
            seconds: 1.5,
            longest_seconds: 1.5,
            longest_leaderless_seconds: 1.0,
        };
        assert_eq!(account.exposure, expected);
    }
}
