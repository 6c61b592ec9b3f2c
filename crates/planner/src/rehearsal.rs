//! Plans carried out on paper: between passes everything under way happens and time goes on.

use evenkeel_model::{
    Assignment, BrokerId, Lifecycle, Millis, Phase, ShardKey, ShardReport, ShardState, Snapshot,
};

use crate::decision::{ShardDecision, Write};
use crate::plan::Plan;
use crate::planner::Planner;
use crate::standing::standing;

/// A snapshot on its way through passes.
pub(crate) struct Rehearsal {
    planner: Planner,
    /// Written since the last time that everything happened; none before the first time, when
    /// every shard has to be looked at.
    written: Option<Vec<ShardKey>>,
}

impl Rehearsal {
    pub(crate) fn new(snapshot: Snapshot) -> Self {
        Self { planner: Planner::new(snapshot), written: None }
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        self.planner.snapshot()
    }

    pub(crate) fn into_snapshot(self) -> Snapshot {
        self.planner.into_snapshot()
    }

    pub(crate) fn plan(&self) -> Plan {
        self.planner.plan()
    }

    /// Puts a decision's write in.
    pub(crate) fn write(&mut self, decision: &ShardDecision) {
        if let Some(write) = decision.decision.write() {
            self.move_load_row(write);
            self.planner.apply(decision);
            self.written.iter_mut().for_each(|w| w.push(decision.shard.clone()));
        }
    }

    /// Everything under way happens, and time goes on by one interval.
    pub(crate) fn settle(&mut self) {
        self.put_on(self.snapshot().policy.reconcile_interval_ms);
    }

    /// Everything under way happens, and time goes on by `delay`.
    pub(crate) fn put_on(&mut self, delay: Millis) {
        match self.written.replace(Vec::new()) {
            None => self.planner.alter(|snapshot| settle_all(snapshot, delay)),
            // What was not written has settled before.
            Some(written) => {
                self.planner.refresh(|snapshot| pass_time(snapshot, delay));
                written.iter().for_each(|shard| self.settle_shard(shard));
            }
        }
    }

    fn settle_shard(&mut self, shard: &ShardKey) {
        let snapshot = self.planner.snapshot();
        let Some(mut next) = snapshot.assignments.get(shard).cloned() else { return };
        let Some(settled) = settled(snapshot, &next) else { return };
        next.state = settled.state;
        self.planner.set_assignment(shard, Some(next));
        self.planner.set_reports(shard, settled.reports);
    }

    /// A shard's row of the load report goes with its leader.
    fn move_load_row(&mut self, write: &Write) {
        let planner = &mut self.planner;
        let shard = &write.next.shard;
        let before = planner.snapshot().assignments.get(shard).and_then(|a| a.leader.clone());
        let (Some(before), Some(after)) = (before, write.next.leader.clone()) else { return };
        if before == after {
            return;
        }
        let load = |broker: &BrokerId| planner.snapshot().brokers.get(broker)?.load.as_ref();
        let found = load(&before).and_then(|l| l.shards.iter().position(|r| r.shard == *shard));
        let (Some(at), Some(mut source)) = (found, load(&before).cloned()) else { return };
        let row = source.shards.remove(at);
        if let Some(mut destination) = load(&after).cloned() {
            destination.shards.push(row);
            planner.set_load(&after, Some(destination));
        }
        planner.set_load(&before, Some(source));
    }
}

/// Lets what is under way happen: copies catch up, fences drain, leaders open; time goes on.
pub fn settle(snapshot: &mut Snapshot) {
    settle_all(snapshot, snapshot.policy.reconcile_interval_ms);
}

fn settle_all(snapshot: &mut Snapshot, delay: Millis) {
    pass_time(snapshot, delay);
    let serving: Vec<(ShardKey, Settled)> = snapshot
        .assignments
        .values()
        .filter_map(|a| Some((a.shard.clone(), settled(snapshot, a)?)))
        .collect();
    for (shard, settled) in serving {
        if let Some(assignment) = snapshot.assignments.get_mut(&shard) {
            assignment.state = settled.state;
        }
        snapshot.reports.insert(shard, settled.reports);
    }
}

