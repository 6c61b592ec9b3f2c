//! What each step may do to its own shard.

use std::collections::BTreeSet;

use evenkeel_model::{Assignment, BrokerId, MoveReason, Phase, ShardState};

use super::cluster::Cluster;
use super::{Change, Findings, copy_of};
use crate::decision::Step;
use crate::standing::Standing;

pub(super) fn check(cluster: &Cluster<'_>, change: &Change<'_>, found: &mut Findings) {
    let mut say = |what: String| {
        found.say(change.shard(), format!("{}: {what}", change.write.step));
    };
    record(change, &mut say);
    members(cluster, change, &mut say);
    match change.old {
        None if change.write.step != Step::Place => say("there is no assignment yet".to_owned()),
        None => {}
        Some(old) => {
            step(cluster, change, old, &mut say);
            if change.starts() {
                start(cluster, change, old, &mut say);
            }
        }
    }
}

/// The generation, the leader, and what the state says.
fn record(change: &Change<'_>, say: &mut impl FnMut(String)) {
    let next = change.next();
    let expected = change.old.map_or(1, |a| a.generation.saturating_add(1));
    if next.generation != expected {
        say(format!("generation {} instead of {expected}", next.generation));
    }
    if next.leader.is_none() {
        say("no leader".to_owned());
    }
    let may_change = [Step::CutOver, Step::Promote, Step::Place, Step::Retake];
    if change.old.is_some_and(|old| old.leader != next.leader)
        && !may_change.contains(&change.write.step)
    {
        say("the leader changes".to_owned());
    }
    if change.write.step == Step::Fence && next.state != ShardState::Draining {
        say("the leader goes on serving".to_owned());
    }
}

/// Sets change by one member, and nobody joins who may not.
fn members(cluster: &Cluster<'_>, change: &Change<'_>, say: &mut impl FnMut(String)) {
    let next = change.next();
    let voters: BTreeSet<&BrokerId> = next.voters().collect();
    if voters.len() != next.voters().count() {
        say("a broker votes twice".to_owned());
    }
    let before: BTreeSet<&BrokerId> = change.old.iter().flat_map(|a| a.voters()).collect();
    let added = voters.difference(&before).count();
    let removed = before.difference(&voters).count();
    let exchanges = [Step::CutOver, Step::Seat, Step::Retake];
    let most = usize::from(exchanges.contains(&change.write.step));
    let gone = added + usize::from(change.write.step == Step::Drop);
    if change.write.step != Step::Place && (added > most || removed > gone) {
        say(format!("the set changes by {added} new and {removed} gone members"));
    }
    let held: Vec<&BrokerId> =
        change.old.iter().flat_map(|a| a.members()).map(|(b, _)| b).collect();
    // Who led before is no new copy.
    for (broker, _) in next.members().into_iter().filter(|_| change.write.step != Step::Retake) {
        if held.contains(&broker) {
            continue;
        }
        if cluster.standing(Some(broker)) != Standing::Target {
            say(format!("{broker} is no target"));
        }
        if change.write.step != Step::Place && cluster.has_full_disk(broker) {
            say(format!("the disk of {broker} is full"));
        }
        if !cluster.is_in_region(&change.shard().stream, broker) {
            say(format!("{broker} is not in the stream's region"));
        }
    }
}

/// Whether the step follows from what the shard was and what brokers say.
fn step(
    cluster: &Cluster<'_>,
    change: &Change<'_>,
    old: &Assignment,
    say: &mut impl FnMut(String),
) {
    let next = change.next();
    let leads = cluster.standing(old.leader.as_ref()).may_lead();
    let leader_says = old.leader.as_ref().and_then(|l| cluster.report(old, l));
    match change.write.step {
        Step::Place => {
            let durable = cluster.snapshot.streams.get(&old.shard.stream).is_none_or(|s| s.durable);
            if leads || durable {
                say("somebody holds it".to_owned());
            }
        }
        Step::Promote => {
            let halted = old.leader.as_ref().is_some_and(|b| cluster.has_halted(old, b));
            if leads && !halted {
                say("its leader is there".to_owned());
            }
            let level = |b: &&BrokerId| cluster.holds_everything(old, b);
            if next.leader.as_ref().filter(level).is_none_or(|b| !old.followers.contains(b)) {
                say("the new leader is not known to hold everything".to_owned());
            }
        }
        Step::Fence if !next.successor.as_ref().is_some_and(|b| cluster.is_close(old, b)) => {
            say("the destination is not close".to_owned());
        }
        Step::CutOver => {
            if old.state != ShardState::Draining {
                say("the leader was not fenced".to_owned());
            }
            if !leader_says.is_some_and(|r| r.drained || r.phase == Some(Phase::Drained)) {
                say("the leader has not drained".to_owned());
            }
            let level = |b: &&BrokerId| match old.successor.as_ref() == Some(*b) {
                true => cluster.may_hold_everything(old, b),
                false => cluster.holds_everything(old, b),
            };
            match next.leader.as_ref().filter(level) {
                None => say("the new leader is not known to hold everything".to_owned()),
                Some(b)
                    if cluster.span(next.voters().filter(|v| cluster.stays(v)))
                        < cluster.widest_after(old, b) =>
                {
                    say("a copy in a zone of its own goes".to_owned());
                }
                Some(_) => {}
            }
        }
        Step::Seat => {
            let close = |b: &&BrokerId| cluster.is_close(old, b) && next.followers.contains(b);
            if old.joining.as_ref().filter(close).is_none() {
                say("the joiner is not close".to_owned());
            }
            if old
                .voters()
                .any(|v| Some(v) != old.leaving.as_ref() && next.voters().all(|n| n != v))
            {
                say("another than the replaced follower goes".to_owned());
            }
        }
        Step::Drop => dropped(cluster, old, next, say),
        Step::Retake => retaken(cluster, old, next, say),
        _ => {}
    }
}

