//! Every metric of this service, declared once. Labels are words of enums; none names a shard.

use std::time::Duration;

use evenkeel_model::BrokerId;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::duties::Refused;
use crate::gateway::holding::Ended;
use crate::maintenance::Job;

const SWITCHOVER_SECONDS: &str = "evenkeel_broker_shard_switchover_seconds";
const HELD: &str = "evenkeel_broker_shard_move_held_total";
const HOLD_SECONDS: &str = "evenkeel_broker_shard_move_hold_seconds";
const HOLD_REFUSED: &str = "evenkeel_broker_shard_move_hold_refused_total";
const REQUEST_SECONDS: &str = "evenkeel_broker_request_duration_seconds";
const PUBLISHED_RECORDS: &str = "evenkeel_broker_published_records_total";
const PUBLISHED_BYTES: &str = "evenkeel_broker_published_bytes_total";
const REQUESTS: &str = "evenkeel_broker_requests_total";
const SHED: &str = "evenkeel_broker_requests_shed_total";
const WRITING_MAX: &str = "evenkeel_broker_publishes_max";
const FORWARDED: &str = "evenkeel_broker_publishes_forwarded_total";
const SUBSCRIPTIONS: &str = "evenkeel_broker_subscriptions";
const ASSIGNMENTS_REFUSED: &str = "evenkeel_broker_assignments_refused_total";
const SHARDS: &str = "evenkeel_broker_shards";
const HALTED: &str = "evenkeel_broker_shards_halted";
const LAG: &str = "evenkeel_broker_replication_lag_records";
const STORED_BYTES: &str = "evenkeel_broker_stored_bytes";
const REPORTS_WRITTEN: &str = "evenkeel_broker_reports_written_total";
const REGISTRATIONS: &str = "evenkeel_broker_registrations_total";
const COPIED: &str = "evenkeel_broker_copy_bytes_total";
const MOVE_THROTTLED: &str = "evenkeel_broker_replication_move_throttled_bytes_total";
const CHECKSUM_FAILURES: &str = "evenkeel_broker_copy_checksum_failures_total";
const EXPIRED_GRANTS: &str = "evenkeel_broker_copy_expired_grant_bytes_total";
const COPY_REFUSED: &str = "evenkeel_broker_copy_refused_total";
const THROTTLE_SHARE: &str = "evenkeel_broker_throttle_share_ratio";
const THROTTLE_STATE: &str = "evenkeel_broker_throttle_state";
const THROTTLE_P99: &str = "evenkeel_broker_throttle_p99_seconds";
const MAINTENANCE_BACKLOG: &str = "evenkeel_broker_maintenance_backlog_bytes";
const MAINTENANCE_BYTES: &str = "evenkeel_broker_maintenance_bytes_total";
const MAINTENANCE_RATE: &str = "evenkeel_broker_maintenance_rate_bytes_per_second";
const SCRUB_ERRORS: &str = "evenkeel_broker_scrub_errors_total";
const DISK_USED: &str = "evenkeel_broker_disk_used_ratio";

/// Describes everything to the recorder, once per process.
pub fn describe() {
    describe_histogram!(
        SWITCHOVER_SECONDS,
        "From the fence to serving, of shards handed over to this broker"
    );
    describe_counter!(HELD, "Publishes held while their shard was between two leaders");
    describe_histogram!(HOLD_SECONDS, "How long publishes were held");
    describe_counter!(HOLD_REFUSED, "Publishes refused after or instead of being held");
    describe_histogram!(REQUEST_SECONDS, "Publishes served here, from arrival to answer");
    describe_counter!(PUBLISHED_RECORDS, "Records acknowledged by this broker as leader");
    describe_counter!(PUBLISHED_BYTES, "Payload bytes acknowledged by this broker as leader");
    describe_counter!(REQUESTS, "Client requests by call and outcome");
    describe_counter!(SHED, "Client requests refused at once because of too many others");
    describe_gauge!(WRITING_MAX, "Publishes that may be written here at once now");
    describe_counter!(FORWARDED, "Publishes sent on to the shard's leader");
    describe_gauge!(SUBSCRIPTIONS, "Open subscriptions");
    describe_counter!(ASSIGNMENTS_REFUSED, "Assignments not acted on, by reason");
    describe_gauge!(SHARDS, "Replicas held here, by role");
    describe_gauge!(HALTED, "Replicas held here that cannot go on");
    describe_gauge!(LAG, "Most records that a follower lacks of a shard led here, by follower");
    describe_gauge!(STORED_BYTES, "Bytes of logs on disk");
    describe_counter!(REPORTS_WRITTEN, "Shard reports written to the store");
    describe_counter!(REGISTRATIONS, "Registrations written to the store");
    describe_counter!(COPIED, "Bytes of shard copies, by direction");
    describe_counter!(MOVE_THROTTLED, "Bytes of shard copies that passed under the rate limit");
    describe_counter!(CHECKSUM_FAILURES, "Chunks and copies that failed verification");
    describe_counter!(EXPIRED_GRANTS, "Granted bytes not used in time");
    describe_counter!(COPY_REFUSED, "Copy requests refused, by reason");
    describe_gauge!(THROTTLE_SHARE, "Share of the link that copies may use now");
    describe_gauge!(THROTTLE_STATE, "1 for the state that the copy controller is in");
    describe_gauge!(THROTTLE_P99, "Own request p99 that the copy controller last saw");
    describe_gauge!(MAINTENANCE_BACKLOG, "Bytes of maintenance still to be done, by job");
    describe_counter!(MAINTENANCE_BYTES, "Bytes of maintenance done, by job");
    describe_gauge!(MAINTENANCE_RATE, "What maintenance may take now");
    describe_counter!(SCRUB_ERRORS, "Closed segments that maintenance found damaged");
    describe_gauge!(DISK_USED, "Used part of the disk that holds the logs");
}

