//! Every metric of the migrator, declared once.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_model::{BrokerId, CopyClass, ShardKey};
use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::copies::{Copy, State};
use crate::nodes::Node;

const COPIES: &str = "evenkeel_copies";
const COPY_BYTES: &str = "evenkeel_copy_bytes_total";
const GRANTED_BYTES: &str = "evenkeel_copy_granted_bytes_total";
const PREEMPTIONS: &str = "evenkeel_copy_preemptions_total";
const DURATION: &str = "evenkeel_copy_duration_seconds";
const QUEUE_WAIT: &str = "evenkeel_copy_queue_wait_seconds";
const BACKLOG: &str = "evenkeel_copy_remaining_bytes";
const ALLOWED: &str = "evenkeel_copy_allowed_bytes_per_second";
const SHARE: &str = "evenkeel_copy_node_share_ratio";
const SOURCE_QUEUE: &str = "evenkeel_copy_source_queue_requests";
const SESSIONS: &str = "evenkeel_migrator_sessions";
const LEADING: &str = "evenkeel_migrator_leading";
const WRITE_FAILURES: &str = "evenkeel_copy_record_write_failures_total";

/// Describes all of them.
pub fn describe() {
    describe_gauge!(COPIES, "Copies by class and state");
    describe_counter!(COPY_BYTES, Unit::Bytes, "Bytes verified at destinations, by class");
    describe_counter!(GRANTED_BYTES, Unit::Bytes, "Bytes granted, used or not, by class");
    describe_counter!(PREEMPTIONS, "Running copies that lost their slot, by class");
    describe_histogram!(DURATION, Unit::Seconds, "From queued to over, of copies that got level");
    describe_histogram!(QUEUE_WAIT, Unit::Seconds, "From queued to the first slot, by class");
    describe_gauge!(BACKLOG, Unit::Bytes, "Bytes still to copy, as far as known, by class");
    describe_gauge!(ALLOWED, "What copies may take of a broker's link in each direction");
    describe_gauge!(SHARE, "Share of its link that a broker gives to copies");
    describe_gauge!(SOURCE_QUEUE, "Requests that wait at a broker that copies are read from");
    describe_gauge!(SESSIONS, "Agents with a session to this migrator");
    describe_gauge!(LEADING, "1 while this instance is the elected one");
    describe_counter!(WRITE_FAILURES, "Writes of copy records that failed; they are repeated");
}

/// Bytes were verified at a destination.
pub fn verified(class: CopyClass, bytes: u64) {
    counter!(COPY_BYTES, "class" => class.as_str()).increment(bytes);
}

/// Bytes were granted.
pub fn granted(class: CopyClass, bytes: u64) {
    counter!(GRANTED_BYTES, "class" => class.as_str()).increment(bytes);
}

/// A running copy lost its slot.
pub fn preempted(class: CopyClass) {
    counter!(PREEMPTIONS, "class" => class.as_str()).increment(1);
}

/// A copy got its first slot.
pub fn started(class: CopyClass, waited: Duration) {
    histogram!(QUEUE_WAIT, "class" => class.as_str()).record(waited.as_secs_f64());
}

/// A copy is over.
pub fn finished(copy: &Copy, now: Duration) {
    if copy.state == State::Level {
        let took = now.saturating_sub(copy.since);
        histogram!(DURATION, "class" => copy.job.class.as_str()).record(took.as_secs_f64());
    }
}

/// A copy's record could not be written.
pub fn write_failed() {
    counter!(WRITE_FAILURES).increment(1);
}

/// Whether this instance leads.
pub fn leading(leads: bool) {
    gauge!(LEADING).set(f64::from(u8::from(leads)));
    if !leads {
        gauge!(SESSIONS).set(0.0);
    }
}

/// What stands after a round.
pub fn round(copies: &BTreeMap<ShardKey, Copy>, nodes: &BTreeMap<BrokerId, Node>, now: Duration) {
    for class in CopyClass::ALL {
        let of_class = || copies.values().filter(move |copy| copy.job.class == class);
        for state in State::ALL {
            let n = of_class().filter(|copy| copy.state == state).count();
            gauge!(COPIES, "class" => class.as_str(), "state" => state.as_str()).set(n as f64);
        }
        let left: u64 = of_class().map(|copy| copy.remaining().unwrap_or(0)).sum();
        gauge!(BACKLOG, "class" => class.as_str()).set(left as f64);
    }
    let sessions = nodes.values().filter(|node| node.session.is_some()).count();
    gauge!(SESSIONS).set(sessions as f64);
    for (broker, node) in nodes {
        let broker = broker.to_string();
        gauge!(ALLOWED, "broker" => broker.clone()).set(node.bytes_per_second(now) as f64);
        gauge!(SHARE, "broker" => broker.clone()).set(node.share(now));
        let queue = node.status.as_ref().map_or(0, |status| status.queue_depth);
        gauge!(SOURCE_QUEUE, "broker" => broker).set(queue as f64);
    }
}
