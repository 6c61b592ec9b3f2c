//! Filling links that copies of one class, served one after another, have left idle.
//!
//! Who is served first takes what it finds, and so two ends may be left that no copy connects: the
//! first copy uses the source that only another one can be read from. Then bytes go over from
//! copy to copy along a path from the one free end to the other: none of the ends in between is
//! used less, and one more pair of ends is used.

use std::collections::{BTreeMap, VecDeque};

use evenkeel_model::BrokerId;

use super::{Allotment, LimitedBy, Room, Want};

/// Less than this is not worth a change.
const LEAST: u64 = 64 * 1024;

/// A copy on the way: it is given more, or less.
#[derive(Debug, Clone, Copy)]
struct Step {
    copy: usize,
    more: bool,
}

/// Changes what copies of one class were given until no bytes more fit between their ends.
pub(super) fn fill(group: &[Want], allotted: &mut [Allotment], room: &mut Room) {
    // Each path uses up an end, a demand or a gift; what is left over after so many is little.
    for _ in 0..4 * group.len() {
        let Some(path) = path(group, allotted, room) else { return };
        let (Some(first), Some(last)) = (path.first(), path.last()) else { return };
        let (source, destination) = (&group[first.copy].source, &group[last.copy].destination);
        let bytes = path
            .iter()
            .map(|step| movable(group, allotted, *step))
            .chain([left(&room.egress, source), left(&room.ingress, destination)])
            .min()
            .unwrap_or(0);
        super::take(&mut room.egress, source, bytes);
        super::take(&mut room.ingress, destination, bytes);
        for step in path {
            let allotment = &mut allotted[step.copy];
            if step.more {
                allotment.bytes += bytes;
                if allotment.bytes == group[step.copy].bytes {
                    allotment.limited_by = LimitedBy::Demand;
                }
            } else {
                allotment.bytes -= bytes;
                allotment.limited_by = LimitedBy::Ingress;
            }
        }
    }
}

/// The shortest way from an idle source to an idle destination: forward over a copy that wants
/// more, the first of them, and back over one that can give, the last of them.
fn path(group: &[Want], allotted: &[Allotment], room: &Room) -> Option<Vec<Step>> {
    let mut came: BTreeMap<&BrokerId, Step> = BTreeMap::new();
    let mut went: BTreeMap<&BrokerId, Option<Step>> = BTreeMap::new();
    let mut queue: VecDeque<&BrokerId> = VecDeque::new();
    for want in group {
        let source = &want.source;
        if left(&room.egress, source) >= LEAST && went.insert(source, None).is_none() {
            queue.push_back(source);
        }
    }
    while let Some(source) = queue.pop_front() {
        let more = |copy| Step { copy, more: true };
        let from = (0..group.len()).filter(|copy| group[*copy].source == *source).map(more);
        for step in from.filter(|step| movable(group, allotted, *step) >= LEAST) {
            let destination = &group[step.copy].destination;
            if came.contains_key(destination) {
                continue;
            }
            came.insert(destination, step);
            if left(&room.ingress, destination) >= LEAST {
                return Some(back(group, &came, &went, step));
            }
            let fewer = |copy| Step { copy, more: false };
            let into =
                (0..group.len()).rev().filter(|copy| group[*copy].destination == *destination);
            for step in into.map(fewer).filter(|step| movable(group, allotted, *step) >= LEAST) {
                let source = &group[step.copy].source;
                if !went.contains_key(source) {
                    went.insert(source, Some(step));
                    queue.push_back(source);
                }
            }
        }
    }
    None
}

/// The steps that led to the last one, in order.
fn back(
    group: &[Want],
    came: &BTreeMap<&BrokerId, Step>,
    went: &BTreeMap<&BrokerId, Option<Step>>,
    last: Step,
) -> Vec<Step> {
    let mut path = vec![last];
    let mut source = &group[last.copy].source;
    while let Some(Some(fewer)) = went.get(source) {
        path.push(*fewer);
        let Some(more) = came.get(&group[fewer.copy].destination) else { break };
        path.push(*more);
        source = &group[more.copy].source;
    }
    path.reverse();
    path
}

