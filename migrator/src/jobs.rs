//! The jobs that the assignments name. The assignment is the copy job: there is no second record
//! to tear.

use std::collections::BTreeMap;

use evenkeel_model::{
    Assignment, BrokerId, CopyClass, Generation, MoveReason, Phase, ShardKey, ShardState,
};

use crate::world::World;

/// One copy that an assignment asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The shard.
    pub shard: ShardKey,
    /// The assignment's generation.
    pub generation: Generation,
    /// Leadership token of the load manager that wrote it.
    pub token: i64,
    /// What the copy is for.
    pub class: CopyClass,
    /// Why it is of that class.
    pub class_reason: String,
    /// Where the bytes go.
    pub destination: BrokerId,
    /// Where they may come from, in no order of preference, but those that hold only some of them
    /// come last.
    pub sources: Vec<BrokerId>,
    /// How many at their end hold only some of them.
    pub behind: usize,
    /// The leader, whether or not it serves.
    pub leader: Option<BrokerId>,
    /// Bytes in all, as the leader said last; none if it has said nothing.
    pub size_bytes: Option<u64>,
}

/// Every job of the cluster, by shard.
pub fn derive(world: &World) -> BTreeMap<ShardKey, Job> {
    world
        .moving
        .values()
        .filter_map(|assignment| job(world, assignment))
        .map(|job| (job.shard.clone(), job))
        .collect()
}

fn job(world: &World, assignment: &Assignment) -> Option<Job> {
    // From the fence on the leader's own stream ships what is left, and nothing throttles it.
    if assignment.state == ShardState::Draining {
        return None;
    }
    let destination = destination(assignment)?;
    let report = world.reports.get(&(assignment.shard.clone(), destination.clone()));
    if report.is_some_and(|report| report.caught_up) {
        return None;
    }
    let (class, class_reason) = class(world, assignment);
    let (sources, behind) = sources(world, assignment);
    Some(Job {
        shard: assignment.shard.clone(),
        generation: assignment.generation,
        token: world.tokens.get(&assignment.shard).copied().unwrap_or(0),
        class,
        class_reason,
        destination: destination.clone(),
        sources,
        behind,
        leader: assignment.leader.clone(),
        size_bytes: world.sizes.get(&assignment.shard).copied(),
    })
}

/// A successor that follows already has its copy.
fn destination(assignment: &Assignment) -> Option<&BrokerId> {
    let successor =
        assignment.successor.as_ref().filter(|broker| !assignment.followers.contains(broker));
    successor.or(assignment.joining.as_ref())
}

/// The class, and why it is that one.
fn class(world: &World, assignment: &Assignment) -> (CopyClass, String) {
    let voters = assignment.voters().count();
    let is_live = |broker: &BrokerId| world.is_live(&assignment.shard, broker);
    let live = assignment.voters().filter(|broker| is_live(broker)).count();
    let replaces_live = assignment.leaving.as_ref().is_some_and(is_live);
    let adds_replica = assignment.joining.is_some() && !replaces_live;
    let reason = assignment.move_.as_ref().map_or(MoveReason::Restore, |m| m.reason);
    let class = CopyClass::of_copy(reason, adds_replica, voters, live);
    let what = match class {
        CopyClass::Unavailable => "no majority, nothing can be committed",
        CopyClass::LastCopy if live < voters => "one more loss and it is gone",
        CopyClass::LastCopy => "one loss and it is gone",
        CopyClass::UnderReplicated => "short of its target",
        _ => return (class, format!("a move for {}", reason.as_str())),
    };
    (class, format!("{live} of {voters} replicas are live: {what}"))
}

/// Who serves, those that are behind at the end, and how many of them there are. Which of them is
/// read from is decided elsewhere.
fn sources(world: &World, assignment: &Assignment) -> (Vec<BrokerId>, usize) {
    let serving = |broker: &&BrokerId| world.is_live(&assignment.shard, broker);
    let follows = |broker: &&BrokerId| {
        let report = world.reports.get(&(assignment.shard.clone(), (*broker).clone()));
        report.is_some_and(|r| r.phase == Some(Phase::Following) && r.caught_up)
    };
    let followers = assignment.followers.iter().filter(serving);
    let (level, behind): (Vec<&BrokerId>, Vec<&BrokerId>) = followers.partition(follows);
    let last = behind.len();
    let sources =
        level.into_iter().chain(assignment.leader.iter().filter(serving)).chain(behind).cloned();
    (sources.collect(), last)
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
