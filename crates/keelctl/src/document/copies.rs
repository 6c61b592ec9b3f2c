//! Messages of the migrator as documents.

use evenkeel_proto::migrations as proto;
use serde_json::{Value, json};

/// A copy that the migrator runs.
pub(crate) fn migration(m: &proto::Migration) -> Value {
    json!({
        "shard": m.shard,
        "generation": m.generation,
        "class": m.class,
        "source": m.source,
        "destination": m.destination,
        "state": m.state,
        "bytes_done": m.bytes_done,
        "bytes_total": m.bytes_total,
        "bytes_per_second": m.bytes_per_second,
        "limited_by": m.limited_by,
        "place": m.place,
        "age_seconds": m.age_seconds,
        "failures": m.failures,
        "last_failure": m.last_failure,
        "eta": m.eta.as_ref().map(span),
        "stalled": m.stalled,
        "reserved": m.reserved,
    })
}

fn span(s: &proto::Span) -> Value {
    json!({ "least_seconds": s.least_seconds, "most_seconds": s.most_seconds })
}

/// The copies of a class in sum.
pub(crate) fn copy_class(c: &proto::ClassSummary) -> Value {
    json!({
        "class": c.class,
        "running": c.running,
        "queued": c.queued,
        "bytes_left": c.bytes_left,
        "bytes_per_second": c.bytes_per_second,
        "eta": c.eta.as_ref().map(span),
        "unknown_size": c.unknown_size,
    })
}

/// An operator's pause of copies.
pub(crate) fn copy_pause(p: &proto::CopyPause) -> Value {
    json!({
        "scope": p.scope,
        "by": p.by,
        "reason": p.reason,
        "at_ms": p.at_ms,
        "until_ms": p.until_ms,
    })
}

/// Everything about one copy.
pub(crate) fn shown_migration(s: &proto::ShowMigrationResponse) -> Value {
    let candidate = |c: &proto::SourceCandidate| {
        json!({
            "broker": c.broker,
            "role": c.role,
            "expected_seconds": c.expected_seconds,
            "failed": c.failed,
        })
    };
    json!({
        "migration": s.migration.as_ref().map(migration),
        "class_reason": s.class_reason,
        "source_reason": s.source_reason,
        "candidates": s.candidates.iter().map(candidate).collect::<Vec<_>>(),
        "source_limit": s.source_limit.as_ref().map(limit),
        "destination_limit": s.destination_limit.as_ref().map(limit),
        "pauses": s.pauses.iter().map(copy_pause).collect::<Vec<_>>(),
    })
}

/// What limits a broker's copies, and how its requests fare.
pub(crate) fn limit(l: &proto::Limit) -> Value {
    json!({
        "broker": l.broker,
        "link_bytes_per_second": l.link_bytes_per_second,
        "share": l.share,
        "effective_bytes_per_second": l.effective_bytes_per_second,
        "owner": l.owner,
        "cap_bytes_per_second": l.cap_bytes_per_second,
        "p99_ms": l.p99_ms,
        "state": l.state,
        "reason": l.reason,
        "target_p99_ms": l.target_p99_ms,
        "usual_p99_ms": l.usual_p99_ms,
        "p99_ratio": l.p99_ratio,
        "floor_seconds": l.floor_seconds,
        "out_of_capacity": l.out_of_capacity,
        "queue_depth": l.queue_depth,
        "egress_bytes_per_second": l.egress_bytes_per_second,
        "ingress_bytes_per_second": l.ingress_bytes_per_second,
        "maintenance_backlog_bytes": l.maintenance_backlog_bytes,
        "maintenance_bytes_per_second": l.maintenance_bytes_per_second,
        "recovering": l.recovering,
        "expired_grant_bytes": l.expired_grant_bytes,
        "requests_shed": l.requests_shed,
        "request_limit": l.request_limit,
    })
}