/// Its leader serves again after a fence; or after its new leader declined the generation, who handed
/// it over, or that new one.
fn retaken(
    cluster: &Cluster<'_>,
    old: &Assignment,
    next: &Assignment,
    say: &mut impl FnMut(String),
) {
    if old.state == ShardState::Draining {
        if next.leader != old.leader {
            say("the leader changes".to_owned());
        }
        return;
    }
    let word = old.leader.as_ref().and_then(|l| cluster.report(old, l)).filter(|r| r.declined);
    let Some(word) = word else { return say("the leader was not fenced".to_owned()) };
    let before = old.generation.saturating_sub(1);
    let drained = |b: &BrokerId| {
        let said = cluster.snapshot.report(&old.shard, b, before);
        said.is_some_and(|r| r.drained && r.halted_because().is_none())
    };
    let may = next.leader.as_ref().is_some_and(|to| match old.leader.as_ref() == Some(to) {
        true => word.is_mended(),
        false => drained(to),
    });
    if !may {
        say("the new leader is not known to hold everything".to_owned());
    }
}

/// Only what has halted is taken out of a set, and only where a majority of the set is left that
/// holds everything and no other broker could be copied to.
fn dropped(
    cluster: &Cluster<'_>,
    old: &Assignment,
    next: &Assignment,
    say: &mut impl FnMut(String),
) {
    let gone: Vec<&BrokerId> = old.voters().filter(|b| next.voters().all(|n| n != *b)).collect();
    if gone.len() != 1 || !cluster.has_halted(old, gone[0]) || old.leader.as_ref() == Some(gone[0])
    {
        say("what goes has not halted".to_owned());
    }
    let serves =
        |b: &BrokerId| cluster.report(old, b).is_some_and(|r| r.phase == Some(Phase::Serving));
    let whole = |b: &&BrokerId| match old.leader.as_ref() == Some(*b) {
        true => serves(b),
        false => cluster.holds_everything(old, b),
    };
    let good = old.voters().filter(|b| cluster.holds(old, b)).filter(whole).count();
    if good * 2 <= old.voters().count() || !old.leader.as_ref().is_some_and(serves) {
        say(format!("{good} of {} replicas hold everything", old.voters().count()));
    }
    if old.is_moving() {
        say("a move is under way".to_owned());
    }
    if cluster.snapshot.paused {
        say("placement is paused".to_owned());
    }
}

/// Whether a move or copy may start now.
fn start(
    cluster: &Cluster<'_>,
    change: &Change<'_>,
    old: &Assignment,
    say: &mut impl FnMut(String),
) {
    if cluster.snapshot.paused {
        say("placement is paused".to_owned());
    }
    if !change.is_for(MoveReason::Operator) && cluster.is_copy_paused(old, change.next()) {
        say("an operator holds copies like this one".to_owned());
    }
    let halted = old.leader.as_ref().is_some_and(|b| cluster.has_halted(old, b));
    if !cluster.standing(old.leader.as_ref()).may_lead() || halted {
        say("there is no leader to copy from".to_owned());
    }
    let live = old.voters().filter(|b| cluster.holds(old, b)).count();
    let spreads = change.balances() || change.is_for(MoveReason::Spread);
    if cluster.mass_loss.is_some() && (spreads || (change.is_for(MoveReason::Restore) && live > 1))
    {
        say("many brokers are missing".to_owned());
    }
    let Some(copy) = copy_of(change.next()) else { return };
    let now = cluster.span(old.voters().filter(|b| cluster.standing(Some(b)).holds()));
    if change.balances() && cluster.widest_after(old, copy).max(1) < now {
        say(format!("the shard would lose one of {now} zones"));
    }
    if change.is_for(MoveReason::Spread) {
        let kept = old.voters().filter(|b| change.next().leaving.as_ref() != Some(*b));
        if cluster.span(kept.chain([copy])) <= cluster.span(old.voters()) {
            say("no zone is won".to_owned());
        }
    }
}
