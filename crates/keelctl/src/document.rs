//! Messages of the services as the documents that `-o json` prints.

mod copies;

use evenkeel_proto::admin;
use serde_json::{Value, json};

pub(crate) use copies::{copy_class, copy_pause, limit, migration, shown_migration};

/// An assignment, in the form of the snapshot file.
pub(crate) fn assignment(a: &admin::Assignment) -> Value {
    json!({
        "shard": a.shard,
        "leader": a.leader,
        "followers": a.followers,
        "generation": a.generation,
        "state": a.state,
        "successor": a.successor,
        "joining": a.joining,
        "leaving": a.leaving,
        "move": a.r#move.as_ref().map(a_move),
    })
}

fn a_move(m: &admin::Move) -> Value {
    json!({
        "reason": m.reason,
        "started_at_ms": m.started_at_ms,
        "fenced_at_ms": m.fenced_at_ms,
        "progress_at_ms": m.progress_at_ms,
        "give_ups": m.give_ups,
        "next_try_ms": m.next_try_ms,
    })
}

/// A replica's report, in the form of the snapshot file.
pub(crate) fn report(r: &admin::ShardReport) -> Value {
    json!({
        "broker": r.broker,
        "shard": r.shard,
        "generation": r.generation,
        "phase": r.phase,
        "caught_up": r.caught_up,
        "lag_records": r.lag_records,
        "drained": r.drained,
        "halted": r.halted,
        "log_end": r.log_end,
    })
}

/// A broker with what it holds.
pub(crate) fn broker(b: &admin::Broker) -> Value {
    json!({
        "id": b.id,
        "lifecycle": b.lifecycle,
        "since_ms": b.since_ms,
        "incarnation": b.incarnation,
        "registered": b.registered,
        "address": b.address,
        "zone": b.zone,
        "region": b.region,
        "max_shards": b.max_shards,
        "weight": b.weight,
        "leaders": b.leaders,
        "replicas": b.replicas,
        "score": b.score,
        "cpu_percent": b.cpu_percent,
        "memory_percent": b.memory_percent,
    })
}

/// A stream, in the form of the snapshot file.
pub(crate) fn stream(s: &admin::Stream) -> Value {
    json!({
        "stream": s.stream,
        "shards": s.shards,
        "replication_factor": s.replication_factor,
        "durable": s.durable,
        "created_at_ms": s.created_at_ms,
        "region": s.region,
    })
}

/// A move in flight.
pub(crate) fn move_in_flight(m: &admin::MoveInFlight) -> Value {
    json!({
        "shard": m.assignment.as_ref().map(|a| a.shard.as_str()),
        "reason": m.assignment.as_ref().and_then(|a| a.r#move.as_ref()).map(|m| m.reason.as_str()),
        "stage": m.stage,
        "from": m.assignment.as_ref().and_then(source),
        "to": m.assignment.as_ref().and_then(|a| a.successor.as_ref().or(a.joining.as_ref())),
        "waiting": m.waiting,
        "detail": m.detail,
        "bytes_done": m.bytes_done,
        "bytes_total": m.bytes_total,
        "bytes_per_second": m.bytes_per_second,
        "assignment": m.assignment.as_ref().map(assignment),
    })
}

/// Whom a move takes the shard from.
fn source(a: &admin::Assignment) -> Option<&String> {
    if a.successor.is_some() { a.leader.as_ref() } else { a.leaving.as_ref() }
}

/// How far a drain has come.
pub(crate) fn drain(p: &admin::DrainProgress) -> Value {
    let shards = p.shards.iter().map(
        |s| json!({ "shard": s.shard, "role": s.role, "blocker": s.blocker, "detail": s.detail }),
    );
    json!({
        "broker": p.broker,
        "lifecycle": p.lifecycle,
        "leaders_left": p.leaders_left,
        "replicas_left": p.replicas_left,
        "shards": shards.collect::<Vec<_>>(),
    })
}

/// The whole cluster in a few numbers.
pub(crate) fn status(s: &admin::StatusResponse) -> Value {
    let checks = s.checks.iter().map(|c| json!({ "name": c.name, "summary": c.summary }));
    json!({
        "leader": s.leader,
        "leader_address": s.leader_address,
        "leader_since_ms": s.leader_since_ms,
        "revision": s.revision,
        "checks": checks.collect::<Vec<_>>(),
        "brokers_live": s.brokers_live,
        "brokers_draining": s.brokers_draining,
        "brokers_down": s.brokers_down,
        "brokers_left": s.brokers_left,
        "shards": s.shards,
        "shards_serving": s.shards_serving,
        "shards_under_replicated": s.shards_under_replicated,
        "replicas_missing": s.replicas_missing,
        "moves_in_flight": s.moves_in_flight,
        "moves_waiting": s.moves_waiting,
        "cv_percent": s.cv_percent,
        "stream_spread": s.stream_spread,
        "paused": s.paused,
        "paused_by": s.paused_by,
        "migrator": s.migrator,
        "migrator_address": s.migrator_address,
    })
}
