//! Relief: a leader whose broker's disk is full goes to a follower that holds everything where
//! there is room. No bytes are copied, and without such a follower it stays: it serves what it has.

use evenkeel_model::MoveReason;

use crate::decision::WaitingOn;
use crate::disk::Disk;
use crate::moves::{Way, start_leader_move, way_to};
use crate::pass::Pass;
use crate::phases::rebalance::is_movable;
use crate::slots::Pool;
use crate::world::{Ord32, Standing};

pub(crate) fn run(pass: &mut Pass<'_>) {
    let full = |b: &Ord32| pass.world.disk(*b) == Disk::Full;
    if !(0..pass.world.brokers.len() as Ord32).any(|b| full(&b)) {
        return;
    }
    for shard in 0..pass.world.shard_count() {
        let leader = pass.world.shard(shard).leader;
        if pass.world.disk(leader) == Disk::Full && is_movable(pass, shard) {
            relieve(pass, shard, leader);
        }
    }
}

fn relieve(pass: &mut Pass<'_>, shard: Ord32, leader: Ord32) {
    let world = &pass.world;
    let targets = &world.group_of(shard).targets;
    let fits = |b: &Ord32| {
        world.standing(*b) == Standing::Target
            && targets.binary_search(b).is_ok()
            && world.disk(*b) == Disk::Roomy
            && way_to(pass, shard, *b) == Some(Way::Transfer)
    };
    let mut level: Vec<Ord32> = world.followers(shard).iter().copied().filter(fits).collect();
    level.sort_unstable();
    let stream = world.shard(shard).stream;
    let Some((to, _)) = pass.rules().choose(stream, world.key_hash(shard), &level) else { return };
    let why = world.disk_words(leader);
    let held = if world.snapshot.paused {
        Some((WaitingOn::Paused, "placement is paused".to_owned()))
    } else if let Some(detail) = pass.loss.held.clone() {
        Some((WaitingOn::MassLoss, detail))
    } else {
        pass.slots.full(world, Pool::Moves)
    };
    if let Some((on, detail)) = held {
        let detail = format!("{detail}; it would go to {}: {why}", world.name(to));
        return pass.wait(shard, on, detail);
    }
    let detail = format!("{why} and {} holds everything", world.name(to));
    start_leader_move(pass, shard, to, MoveReason::Disk, detail);
}