/// A shard was handed over to this broker.
pub fn switchover_seconds(took: Duration) {
    histogram!(SWITCHOVER_SECONDS).record(took.as_secs_f64());
}

/// A publish began to wait.
pub fn held() {
    counter!(HELD).increment(1);
}

/// A publish waited so long in all.
pub fn hold_seconds(waited: Duration) {
    histogram!(HOLD_SECONDS).record(waited.as_secs_f64());
}

/// A publish could not wait, or no longer.
pub fn hold_refused(ended: Ended) {
    counter!(HOLD_REFUSED, "reason" => ended.label()).increment(1);
}

/// A publish was served here.
pub fn published(took: Duration, records: usize, bytes: u64) {
    histogram!(REQUEST_SECONDS).record(took.as_secs_f64());
    counter!(PUBLISHED_RECORDS).increment(records as u64);
    counter!(PUBLISHED_BYTES).increment(bytes);
}

/// A client's request was answered. `outcome` is `ok` or a stable refusal word.
pub fn request(call: &'static str, outcome: &'static str) {
    counter!(REQUESTS, "call" => call, "outcome" => outcome).increment(1);
}

/// So many publishes may be written at once.
pub fn writing_max(limit: usize) {
    gauge!(WRITING_MAX).set(limit as f64);
}

/// A request was refused at once. `reason`: `concurrency`, `bytes` or `latency`.
pub fn shed(reason: &'static str) {
    counter!(SHED, "reason" => reason).increment(1);
}

/// A publish was sent on.
pub fn forwarded() {
    counter!(FORWARDED).increment(1);
}

/// A subscription opened (1) or ended (-1).
pub fn subscriptions(change: f64) {
    gauge!(SUBSCRIPTIONS).increment(change);
}

/// An assignment was not acted on.
pub fn assignment_refused(why: &Refused) {
    counter!(ASSIGNMENTS_REFUSED, "reason" => why.label()).increment(1);
}

/// Replicas held, by role word.
pub fn shards(role: &'static str, count: usize) {
    gauge!(SHARDS, "role" => role).set(count as f64);
}

/// Halted replicas.
pub fn halted(count: usize) {
    gauge!(HALTED).set(count as f64);
}

/// The furthest that a follower is behind on any shard led here.
pub fn replication_lag(follower: &BrokerId, records: u64) {
    gauge!(LAG, "follower" => follower.to_string()).set(records as f64);
}

/// Bytes on disk.
pub fn stored_bytes(bytes: u64) {
    gauge!(STORED_BYTES).set(bytes as f64);
}

/// Reports were written.
pub fn reports_written(count: usize) {
    counter!(REPORTS_WRITTEN).increment(count as u64);
}

/// A registration was written.
pub fn registered() {
    counter!(REGISTRATIONS).increment(1);
}

/// Copy bytes sent to another broker, under the rate limit.
pub fn copied_out(bytes: u64) {
    counter!(COPIED, "direction" => "egress").increment(bytes);
    counter!(MOVE_THROTTLED).increment(bytes);
}

/// Copy bytes taken from another broker.
pub fn copied_in(bytes: u64) {
    counter!(COPIED, "direction" => "ingress").increment(bytes);
}

/// What arrived is not what was sent.
pub fn checksum_failure() {
    counter!(CHECKSUM_FAILURES).increment(1);
}

/// Granted bytes ran out of time.
pub fn grant_expired(bytes: u64) {
    counter!(EXPIRED_GRANTS).increment(bytes);
}

/// A copy request was refused. `reason`: `stale`, `token`, `diverged`, `behind`, `before_start`,
/// `not_held` or `storage`.
pub fn copy_refused(reason: &'static str) {
    counter!(COPY_REFUSED, "reason" => reason).increment(1);
}

/// Where the copy controller stands.
pub fn throttle(share: f64, state: &'static str, previous: &'static str, p99_ms: Option<f64>) {
    gauge!(THROTTLE_SHARE).set(share);
    if previous != state {
        gauge!(THROTTLE_STATE, "state" => previous).set(0.0);
    }
    gauge!(THROTTLE_STATE, "state" => state).set(1.0);
    if let Some(p99_ms) = p99_ms {
        gauge!(THROTTLE_P99).set(p99_ms / 1000.0);
    }
}

/// What a job still has to do.
pub fn maintenance_backlog(job: Job, bytes: u64) {
    gauge!(MAINTENANCE_BACKLOG, "job" => job.as_str()).set(bytes as f64);
}

/// A step of a job was admitted.
pub fn maintained(job: Job, bytes: u64) {
    counter!(MAINTENANCE_BYTES, "job" => job.as_str()).increment(bytes);
}

/// What maintenance may take.
pub fn maintenance_rate(bytes_per_second: u64) {
    gauge!(MAINTENANCE_RATE).set(bytes_per_second as f64);
}

/// A closed segment was found damaged.
pub fn scrub_error() {
    counter!(SCRUB_ERRORS).increment(1);
}

/// How full the disk is, 0 to 1.
pub fn disk_used(ratio: f64) {
    gauge!(DISK_USED).set(ratio);
}
