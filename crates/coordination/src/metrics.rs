//! Every metric of this crate, declared once.

use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::ErrorClass;

pub const REQUEST_SECONDS: &str = "evenkeel_etcd_request_duration_seconds";
pub const ERRORS: &str = "evenkeel_etcd_errors_total";
pub const ROTATIONS: &str = "evenkeel_etcd_endpoint_rotations_total";
pub const LEASE_REMAINING: &str = "evenkeel_lease_remaining_seconds";
pub const LEASES_LOST: &str = "evenkeel_leases_lost_total";
pub const LEADING: &str = "evenkeel_election_leading";
pub const RELISTS: &str = "evenkeel_view_relists_total";
pub const REOPENS: &str = "evenkeel_watch_reopens_total";
pub const DRIFT: &str = "evenkeel_view_drift_total";

/// Registers the help texts with the installed recorder.
pub fn describe() {
    describe_histogram!(
        REQUEST_SECONDS,
        Unit::Seconds,
        "Time of one attempt of a call to etcd, failed ones too, by operation."
    );
    describe_counter!(ERRORS, "Failed attempts of calls to etcd, by what the error means.");
    describe_counter!(ROTATIONS, "Times a failing etcd endpoint was left for the next one.");
    describe_gauge!(
        LEASE_REMAINING,
        Unit::Seconds,
        "How long the lease was provably alive at its last renewal; 0 once it is lost."
    );
    describe_counter!(LEASES_LOST, "Leases that ran out or were revoked while in use.");
    describe_gauge!(LEADING, "1 while this process holds the leadership of the key, else 0.");
    describe_counter!(RELISTS, "Full listings by a view, by reason.");
    describe_counter!(REOPENS, "Watches opened again, by reason.");
    describe_counter!(
        DRIFT,
        "Keys that a periodic listing found different although the watch had passed them."
    );
}

/// The operation of a call, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Get,
    List,
    Put,
    Delete,
    Txn,
    Compact,
    Grant,
    Renew,
    Revoke,
    Watch,
    Status,
    Maintain,
}

impl Op {
    fn label(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::Txn => "txn",
            Self::Compact => "compact",
            Self::Grant => "grant",
            Self::Renew => "renew",
            Self::Revoke => "revoke",
            Self::Watch => "watch",
            Self::Status => "status",
            Self::Maintain => "maintain",
        }
    }
}

pub(crate) fn requested(op: Op, took: Duration) {
    histogram!(REQUEST_SECONDS, "op" => op.label()).record(took.as_secs_f64());
}

pub(crate) fn failed(class: ErrorClass) {
    counter!(ERRORS, "class" => class.label()).increment(1);
}

pub(crate) fn rotated() {
    counter!(ROTATIONS).increment(1);
}

pub(crate) fn lease_remaining(session: &'static str, remaining: Duration) {
    gauge!(LEASE_REMAINING, "session" => session).set(remaining.as_secs_f64());
}

pub(crate) fn lease_lost(session: &'static str) {
    counter!(LEASES_LOST, "session" => session).increment(1);
}

pub(crate) fn leading(election: &'static str, leads: bool) {
    gauge!(LEADING, "election" => election).set(if leads { 1.0 } else { 0.0 });
}

pub(crate) fn relisted(reason: &'static str) {
    counter!(RELISTS, "reason" => reason).increment(1);
}

pub(crate) fn reopened(reason: &'static str) {
    counter!(REOPENS, "reason" => reason).increment(1);
}

pub(crate) fn drifted(keys: usize) {
    counter!(DRIFT).increment(keys as u64);
}
