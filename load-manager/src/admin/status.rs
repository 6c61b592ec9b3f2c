//! One screen: who leads, what there is, what is wrong.

use evenkeel_proto::admin::StatusResponse;

use crate::checks;
use crate::cluster::Cluster;
use crate::figures::Figures;
use crate::snapshot;

pub(super) fn status(cluster: &Cluster) -> StatusResponse {
    cluster.plan_with(|records, planner| {
        let snapshot = planner.snapshot();
        let plan = planner.plan();
        let balance = planner.overview();
        let figures = Figures::of(snapshot, &plan);
        let leader = cluster.leader_record(records);
        let migrator = records.leaders.get(&"migrator".to_owned()).map(|l| &l.value);
        let paused = snapshot::is_paused(records, snapshot.as_of_ms);
        let paused_by = records.pause.get(&()).filter(|_| paused).map(|p| p.value.by.clone());
        let facts = checks::Facts {
            records,
            snapshot,
            plan: &plan,
            balance: &balance,
            figures: &figures,
            configured: &cluster.configured,
        };
        StatusResponse {
            leader: leader.map(|l| l.instance.clone()).unwrap_or_default(),
            leader_address: leader.map(|l| l.address.clone()).unwrap_or_default(),
            leader_since_ms: leader.map(|l| l.elected_at_ms).unwrap_or_default(),
            revision: records.revision,
            checks: checks::run(&facts),
            brokers_live: figures.live,
            brokers_draining: figures.draining,
            brokers_down: figures.down,
            brokers_left: figures.left,
            shards: figures.shards,
            shards_serving: figures.serving,
            shards_under_replicated: count(balance.under_replicated),
            replicas_missing: count(balance.replicas_missing),
            moves_in_flight: figures.in_flight(),
            moves_waiting: figures.waiting,
            cv_percent: Some(balance.cv_percent).filter(|cv| cv.is_finite()),
            stream_spread: figures.stream_spread,
            paused,
            paused_by: paused_by.unwrap_or_default(),
            migrator: migrator.map(|l| l.instance.clone()).unwrap_or_default(),
            migrator_address: migrator.map(|l| l.address.clone()).unwrap_or_default(),
        }
    })
}

fn count(n: impl TryInto<u32>) -> u32 {
    n.try_into().unwrap_or(u32::MAX)
}