/// Time goes on, and agents go on registering and reporting.
fn pass_time(snapshot: &mut Snapshot, delay: Millis) {
    snapshot.as_of_ms = snapshot.as_of_ms.saturating_add(delay);
    let now = snapshot.as_of_ms;
    let old = now.saturating_sub(delay);
    for broker in snapshot.brokers.values_mut() {
        if broker.registered && broker.lifecycle != Lifecycle::Left {
            broker.last_seen_ms = broker.last_seen_ms.max(old);
        }
        // A report that was fresh stays so: agents go on reporting.
        if let Some(load) = &mut broker.load
            && old.saturating_sub(load.reported_at_ms) <= snapshot.policy.load_stale_after_ms
        {
            load.reported_at_ms = load.reported_at_ms.saturating_add(delay);
        }
    }
}

/// What becomes of a shard when everything under way for it has happened.
struct Settled {
    reports: Vec<ShardReport>,
    state: ShardState,
}

/// Whether something is under way for the shard, a follower is behind, or its reports speak of
/// another generation.
fn needs_reports(snapshot: &Snapshot, a: &Assignment) -> bool {
    let current = |r: &ShardReport| r.generation == a.generation;
    let behind = |r: &ShardReport| {
        current(r)
            && !r.caught_up
            && r.halted_because().is_none()
            && a.followers.contains(&r.broker)
    };
    a.is_moving()
        || a.state == ShardState::Assigning
        || snapshot
            .reports
            .get(&a.shard)
            .is_some_and(|reports| !reports.iter().any(current) || reports.iter().any(behind))
}

fn settled(snapshot: &Snapshot, a: &Assignment) -> Option<Settled> {
    if !needs_reports(snapshot, a) {
        return None;
    }
    // A broker that left serves on, as one that is drained, while its lease may be alive.
    let (now, policy) = (snapshot.as_of_ms, &snapshot.policy);
    let serves = |id: &BrokerId| {
        snapshot.brokers.get(id).is_some_and(|b| standing(b, now, policy).may_lead())
    };
    // What has halted does not mend itself.
    let halted = |id: &BrokerId| snapshot.halted(&a.shard, id);
    let leader = a.leader.as_ref().filter(|l| serves(l) && halted(l).is_none())?;
    let fenced = a.state == ShardState::Draining;
    let before = snapshot.reports.get(&a.shard);
    let end = before.and_then(|reports| {
        reports.iter().filter(|r| r.broker == *leader).filter_map(|r| r.log_end).max()
    });
    let report = |broker: &BrokerId, phase: Phase| ShardReport {
        broker: broker.clone(),
        shard: a.shard.clone(),
        generation: a.generation,
        phase: Some(phase),
        caught_up: true,
        lag_records: Some(0),
        drained: phase == Phase::Drained,
        halted: None,
        log_end: end,
        declined: false,
    };
    let phase = if fenced { Phase::Drained } else { Phase::Serving };
    let mut reports = vec![report(leader, phase)];
    let followers = a.followers.iter().map(|b| (b, Phase::Following));
    let copies = a.successor.iter().chain(&a.joining).map(|b| (b, Phase::Copying));
    for (broker, phase) in followers.chain(copies) {
        if !serves(broker) || reports.iter().any(|r| r.broker == *broker) {
            continue;
        }
        // A copy begins anew, except for a fenced shard.
        let stays = fenced || phase == Phase::Following;
        let halted = halted(broker).filter(|_| stays).map(str::to_owned);
        let phase = if halted.is_some() { Phase::Halted } else { phase };
        let caught_up = halted.is_none();
        reports.push(ShardReport { caught_up, halted, ..report(broker, phase) });
    }
    let state = if fenced { ShardState::Draining } else { ShardState::Active };
    Some(Settled { reports, state })
}
