//! Rebuild: a halted replica that no other broker can replace leaves its set, so that its own
//! broker gets a new copy. Between the two its broker has no say in the shard, and may erase what
//! it has.

use evenkeel_model::{MoveReason, Phase, ShardReport};

use crate::decision::{Reason, Step};
use crate::disk::Disk;
use crate::pass::{Draft, Pass, trace};
use crate::world::{NONE, Ord32, Shape, World};

/// Whether the halted replica on `broker` may leave the set to be copied anew there, or why not; no
/// reason if it has not halted.
pub(crate) fn is_safe(pass: &Pass<'_>, shard: Ord32, broker: Ord32) -> Result<(), Option<String>> {
    let world = &pass.world;
    let Some(why) = world.halted(shard, broker) else { return Err(None) };
    let name = world.name(broker);
    let kept = |what: String| Err(Some(format!("{name} halted ({why}) and stays: {what}")));
    let held = pass.tally.held[broker as usize];
    if world.group_of(shard).targets.binary_search(&broker).is_err()
        || held > world.brokers[broker as usize].cap
        || world.disk(broker) == Disk::Full
    {
        return kept("its broker may not be given a copy either".to_owned());
    }
    let (good, voters) = (level(world, shard), world.voters(shard).count());
    let majority = voters / 2 + 1;
    if good < majority {
        return kept(format!(
            "{good} of {voters} replicas are known to hold everything and {majority} have to"
        ));
    }
    Ok(())
}

/// Voters that hold everything that is committed: the leader while it serves this generation, whose
/// start is then on a majority, and followers that say so at this generation.
fn level(world: &World<'_>, shard: Ord32) -> usize {
    let leader = world.shard(shard).leader;
    let serving = |r: &ShardReport| r.phase == Some(Phase::Serving);
    if !world.is_live(shard, leader) || !world.report(shard, leader).is_some_and(serving) {
        return 0;
    }
    let caught_up = |b: &Ord32| world.report(shard, *b).is_some_and(|r| r.caught_up);
    let is_level = |b: &Ord32| *b == leader || (world.is_live(shard, *b) && caught_up(b));
    world.voters(shard).filter(is_level).count()
}

/// Takes the halted replica on `broker` out of the set.
pub(crate) fn drop_replica(pass: &mut Pass<'_>, shard: Ord32, broker: Ord32) {
    let world = &pass.world;
    let shape = world.shape(shard);
    let followers = shape.followers.iter().copied().filter(|b| *b != broker).collect();
    let why = world.halted(shard, broker).unwrap_or_default();
    let name = world.name(broker);
    let detail = format!("{name} halted ({why}), and nobody but {name} can take a new copy");
    let draft = Draft {
        step: Step::Drop,
        reason: Reason::Move(MoveReason::Restore),
        from: broker,
        to: NONE,
        shape: Shape { followers, ..shape },
        state: world.state(shard),
        // Nothing was finished: earlier give-ups count on.
        move_: trace(world, shard).cloned(),
        flight: None,
        outcome: None,
        detail,
    };
    pass.write(shard, draft);
}
