//! Draining a broker, putting it back, and watching what still names it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::{BrokerId, Lifecycle, NodeRecord, Role, Snapshot};
use evenkeel_planner::Plan;
use evenkeel_proto::admin::*;
use evenkeel_proto::refusal::{Reason, refuse};
use futures_util::{Stream, stream};
use tokio::sync::watch;
use tonic::Status;

use super::{brokers, gate};
use crate::cluster::Cluster;
use crate::records::Records;
use crate::words;

/// Progress is worked out again at most this often.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// And at least this often, because time alone changes what a shard waits for.
const PROGRESS_AT_LEAST: Duration = Duration::from_secs(1);

pub(super) async fn drain(
    cluster: &Cluster,
    request: &DrainBrokerRequest,
) -> Result<DrainBrokerResponse, Status> {
    let broker: BrokerId = gate::parse("broker", &request.broker)?;
    let now_ms = cluster.clock.now_ms();
    let change = |_: &Records, node: NodeRecord| match node.lifecycle {
        Lifecycle::Draining => Ok(None),
        Lifecycle::Live => {
            Ok(Some(NodeRecord { lifecycle: Lifecycle::Draining, since_ms: now_ms, ..node }))
        }
        other => Err(wrong(&broker, other, "drained", "live")),
    };
    brokers::rewrite(cluster, change, &broker).await?;
    Ok(DrainBrokerResponse { progress: Some(progress(cluster, &broker)?) })
}

pub(super) async fn activate(
    cluster: &Cluster,
    request: &ActivateBrokerRequest,
) -> Result<ActivateBrokerResponse, Status> {
    let broker: BrokerId = gate::parse("broker", &request.broker)?;
    let now_ms = cluster.clock.now_ms();
    let change = |records: &Records, node: NodeRecord| match node.lifecycle {
        Lifecycle::Live => Ok(None),
        Lifecycle::Draining
            if records.registrations.get(&broker).is_some_and(|r| r.value.stopping) =>
        {
            let detail = format!("broker '{broker}' was told to stop: start it again instead");
            Err(refuse(Reason::WrongLifecycle, detail))
        }
        Lifecycle::Draining => {
            Ok(Some(NodeRecord { lifecycle: Lifecycle::Live, since_ms: now_ms, ..node }))
        }
        other => Err(wrong(&broker, other, "activated", "draining")),
    };
    brokers::rewrite(cluster, change, &broker).await?;
    Ok(ActivateBrokerResponse {})
}

fn wrong(broker: &BrokerId, lifecycle: Lifecycle, verb: &str, expected: &str) -> Status {
    let found = lifecycle.as_str();
    let detail = format!("broker '{broker}' is {found} and cannot be {verb}: expected {expected}");
    refuse(Reason::WrongLifecycle, detail)
}

/// What still names the broker, and what each shard waits for.
fn progress(cluster: &Cluster, broker: &BrokerId) -> Result<DrainProgress, Status> {
    cluster.plan_with(|records, planner| {
        let node = brokers::node(records, broker)?;
        Ok(describe(planner.snapshot(), &planner.plan(), broker, node.lifecycle))
    })
}

fn describe(
    snapshot: &Snapshot,
    plan: &Plan,
    broker: &BrokerId,
    lifecycle: Lifecycle,
) -> DrainProgress {
    let decisions = words::by_shard(plan);
    let mut shards = Vec::new();
    let mut leaders_left = 0;
    for shard in brokers::naming(snapshot, broker) {
        let Some(assignment) = snapshot.assignments.get(shard) else { continue };
        let Some(role) = assignment.role_of(broker) else { continue };
        leaders_left += u32::from(role == Role::Leader);
        let decision = decisions.get(shard);
        let (blocker, detail) = match decision {
            Some(decision) => (words::of(decision).1, words::detail(decision).to_owned()),
            None => ("", String::new()),
        };
        shards.push(DrainingShard {
            shard: shard.to_string(),
            role: role.as_str().to_owned(),
            blocker: blocker.to_owned(),
            detail,
        });
    }
    DrainProgress {
        broker: broker.to_string(),
        lifecycle: lifecycle.as_str().to_owned(),
        leaders_left,
        replicas_left: u32::try_from(shards.len()).unwrap_or(u32::MAX),
        shards,
    }
}

pub(super) type ProgressStream = Pin<Box<dyn Stream<Item = Result<DrainProgress, Status>> + Send>>;

struct Watching {
    cluster: Arc<Cluster>,
    broker: BrokerId,
    changed: watch::Receiver<i64>,
    last: Option<DrainProgress>,
    done: bool,
}

/// Progress now, and again after every change, until nothing names the broker any more.
pub(super) fn watch(
    cluster: Arc<Cluster>,
    request: &WatchDrainRequest,
) -> Result<ProgressStream, Status> {
    let broker: BrokerId = gate::parse("broker", &request.broker)?;
    gate::leading(&cluster)?;
    progress(&cluster, &broker)?;
    let changed = cluster.view.changed();
    let watching = Watching { cluster, broker, changed, last: None, done: false };
    Ok(Box::pin(stream::unfold(watching, |mut watching| async {
        let item = watching.next().await?;
        Some((item, watching))
    })))
}

impl Watching {
    async fn next(&mut self) -> Option<Result<DrainProgress, Status>> {
        if self.done {
            return None;
        }
        loop {
            if self.last.is_some() {
                tokio::time::sleep(PROGRESS_EVERY).await;
                // Time alone is a reason to look again.
                let _ = tokio::time::timeout(PROGRESS_AT_LEAST, self.changed.changed()).await;
            }
            self.changed.borrow_and_update();
            let now = match gate::leading(&self.cluster) {
                Ok(_) => progress(&self.cluster, &self.broker),
                Err(status) => Err(status),
            };
            match now {
                Ok(now) if self.last.as_ref() == Some(&now) => continue,
                Ok(now) => {
                    let before = self.last.as_ref().map(|last| last.lifecycle.as_str());
                    let cancelled = now.lifecycle == "live" && before.is_some_and(|b| b != "live");
                    self.done = now.replicas_left == 0 || cancelled;
                    self.last = Some(now.clone());
                    return Some(Ok(now));
                }
                Err(status) => {
                    self.done = true;
                    return Some(Err(status));
                }
            }
        }
    }
}
