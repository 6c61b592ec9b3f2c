//! The planner over the records, kept from look to look: what changed in the store is changed in it,
//! and nothing else is reckoned anew. It holds what [`snapshot::build`] would build, which a test
//! compares after every kind of change.

use std::collections::BTreeSet;

use evenkeel_model::{BrokerId, ShardKey, Snapshot};
use evenkeel_planner::{Conditions, Planner};

use crate::records::Records;
use crate::snapshot::{self, Circumstances};
use crate::{copying, policy};

/// A planner, once somebody asked for one.
#[derive(Default)]
pub(crate) struct Kept {
    planner: Option<Planner>,
    /// The reading of the records that it was made from.
    reading: u64,
    /// The shards that move: how their copies get on changes with time alone.
    moving: BTreeSet<ShardKey>,
}

/// The subjects of all records that changed since the last look.
struct Changed {
    brokers: BTreeSet<BrokerId>,
    streams: bool,
    loads: BTreeSet<BrokerId>,
    reports: BTreeSet<(BrokerId, ShardKey)>,
    assignments: BTreeSet<ShardKey>,
    markers: BTreeSet<ShardKey>,
    history: bool,
}

impl Changed {
    fn take(records: &mut Records) -> Self {
        let mut brokers = records.nodes.take_changed();
        brokers.append(&mut records.registrations.take_changed());
        Self {
            brokers,
            streams: !records.streams.take_changed().is_empty(),
            loads: records.loads.take_changed(),
            reports: records.reports.take_changed(),
            assignments: records.assignments.take_changed(),
            markers: records.markers.take_changed(),
            history: !records.history.take_changed().is_empty(),
        }
    }

    /// Whether the rows of brokers and streams stay those of `kept`, and what records leave out is
    /// still filled in alike.
    fn is_small(&self, kept: &Snapshot, records: &Records, at: &Circumstances) -> bool {
        let listed = |b: &BrokerId| records.nodes.contains(b) == kept.brokers.contains_key(b);
        let first = snapshot::first_registered_ms(records).unwrap_or(at.now_ms);
        !self.streams
            && kept.elected_at_ms == at.elected_at_ms
            && kept.first_registered_ms == first
            && self.brokers.iter().all(listed)
    }
}

impl Kept {
    /// The planner over these records now.
    pub(crate) fn look(&mut self, records: &mut Records, at: &Circumstances) -> &Planner {
        let changed = Changed::take(records);
        if std::mem::replace(&mut self.reading, records.readings) != records.readings {
            self.planner = None;
        }
        match self.planner.take().filter(|kept| changed.is_small(kept.snapshot(), records, at)) {
            Some(mut planner) => {
                take_in(&mut planner, &mut self.moving, records, at, &changed);
                self.planner.insert(planner)
            }
            None => {
                let snapshot = snapshot::build(records, at);
                let moving = snapshot.assignments.values().filter(|a| a.is_moving());
                self.moving = moving.map(|a| a.shard.clone()).collect();
                self.planner.insert(Planner::new(snapshot))
            }
        }
    }
}

fn take_in(
    planner: &mut Planner,
    moving: &mut BTreeSet<ShardKey>,
    records: &Records,
    at: &Circumstances,
    changed: &Changed,
) {
    let mut reports = changed.reports.clone();
    let mut reborn = BTreeSet::new();
    for broker in &changed.brokers {
        let Some(view) = snapshot::broker_view(records, broker, at) else { continue };
        let known = planner.snapshot().brokers.get(broker);
        if known.is_none_or(|old| old.incarnation != view.incarnation) {
            reborn.insert(broker);
        }
        planner.set_broker(broker, view);
    }
    if !reborn.is_empty() {
        // Reports of another life count no more, or count again.
        let ids = records.reports.iter().map(|r| &r.id);
        reports.extend(ids.filter(|(broker, _)| reborn.contains(broker)).cloned());
    }
    for broker in &changed.loads {
        let Some(view) = planner.snapshot().brokers.get(broker) else { continue };
        // A broker whose own record cannot be read is given nothing, whatever it reports.
        let readable = records.nodes.get(broker).is_some();
        let load = snapshot::usable_load(records, broker, view.incarnation);
        planner.set_load(broker, load.filter(|_| readable));
    }
    let mut shards = changed.assignments.clone();
    for (broker, shard) in reports {
        take_report_in(planner, records, &broker, &shard);
        shards.insert(shard);
    }
    shards.append(&mut moving.clone());
    for shard in &shards {
        let stored = records.assignments.get(shard);
        let stored = stored.filter(|_| snapshot::belongs(planner.snapshot(), shard));
        let next = stored.map(|s| {
            let assignment = s.value.assignment.clone();
            snapshot::as_observed(planner.snapshot(), records, assignment, at.now_ms)
        });
        match next.as_ref().is_some_and(|next| next.is_moving()) {
            true => moving.insert(shard.clone()),
            false => moving.remove(shard),
        };
        if planner.snapshot().assignments.get(shard) != next.as_ref() {
            planner.set_assignment(shard, next);
        }
    }
    for shard in &changed.markers {
        let marker = records.markers.get(shard).map(|m| m.value.clone());
        planner.set_marker(shard, marker.filter(|_| snapshot::belongs(planner.snapshot(), shard)));
    }
    if changed.history {
        planner.set_history(snapshot::history(records));
    }
    take_time_in(planner, records, at);
}

fn take_report_in(planner: &mut Planner, records: &Records, broker: &BrokerId, shard: &ShardKey) {
    let stored = records.reports.get(&(broker.clone(), shard.clone()));
    let report = stored.and_then(|r| snapshot::usable_report(planner.snapshot(), &r.value));
    let mut reports = planner.snapshot().reports.get(shard).cloned().unwrap_or_default();
    reports.retain(|r| r.broker != *broker);
    if let Some(report) = report {
        let at = reports.partition_point(|r| r.broker < report.broker);
        reports.insert(at, report);
    }
    planner.set_reports(shard, reports);
}

/// What changes with time alone, and what holds for the whole cluster.
fn take_time_in(planner: &mut Planner, records: &Records, at: &Circumstances) {
    let present = records.registrations.ids().cloned();
    present.collect::<Vec<_>>().iter().for_each(|b| planner.set_last_seen(b, at.now_ms));
    planner.set_conditions(Conditions {
        as_of_ms: at.now_ms,
        first_registered_ms: snapshot::first_registered_ms(records).unwrap_or(at.now_ms),
        elected_at_ms: at.elected_at_ms,
        paused: snapshot::is_paused(records, at.now_ms),
        policy: policy::effective(records, &at.configured),
        copy_pauses: copying::pauses(records),
    });
}
