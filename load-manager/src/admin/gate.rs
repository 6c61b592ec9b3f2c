//! Who may answer, and how a write's outcome is told.

use std::fmt::Display;
use std::str::FromStr;

use evenkeel_coordination::{Guarded, Outcome, Revision};
use evenkeel_model::IdError;
use evenkeel_proto::convert;
use evenkeel_proto::refusal::{Reason, refuse, refuse_with};
use tonic::Status;

use crate::cluster::{Cluster, Leading};
use crate::metrics;

/// The leadership of this instance, or where to go instead.
pub(super) fn leading(cluster: &Cluster) -> Result<Leading, Status> {
    cluster.leading().ok_or_else(|| elsewhere(cluster))
}

/// The refusal of an instance that does not lead.
pub(super) fn elsewhere(cluster: &Cluster) -> Status {
    let leader = cluster.read(|records| {
        cluster.leader_record(records).map(|l| (l.instance.clone(), l.address.clone()))
    });
    match leader {
        Some((instance, address)) if instance != cluster.instance => refuse_with(
            Reason::NotLeader,
            format!("load manager {instance} at {address} leads"),
            &[("leader", &address)],
        ),
        _ => refuse(Reason::NoLeader, "no load manager is elected now"),
    }
}

/// Makes the write and waits until reads show it.
pub(super) async fn commit(cluster: &Cluster, txn: Guarded) -> Result<Revision, Status> {
    let outcome = cluster.store.commit(txn).await;
    let revision = judge(cluster, outcome)?;
    cluster.seen(revision).await;
    cluster.wake.notify_one();
    Ok(revision)
}

/// A write's outcome as an answer.
pub(super) fn judge(cluster: &Cluster, outcome: Outcome) -> Result<Revision, Status> {
    match outcome {
        Outcome::Written { revision } => Ok(revision),
        Outcome::Stale { .. } => {
            Err(refuse(Reason::Conflict, "it was changed meanwhile; nothing was written"))
        }
        Outcome::Deposed => {
            metrics::write_fenced();
            Err(elsewhere(cluster))
        }
        Outcome::Unknown(error) if error.maybe_applied() => {
            metrics::write_unknown();
            let detail = format!("it is not known whether it was written: {error}");
            Err(refuse(Reason::StoreUnavailable, detail))
        }
        Outcome::Unknown(error) => {
            Err(refuse(Reason::StoreUnavailable, format!("nothing was written: {error}")))
        }
    }
}

/// Parses an identifier, naming the field.
pub(super) fn parse<T: FromStr<Err = IdError>>(
    field: &'static str,
    value: &str,
) -> Result<T, Status> {
    convert::parse(field, value).map_err(invalid)
}

/// An argument that is not valid.
pub(super) fn invalid(detail: impl Display) -> Status {
    refuse(Reason::InvalidArgument, detail.to_string())
}

/// There is no such thing.
pub(super) fn not_found(what: &str, name: impl Display) -> Status {
    refuse(Reason::NotFound, format!("there is no {what} '{name}'"))
}
