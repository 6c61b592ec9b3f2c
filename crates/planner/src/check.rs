//! What must hold of every plan, whatever the snapshot. Tests and the simulator ask; a running load
//! manager may, too, and then refuses the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use evenkeel_model::{Assignment, BrokerId, ShardKey, ShardState, Snapshot};

use crate::decision::{Step, Write};
use crate::plan::Plan;

/// A plan that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The shard, if it is about one.
    pub shard: Option<ShardKey>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shard {
            Some(shard) => write!(f, "{shard}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// Every rule that `plan`, made from `snapshot`, breaks.
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for decision in &plan.decisions {
        if !seen.insert(&decision.shard) {
            found.push(about(&decision.shard, "is listed twice".to_owned()));
        }
        if let Some(write) = decision.decision.write() {
            check_write(snapshot, write, &mut found);
        }
    }
    check_caps(snapshot, plan, &mut found);
    check_slots(snapshot, plan, &mut found);
    found
}

fn about(shard: &ShardKey, what: String) -> Violation {
    Violation { shard: Some(shard.clone()), what }
}

fn check_write(snapshot: &Snapshot, write: &Write, found: &mut Vec<Violation>) {
    let next = &write.next;
    let shard = &next.shard;
    let old = snapshot.assignments.get(shard);
    let mut say = |what: String| found.push(about(shard, format!("{}: {what}", write.step)));
    let expected = old.map_or(1, |a| a.generation + 1);
    if next.generation != expected {
        say(format!("generation {} instead of {expected}", next.generation));
    }
    let voters: BTreeSet<&BrokerId> = next.voters().collect();
    if voters.len() != next.voters().count() {
        say("a broker votes twice".to_owned());
    }
    if next.leader.is_none() {
        say("no leader".to_owned());
    }
    let before: BTreeSet<&BrokerId> = old.iter().flat_map(|a| a.voters()).collect();
    if write.step != Step::Place {
        let added = voters.difference(&before).count();
        let removed = before.difference(&voters).count();
        if added > 1 || removed > 1 || (removed == 1 && added == 0) {
            say(format!("the set changes by {added} new and {removed} gone members"));
        }
    }
    let changes = [Step::CutOver, Step::Promote, Step::Place];
    if let Some(old) = old
        && old.leader != next.leader
        && !changes.contains(&write.step)
    {
        say("the leader changes".to_owned());
    }
    if write.step == Step::CutOver && old.is_none_or(|a| a.state != ShardState::Draining) {
        say("the leader was not fenced".to_owned());
    }
    for broker in newly_named(old, next) {
        let target = snapshot.brokers.get(broker).is_some_and(|b| b.is_target());
        if !target {
            say(format!("{broker} is no target"));
        }
        let region = snapshot.streams.get(&shard.stream).and_then(|s| s.region.as_ref());
        let there = snapshot.brokers.get(broker).and_then(|b| b.region.as_ref());
        if region.is_some() && region != there {
            say(format!("{broker} is not in the stream's region"));
        }
    }
}

/// Brokers that a write names and that did not hold the shard before.
fn newly_named<'a>(
    old: Option<&'a Assignment>,
    next: &'a Assignment,
) -> impl Iterator<Item = &'a BrokerId> {
    let held: BTreeSet<&BrokerId> = old.iter().flat_map(|a| a.members()).map(|(b, _)| b).collect();
    next.members().into_iter().map(|(b, _)| b).filter(move |b| !held.contains(b))
}

fn held(assignments: &BTreeMap<ShardKey, &Assignment>) -> BTreeMap<BrokerId, u32> {
    let mut held: BTreeMap<BrokerId, u32> = BTreeMap::new();
    for assignment in assignments.values() {
        for (broker, _) in assignment.members() {
            *held.entry(broker.clone()).or_default() += 1;
        }
    }
    held
}

fn after<'a>(snapshot: &'a Snapshot, plan: &'a Plan) -> BTreeMap<ShardKey, &'a Assignment> {
    let mut after: BTreeMap<ShardKey, &Assignment> =
        snapshot.assignments.iter().map(|(k, a)| (k.clone(), a)).collect();
    for decision in &plan.decisions {
        if let Some(write) = decision.decision.write() {
            after.insert(decision.shard.clone(), &write.next);
        }
    }
    after
}

/// No broker above its cap holds more than before.
fn check_caps(snapshot: &Snapshot, plan: &Plan, found: &mut Vec<Violation>) {
    let before = held(&snapshot.assignments.iter().map(|(k, a)| (k.clone(), a)).collect());
    for (broker, count) in held(&after(snapshot, plan)) {
        let cap = snapshot.brokers.get(&broker).and_then(|b| b.max_shards);
        let earlier = before.get(&broker).copied().unwrap_or(0);
        if let Some(cap) = cap
            && count > cap
            && count > earlier
        {
            let what = format!("{broker} would hold {count} shards and its max_shards is {cap}");
            found.push(Violation { shard: None, what });
        }
    }
}

/// Started copies stay within the limits; what was under way before may be above them.
fn check_slots(snapshot: &Snapshot, plan: &Plan, found: &mut Vec<Violation>) {
    let policy = &snapshot.policy;
    let starts = [Step::Stage, Step::Reseat];
    let starting = plan.decisions.iter().filter_map(|d| d.decision.write());
    let started = starting.filter(|w| starts.contains(&w.step)).count() as u32;
    let moves = plan.report.moves_in_flight;
    if started > 0 && moves > policy.moves_max_concurrent {
        let limit = policy.moves_max_concurrent;
        let what = format!("{moves} moves would be under way and the limit is {limit}");
        found.push(Violation { shard: None, what });
    }
    let Some(max) = policy.moves_max_per_node else { return };
    let mut copies: BTreeMap<&BrokerId, (u32, bool)> = BTreeMap::new();
    let after = after(snapshot, plan);
    for (shard, assignment) in &after {
        let copy = assignment.successor.as_ref().or(assignment.joining.as_ref());
        let Some(copy) = copy.filter(|c| !assignment.followers.contains(c)) else { continue };
        let before = snapshot.assignments.get(shard);
        let new = before
            .is_none_or(|a| a.successor.as_ref() != Some(copy) && a.joining.as_ref() != Some(copy));
        for broker in assignment.leader.iter().chain([copy]) {
            let entry = copies.entry(broker).or_default();
            entry.0 += 1;
            entry.1 |= new;
        }
    }
    for (broker, (count, new)) in copies {
        if count > max && new {
            let what = format!("{broker} would take part in {count} copies and the limit is {max}");
            found.push(Violation { shard: None, what });
        }
    }
}
