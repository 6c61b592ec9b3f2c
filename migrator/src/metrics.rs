//! Every metric of the migrator, declared once.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_model::{BrokerId, CopyClass, Millis, PauseScope, ShardKey};
use evenkeel_proto::migrations::NodeStatus;
use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::copies::{Copy, State};
use crate::nodes::Node;
use crate::world::World;

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
const MAINTENANCE: &str = "evenkeel_copy_maintenance_backlog_bytes";
const NODE_BYTES: &str = "evenkeel_copy_node_bytes_total";
const EXPIRED: &str = "evenkeel_copy_expired_grant_bytes_total";
const SHED: &str = "evenkeel_copy_node_requests_shed_total";
const STATE: &str = "evenkeel_copy_node_state";
const FLOOR: &str = "evenkeel_copy_node_floor_seconds";
const OUT_OF_CAPACITY: &str = "evenkeel_copy_node_out_of_capacity";
const P99_RATIO: &str = "evenkeel_copy_node_p99_ratio";
const STALLS: &str = "evenkeel_copy_stalls_total";
const RESERVED: &str = "evenkeel_copies_reserved";
const PAUSED: &str = "evenkeel_copies_paused";
const STALE_WORDS: &str = "evenkeel_copy_stale_words_total";
const FIRST_GRANT: &str = "evenkeel_migrator_first_grant_seconds";
const SESSIONS: &str = "evenkeel_migrator_sessions";
const LEADING: &str = "evenkeel_migrator_leading";
const WRITE_FAILURES: &str = "evenkeel_copy_record_write_failures_total";

/// Describes all of them.
pub fn describe() {
    describe_gauge!(COPIES, "Copies by class and state");
    describe_counter!(COPY_BYTES, Unit::Bytes, "Bytes stored at destinations, by class");
    describe_counter!(GRANTED_BYTES, Unit::Bytes, "Bytes granted, used or not, by class");
    describe_counter!(PREEMPTIONS, "Running copies that lost their slot, by class");
    describe_histogram!(DURATION, Unit::Seconds, "From queued to over, of copies that got level");
    describe_histogram!(QUEUE_WAIT, Unit::Seconds, "From queued to the first slot, by class");
    describe_gauge!(BACKLOG, Unit::Bytes, "Bytes still to copy, as far as known, by class");
    describe_gauge!(ALLOWED, "What copies may take of a broker's link in each direction");
    describe_gauge!(SHARE, "Share of its link that a broker gives to copies");
    describe_gauge!(SOURCE_QUEUE, "Requests that wait at a broker that copies are read from");
    describe_gauge!(
        MAINTENANCE,
        Unit::Bytes,
        "Deferred maintenance of a broker; it has not fully recovered before that is 0"
    );
    describe_counter!(NODE_BYTES, Unit::Bytes, "Bytes of copies, by broker and direction");
    describe_counter!(EXPIRED, Unit::Bytes, "Granted bytes that a broker did not use in time");
    describe_counter!(SHED, "Requests that a broker refused at once");
    describe_gauge!(STATE, "1 for the state that a broker's copy controller is in");
    describe_gauge!(
        FLOOR,
        Unit::Seconds,
        "How long a broker's copies have had their least share with its requests too slow"
    );
    describe_gauge!(OUT_OF_CAPACITY, "1 once that is more than a minute");
    describe_gauge!(
        P99_RATIO,
        "Request p99 of a broker during a repair and a minute after, over its usual one; 0 outside"
    );
    describe_counter!(STALLS, "Copies stopped because no byte came for too long, by class");
    describe_gauge!(
        RESERVED,
        "Drains that waited too long and have a part of both ends kept for them"
    );
    describe_gauge!(
        PAUSED,
        "1 while an operator's pause holds a class, by class; `shards` counts pauses of single shards"
    );
    describe_counter!(STALE_WORDS, "Words of agents about another generation, ignored");
    describe_gauge!(
        FIRST_GRANT,
        Unit::Seconds,
        "From the beginning of this leadership's work to its first grant"
    );
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
    if leads {
        return;
    }
    // What this instance knew is another one's to tell now.
    round(&BTreeMap::new(), &BTreeMap::new(), Duration::ZERO);
    pauses(&World::default(), 0);
    first_grant(Duration::ZERO);
}