fn movable(group: &[Want], allotted: &[Allotment], step: Step) -> u64 {
    let given = allotted[step.copy].bytes;
    if step.more { group[step.copy].bytes.saturating_sub(given) } else { given }
}

fn left(side: &BTreeMap<BrokerId, u64>, node: &BrokerId) -> u64 {
    side.get(node).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use evenkeel_model::CopyClass;
    use proptest::prelude::*;

    use super::*;
    use crate::grants::allot;

    const NODES: usize = 4;

    fn id(side: &str, number: usize) -> BrokerId {
        format!("{side}{number}").parse().unwrap()
    }

    /// Copies of one repair class, and rooms, in steps of the least that is moved.
    fn round(copies: &[(usize, usize, u64)], out: &[u64], into: &[u64]) -> (Vec<Want>, Room) {
        let want = |(n, (from, to, units)): (usize, &(usize, usize, u64))| Want {
            shard: format!("stream/d/s/{n}").parse().unwrap(),
            class: CopyClass::UnderReplicated,
            source: id("s", *from),
            destination: id("d", *to),
            bytes: units * LEAST,
            reserved: false,
        };
        let side = |name: &str, units: &[u64]| {
            (0..).zip(units).map(|(n, units)| (id(name, n), units * LEAST)).collect()
        };
        let room = Room { egress: side("s", out), ingress: side("d", into) };
        (copies.iter().enumerate().map(want).collect(), room)
    }

    /// The smallest cut between all sources and all destinations, by looking at every one.
    fn most(copies: &[(usize, usize, u64)], out: &[u64], into: &[u64]) -> u64 {
        let cut = |near: usize| -> u64 {
            let kept = |n: usize| near & (1 << n) != 0;
            let sources: u64 = (0..NODES).filter(|s| !kept(*s)).map(|s| out[s]).sum();
            let destinations: u64 = (0..NODES).filter(|d| kept(NODES + d)).map(|d| into[d]).sum();
            let between = copies.iter().filter(|(s, d, _)| kept(*s) && !kept(NODES + d));
            sources + destinations + between.map(|(_, _, units)| units).sum::<u64>()
        };
        (0..1 << (2 * NODES)).map(cut).min().unwrap_or(0)
    }

    #[test]
    fn the_first_copy_yields_to_two_that_use_both_ends_it_kept_idle() {
        // Served first it takes s0 and d0; then neither of the others has two free ends.
        let copies = [(0, 0, 4), (0, 1, 4), (1, 0, 4)];
        let (wants, mut room) = round(&copies, &[4, 4], &[4, 4]);
        let given = allot(&wants, &mut room, Room::default());
        let units: Vec<u64> = given.iter().map(|a| a.bytes / LEAST).collect();
        assert_eq!(units, [0, 4, 4]);
        assert!(room.egress.values().chain(room.ingress.values()).all(|left| *left == 0));
        // Where nothing is left idle the first has all of it.
        let (wants, mut room) = round(&copies, &[4, 0], &[4, 4]);
        let given = allot(&wants, &mut room, Room::default());
        assert_eq!(given.iter().map(|a| a.bytes / LEAST).collect::<Vec<_>>(), [4, 0, 0]);
    }

    proptest! {
        #[test]
        fn a_repair_class_has_all_that_its_ends_can_carry(
            copies in prop::collection::vec((0..NODES, 0..NODES, 0u64..20), 0..12),
            out in prop::collection::vec(0u64..30, NODES),
            into in prop::collection::vec(0u64..30, NODES),
        ) {
            let (wants, room) = round(&copies, &out, &into);
            let mut left = room.clone();
            let given = allot(&wants, &mut left, Room::default());
            let all: u64 = given.iter().map(|a| a.bytes).sum();
            prop_assert_eq!(all / LEAST, most(&copies, &out, &into));
            for (want, given) in wants.iter().zip(&given) {
                prop_assert!(given.bytes <= want.bytes);
            }
            for (before, after) in [(&room.egress, &left.egress), (&room.ingress, &left.ingress)] {
                let used: u64 = before.iter().map(|(node, bytes)| bytes - after[node]).sum();
                prop_assert_eq!(used, all);
            }
        }
    }
}
