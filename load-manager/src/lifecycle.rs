//! What becomes of brokers: live at a registration, draining when asked, down when the registration
//! has been gone for the grace, left at the farewell.
//!
//! A machine without I/O: records and time in, records to write and the next time to look out. What
//! must outlive this leader is in the records; how long a registration has been missing is not: a
//! new leader counts from its election, so that an outage of the load managers takes nobody down.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_coordination::Revision;
use evenkeel_model::{BrokerId, Lifecycle, Millis, NodeRecord, RECORD_VERSION, Registration};

use crate::records::Records;

/// One node record to write, guarded by the revision it was decided from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeWrite {
    /// The whole record.
    pub(crate) next: NodeRecord,
    /// Revision of the record before; 0 if there is none.
    pub(crate) revision: Revision,
    /// What happened, for the log.
    pub(crate) cause: Cause,
}

/// What made a lifecycle change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The broker registered for the first time, or anew.
    Registered,
    /// The same incarnation came back after its lease was lost.
    Returned,
    /// The broker was told to stop and asks to be drained.
    Stopping,
    /// Its registration has been gone for the grace.
    Silent,
    /// A broker that had said farewell is gone.
    Gone,
    /// An operator, or the broker itself, asked for it.
    Asked,
}

impl Cause {
    /// The word used in the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Returned => "returned",
            Self::Stopping => "stopping",
            Self::Silent => "silent",
            Self::Gone => "gone",
            Self::Asked => "asked",
        }
    }
}

/// What [`Lifecycles::observe`] decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Output {
    /// Independent of each other, in broker order.
    pub(crate) writes: Vec<NodeWrite>,
    /// When something becomes due if nothing changes.
    pub(crate) wake_at_ms: Option<Millis>,
}

/// Since when registrations are missing.
#[derive(Debug)]
pub(crate) struct Lifecycles {
    grace_ms: Millis,
    missing_since: BTreeMap<BrokerId, Millis>,
}

impl Lifecycles {
    /// Made at an election: nothing is missing yet.
    pub(crate) fn new(grace_ms: Millis) -> Self {
        Self { grace_ms, missing_since: BTreeMap::new() }
    }

    /// Looks at every broker. Early, late and repeated calls are harmless.
    pub(crate) fn observe(&mut self, now_ms: Millis, records: &Records) -> Output {
        let mut output = Output::default();
        let registered = records.registrations.iter().map(|r| &r.id);
        let brokers: BTreeSet<&BrokerId> =
            registered.chain(records.nodes.iter().map(|n| &n.id)).collect();
        let mut missing = BTreeMap::new();
        for broker in brokers {
            // Nothing may be decided over a record that cannot be read.
            if records.nodes.is_unreadable(broker) || records.registrations.is_unreadable(broker) {
                continue;
            }
            let node = records.nodes.get(broker).map(|n| &n.value);
            let changed = match records.registrations.get(broker) {
                Some(registration) => present(now_ms, node, &registration.value),
                None => {
                    let since = *self.missing_since.get(broker).unwrap_or(&now_ms);
                    missing.insert(broker.clone(), since);
                    let (changed, due) = node
                        .map(|node| absent(now_ms, node, since, self.grace_ms))
                        .unwrap_or_default();
                    output.wake_at_ms = [output.wake_at_ms, due].into_iter().flatten().min();
                    changed
                }
            };
            if let Some((next, cause)) = changed {
                let revision = records.nodes.revision_of(broker);
                output.writes.push(NodeWrite { next, revision, cause });
            }
        }
        self.missing_since = missing;
        output
    }
}

type Change = Option<(NodeRecord, Cause)>;

fn present(now_ms: Millis, node: Option<&NodeRecord>, seen: &Registration) -> Change {
    let wanted = if seen.stopping { Lifecycle::Draining } else { Lifecycle::Live };
    let Some(node) = node.filter(|n| n.incarnation == seen.incarnation) else {
        let next = NodeRecord {
            v: RECORD_VERSION,
            broker: seen.broker.clone(),
            lifecycle: wanted,
            since_ms: now_ms,
            incarnation: seen.incarnation,
            first_registered_ms: node.map_or(now_ms, |n| n.first_registered_ms),
            last_seen_ms: None,
            zone: seen.zone.clone(),
            drain_asked: false,
        };
        return Some((next, Cause::Registered));
    };
    let (lifecycle, cause) = match node.lifecycle {
        Lifecycle::Live if seen.stopping => (Lifecycle::Draining, Cause::Stopping),
        // A lost lease is no restart: a drain that was asked for goes on.
        Lifecycle::Down if node.drain_asked => (Lifecycle::Draining, Cause::Returned),
        Lifecycle::Down => (wanted, Cause::Returned),
        // A farewell holds until the broker starts anew.
        Lifecycle::Live | Lifecycle::Draining | Lifecycle::Left => return None,
    };
    let next = NodeRecord {
        lifecycle,
        since_ms: now_ms,
        last_seen_ms: None,
        drain_asked: false,
        zone: seen.zone.clone(),
        ..node.clone()
    };
    Some((next, cause))
}

/// The change, if any, and when one becomes due.
fn absent(
    now_ms: Millis,
    node: &NodeRecord,
    since_ms: Millis,
    grace_ms: Millis,
) -> (Change, Option<Millis>) {
    match node.lifecycle {
        Lifecycle::Live | Lifecycle::Draining => {
            let due = since_ms.saturating_add(grace_ms);
            if now_ms < due {
                return (None, Some(due));
            }
            let next = NodeRecord {
                lifecycle: Lifecycle::Down,
                since_ms: now_ms,
                last_seen_ms: Some(since_ms),
                drain_asked: node.lifecycle == Lifecycle::Draining,
                ..node.clone()
            };
            (Some((next, Cause::Silent)), None)
        }
        // The farewell was written while the registration was still there: now it is not.
        Lifecycle::Left if node.last_seen_ms.is_none() => {
            let next = NodeRecord { last_seen_ms: Some(since_ms), ..node.clone() };
            (Some((next, Cause::Gone)), None)
        }
        Lifecycle::Left | Lifecycle::Down => (None, None),
    }
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;