/// A broker is not known any more, or not to this instance: its gauges tell nothing.
pub fn forgotten(broker: &BrokerId) {
    let silent = Node::new(0, Duration::ZERO);
    of_node(&broker.to_string(), &silent, Duration::ZERO);
    gauge!(SHARE, "broker" => broker.to_string()).set(0.0);
}

/// A copy was stopped because no byte came.
pub fn stalled(class: CopyClass) {
    counter!(STALLS, "class" => class.as_str()).increment(1);
}

/// An agent spoke about another generation than the assignment's.
pub fn stale_word() {
    counter!(STALE_WORDS).increment(1);
}

/// This leadership granted for the first time.
pub fn first_grant(after: Duration) {
    gauge!(FIRST_GRANT).set(after.as_secs_f64());
}

/// What an agent told of its last second.
pub fn status(broker: &BrokerId, said: &NodeStatus) {
    let add = |name: &'static str, bytes| {
        counter!(name, "broker" => broker.to_string()).increment(bytes);
    };
    for (direction, bytes) in [("out", said.egress_bytes), ("in", said.ingress_bytes)] {
        let broker = broker.to_string();
        counter!(NODE_BYTES, "broker" => broker, "direction" => direction).increment(bytes);
    }
    add(EXPIRED, said.expired_grant_bytes);
    add(SHED, said.requests_shed);
}

/// Which pauses are on.
pub fn pauses(world: &World, now_ms: Millis) {
    let on = |scope: &PauseScope| world.pauses.get(scope).is_some_and(|p| p.is_on(now_ms));
    for class in CopyClass::ALL {
        let held = on(&PauseScope::Class(class));
        gauge!(PAUSED, "class" => class.as_str()).set(f64::from(u8::from(held)));
    }
    let shards = world
        .pauses
        .values()
        .filter(|pause| matches!(pause.scope, PauseScope::Shard(_)) && pause.is_on(now_ms));
    gauge!(PAUSED, "class" => "shards").set(shards.count() as f64);
}

/// What stands after a round.
pub fn round(copies: &BTreeMap<ShardKey, Copy>, nodes: &BTreeMap<BrokerId, Node>, now: Duration) {
    for class in CopyClass::ALL {
        let of_class = || copies.values().filter(move |copy| copy.job.class == class);
        for state in State::ALL {
            let n = of_class().filter(|copy| copy.state == state).count();
            gauge!(COPIES, "class" => class.as_str(), "state" => state.as_str()).set(n as f64);
        }
        let left =
            of_class().fold(0u64, |sum, copy| sum.saturating_add(copy.remaining().unwrap_or(0)));
        gauge!(BACKLOG, "class" => class.as_str()).set(left as f64);
    }
    let sessions = nodes.values().filter(|node| node.session.is_some()).count();
    gauge!(SESSIONS).set(sessions as f64);
    let reserved = copies.values().filter(|copy| copy.is_reserved()).count();
    gauge!(RESERVED).set(reserved as f64);
    for (broker, node) in nodes {
        of_node(&broker.to_string(), node, now);
    }
}

fn of_node(broker: &str, node: &Node, now: Duration) {
    let said = node.fresh(now);
    let word = said.map_or("", |said| said.state.as_str());
    for state in evenkeel_throttle::State::ALL.map(evenkeel_throttle::State::as_str) {
        let here = f64::from(u8::from(state == word));
        gauge!(STATE, "broker" => broker.to_owned(), "state" => state).set(here);
    }
    let set = |name: &'static str, value: f64| {
        gauge!(name, "broker" => broker.to_owned()).set(value);
    };
    set(ALLOWED, node.bytes_per_second(now) as f64);
    set(SHARE, node.share(now));
    set(SOURCE_QUEUE, said.map_or(0.0, |said| said.queue_depth as f64));
    set(FLOOR, node.at_floor(now).as_secs_f64());
    set(OUT_OF_CAPACITY, f64::from(u8::from(node.is_out_of_capacity(now))));
    set(P99_RATIO, node.vitals.ratio(now).unwrap_or(0.0));
    set(MAINTENANCE, said.map_or(0.0, |said| said.maintenance_backlog_bytes as f64));
}
