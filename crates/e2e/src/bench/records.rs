//! The cluster's records as the bench sees them change.

use std::time::Duration;

use anyhow::Context;
use evenkeel_coordination::{Store, StoreConfig, View, ViewConfig, ViewState};
use evenkeel_model::keys::Keys;
use evenkeel_model::{
    Assignment, AssignmentRecord, Phase, ReportRecord, ShardKey, StreamKey, decode,
};
use evenkeel_proto::admin::{StatusRequest, Stream};
use tokio::time::{Instant, sleep};

use crate::Cluster;

const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);

/// A view of assignments, reports and registrations.
pub struct Records {
    /// Key paths.
    pub keys: Keys,
    /// The view.
    pub view: View,
}

impl Records {
    /// Watches a cluster, from all that is stored on.
    pub async fn watch(cluster: &Cluster) -> anyhow::Result<Self> {
        let store = Store::open(StoreConfig::urls([cluster.etcd.url()]))?;
        let keys = Keys::default();
        let prefixes = vec![keys.assignments(), keys.reports(), keys.registrations()];
        let view = View::start(store, prefixes, ViewConfig::default());
        view.ready().await;
        Ok(Self { keys, view })
    }

    /// All assignments.
    pub fn assignments(&self) -> anyhow::Result<Vec<Assignment>> {
        let prefix = self.keys.assignments();
        self.view.read(|state| {
            let records = state.range(&prefix).map(|entry| {
                let record: AssignmentRecord = decode(&entry.key, &entry.value)?;
                Ok(record.assignment)
            });
            records.collect()
        })
    }

    /// The assignment of one shard.
    pub fn assignment(&self, shard: &ShardKey) -> anyhow::Result<Assignment> {
        let key = self.keys.assignment(shard);
        let entry = self.view.read(|state| state.get(&key).cloned());
        let entry = entry.with_context(|| format!("{shard} is not placed"))?;
        let record: AssignmentRecord = decode(&entry.key, &entry.value)?;
        Ok(record.assignment)
    }

    /// Shards of a stream whose leader serves and whose set is as large as it shall be.
    pub fn served(&self, stream: &StreamKey, factor: usize) -> anyhow::Result<usize> {
        let assignments = self.assignments()?;
        Ok(self.view.read(|state| {
            let whole = |a: &&Assignment| {
                a.shard.stream == *stream && a.voters().count() == factor && self.serves(state, a)
            };
            assignments.iter().filter(whole).count()
        }))
    }

    fn serves(&self, state: &ViewState, assignment: &Assignment) -> bool {
        let Some(leader) = &assignment.leader else { return false };
        let Some(entry) = state.get(&self.keys.report(leader, &assignment.shard)) else {
            return false;
        };
        let Ok(record) = decode::<ReportRecord>(&entry.key, &entry.value) else { return false };
        let report = record.report;
        report.phase == Some(Phase::Serving) && report.generation == assignment.generation
    }

    /// Creates a stream once so many brokers are live, and waits until all its shards are served.
    pub async fn stream_served(
        &self,
        cluster: &Cluster,
        stream: Stream,
        brokers: u32,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        cluster
            .ask("see all brokers", async |mut admin| {
                let status = admin.status(StatusRequest {}).await?.into_inner();
                if status.brokers_live == brokers {
                    return Ok(());
                }
                Err(tonic::Status::unavailable(format!("{} are live", status.brokers_live)))
            })
            .await?;
        let key: StreamKey = stream.stream.parse()?;
        let (shards, factor) = (stream.shards as usize, stream.replication_factor as usize);
        cluster.create_stream(stream).await?;
        loop {
            let served = self.served(&key, factor)?;
            if served == shards {
                return Ok(());
            }
            let late = Instant::now() >= deadline;
            anyhow::ensure!(!late, "{served} of {shards} shards are served after {PATIENCE:?}");
            sleep(POLL).await;
        }
    }
}
