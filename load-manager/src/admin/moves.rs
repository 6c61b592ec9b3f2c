//! Moves: what is under way, and an operator's own.

use evenkeel_coordination::Outcome;
use evenkeel_model::{Assignment, BrokerId, ShardKey, ShardState, Snapshot};
use evenkeel_planner::{MoveRefusal, MoveRefusedBecause, ShardDecision};
use evenkeel_proto::admin::{
    CancelMoveRequest, CancelMoveResponse, ListMovesResponse, MoveInFlight, StartMoveRequest,
    StartMoveResponse,
};
use evenkeel_proto::refusal::{Reason, refuse};
use tokio::time::Instant;
use tonic::Status;

use super::gate;
use crate::cluster::{Cluster, Leading};
use crate::records::Records;
use crate::step::{self, Authority, Prepared};
use crate::{pass, words};

pub(super) fn list(cluster: &Cluster) -> ListMovesResponse {
    let moves = cluster.plan_with(|records, planner| {
        let snapshot = planner.snapshot();
        let plan = planner.plan();
        let decisions = words::by_shard(&plan);
        let moving = snapshot.assignments.values().filter(|a| a.is_moving());
        let describe = |assignment: &Assignment| {
            let copy = records.copies.get(&assignment.shard).map(|c| &c.value);
            let copy = copy.filter(|c| c.generation == assignment.generation);
            let decision = decisions.get(&assignment.shard);
            MoveInFlight {
                assignment: Some(assignment.into()),
                stage: stage(assignment).to_owned(),
                waiting: decision.map(|d| words::of(d).1.to_owned()).unwrap_or_default(),
                detail: decision.map(|d| words::detail(d).to_owned()).unwrap_or_default(),
                bytes_done: copy.map(|c| c.bytes_done),
                bytes_total: copy.map(|c| c.bytes_total).filter(|total| *total > 0),
                bytes_per_second: copy.map(|c| c.bytes_per_second),
            }
        };
        moving.map(describe).collect()
    });
    ListMovesResponse { moves }
}

fn stage(assignment: &Assignment) -> &'static str {
    match assignment.state {
        ShardState::Draining => "fenced",
        _ if assignment.successor.is_some() => "staged",
        _ => "joining",
    }
}

pub(super) async fn start(
    cluster: &Cluster,
    request: &StartMoveRequest,
) -> Result<StartMoveResponse, Status> {
    let shard: ShardKey = gate::parse("shard", &request.shard)?;
    // Without a destination it is the one that a drain would choose.
    let to: Option<BrokerId> = match request.to_broker.as_str() {
        "" => None,
        to => Some(gate::parse("to_broker", to)?),
    };
    let leading = gate::leading(cluster)?;
    let _placing = cluster.placing.lock().await;
    let (prepared, zones_before, zones_after) = cluster.observe(|records, snapshot| {
        known(records, snapshot, &shard)?;
        let planned = evenkeel_planner::operator_move(snapshot, &shard, to.as_ref())
            .map_err(|r| refused(&r))?;
        let prepared = prepare(cluster, records, &leading, &planned.decision)?;
        let zones = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Ok::<_, Status>((prepared, zones(planned.zones_before), zones(planned.zones_after)))
    })?;
    let assignment = Some((&prepared.write.next).into());
    if !request.validate_only {
        write(cluster, prepared).await?;
    }
    Ok(StartMoveResponse { assignment, zones_before, zones_after })
}

pub(super) async fn cancel(
    cluster: &Cluster,
    request: &CancelMoveRequest,
) -> Result<CancelMoveResponse, Status> {
    let shard: ShardKey = gate::parse("shard", &request.shard)?;
    let leading = gate::leading(cluster)?;
    let _placing = cluster.placing.lock().await;
    let prepared = cluster.observe(|records, snapshot| {
        known(records, snapshot, &shard)?;
        let planned = evenkeel_planner::cancel_move(snapshot, &shard).map_err(|r| refused(&r))?;
        prepare(cluster, records, &leading, &planned)
    })?;
    let assignment = Some((&prepared.write.next).into());
    write(cluster, prepared).await?;
    Ok(CancelMoveResponse { assignment })
}

fn known(records: &Records, snapshot: &Snapshot, shard: &ShardKey) -> Result<(), Status> {
    if records.assignments.is_unreadable(shard) {
        let detail = format!("the assignment of '{shard}' cannot be read");
        return Err(refuse(Reason::LeaderUnavailable, detail));
    }
    let known = snapshot.streams.get(&shard.stream).is_some_and(|s| shard.number < s.shards);
    if known { Ok(()) } else { Err(gate::not_found("shard", shard)) }
}

fn prepare(
    cluster: &Cluster,
    records: &Records,
    leading: &Leading,
    decided: &ShardDecision,
) -> Result<Prepared, Status> {
    let Some(write) = decided.decision.write() else {
        // A request that may be done is a write; anything else says what it waits for.
        let detail = words::detail(&decided.decision).to_owned();
        return Err(refuse(Reason::MoveLimit, detail));
    };
    let authority = Authority { token: leading.token.clone(), now_ms: cluster.clock.now_ms() };
    let operation = cluster.next_operation(&leading.token);
    Ok(step::prepare(records, &decided.shard, write.clone(), &authority, operation))
}

async fn write(cluster: &Cluster, prepared: Prepared) -> Result<(), Status> {
    let started = Instant::now();
    let outcome = cluster.store.commit(prepared.txn.clone()).await;
    match &outcome {
        Outcome::Written { .. } => {
            pass::wrote(&prepared, cluster.clock.now_ms(), started.elapsed());
        }
        Outcome::Stale { .. } => crate::metrics::write_conflict(),
        Outcome::Deposed | Outcome::Unknown(_) => {}
    }
    let revision = gate::judge(cluster, outcome)?;
    cluster.seen(revision).await;
    cluster.wake.notify_one();
    Ok(())
}

fn refused(refusal: &MoveRefusal) -> Status {
    use MoveRefusedBecause as Because;
    let reason = match refusal.reason {
        Because::UnknownShard | Because::UnknownBroker => Reason::NotFound,
        Because::NotPlaced | Because::LeaderUnavailable => Reason::LeaderUnavailable,
        Because::DestinationNotLive => Reason::DestinationNotLive,
        Because::DestinationHalted => Reason::DestinationHalted,
        Because::AlreadyLeader => Reason::AlreadyLeader,
        Because::AtCapacity => Reason::AtCapacity,
        Because::RegionNotAllowed => Reason::RegionNotAllowed,
        Because::AlreadyMoving => Reason::AlreadyMoving,
        Because::MoveLimit => Reason::MoveLimit,
        Because::NotMoving => Reason::NotMoving,
        Because::LeaderAvailable | Because::NotAReplica => Reason::Conflict,
    };
    refuse(reason, refusal.detail.clone())
}
