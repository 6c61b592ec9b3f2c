//! Sharing out one round's bytes: class by class, over what both ends have left.
//!
//! Inside a repair class copies are served one after another, shortest first, as long as that
//! leaves no link idle. Copies of a routine class share: water is poured evenly until an end is
//! full or a copy wants no more. Before all that, what is set aside at both ends goes to drains
//! that have waited too long.

mod filling;

use std::collections::BTreeMap;

use evenkeel_model::{BrokerId, CopyClass, ShardKey};

/// A copy that wants bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// The shard.
    pub shard: ShardKey,
    /// Its class.
    pub class: CopyClass,
    /// Where the bytes come from.
    pub source: BrokerId,
    /// Where they go.
    pub destination: BrokerId,
    /// How many it can use until the next round.
    pub bytes: u64,
    /// It may use what is set aside.
    pub reserved: bool,
}

/// What each node has left this round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Room {
    /// Out of a node.
    pub egress: BTreeMap<BrokerId, u64>,
    /// Into a node.
    pub ingress: BTreeMap<BrokerId, u64>,
}

/// What stopped a copy from getting more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitedBy {
    /// It wanted no more.
    Demand,
    /// Its source's egress.
    Egress,
    /// Its destination's ingress.
    Ingress,
}

/// One copy's part of the round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allotment {
    /// Bytes it may pull.
    pub bytes: u64,
    /// What stopped it from getting more.
    pub limited_by: LimitedBy,
}

/// Shares out `room` among `wants`, which are in order of service, and takes what is given.
/// `aside` is how much of it reserved copies may have before anybody else, in order. Answers in
/// the same order.
pub fn allot(wants: &[Want], room: &mut Room, mut aside: Room) -> Vec<Allotment> {
    let early: Vec<u64> = wants.iter().map(|want| take_aside(want, room, &mut aside)).collect();
    let rest: Vec<Want> = wants
        .iter()
        .zip(&early)
        .map(|(want, early)| Want { bytes: want.bytes - early, ..want.clone() })
        .collect();
    let mut allotted = share(&rest, room);
    allotted.iter_mut().zip(early).for_each(|(allotment, early)| allotment.bytes += early);
    allotted
}

fn take_aside(want: &Want, room: &mut Room, aside: &mut Room) -> u64 {
    if !want.reserved {
        return 0;
    }
    let bytes = [&*room, &*aside].map(|side| {
        let of = |side: &BTreeMap<BrokerId, u64>, node| side.get(node).copied().unwrap_or(0);
        of(&side.egress, &want.source).min(of(&side.ingress, &want.destination))
    });
    let bytes = want.bytes.min(bytes[0]).min(bytes[1]);
    for side in [room, aside] {
        take(&mut side.egress, &want.source, bytes);
        take(&mut side.ingress, &want.destination, bytes);
    }
    bytes
}

fn share(wants: &[Want], room: &mut Room) -> Vec<Allotment> {
    let mut allotted = Vec::with_capacity(wants.len());
    let mut rest = wants;
    while let Some(first) = rest.first() {
        let together = rest.iter().take_while(|want| want.class == first.class).count();
        let (group, later) = rest.split_at(together);
        if first.class.is_repair() {
            let mut given: Vec<Allotment> =
                group.chunks(1).flat_map(|one| pour(one, room)).collect();
            filling::fill(group, &mut given, room);
            allotted.extend(given);
        } else {
            allotted.extend(pour(group, room));
        }
        rest = later;
    }
    allotted
}

/// Max-min fair: all rise together, and each stops where it meets its first limit.
fn pour(group: &[Want], room: &mut Room) -> Vec<Allotment> {
    let mut given: Vec<Option<Allotment>> = vec![None; group.len()];
    let mut level = vec![0_u64; group.len()];
    loop {
        let rising: Vec<usize> = (0..group.len()).filter(|i| given[*i].is_none()).collect();
        if rising.is_empty() {
            break;
        }
        let shares: Vec<(u64, LimitedBy)> =
            rising.iter().map(|i| headroom(group, &rising, *i, level[*i], room)).collect();
        let step = shares.iter().map(|(bytes, _)| *bytes).min().unwrap_or(0);
        for (i, (headroom, limited_by)) in rising.into_iter().zip(shares) {
            level[i] += step;
            take(&mut room.egress, &group[i].source, step);
            take(&mut room.ingress, &group[i].destination, step);
            // Whoever had the least headroom is full now; others may go on.
            if headroom == step {
                given[i] = Some(Allotment { bytes: level[i], limited_by });
            }
        }
    }
    given.into_iter().flatten().collect()
}

/// How far a copy could rise if all that still rise did, and what would stop it.
fn headroom(
    group: &[Want],
    rising: &[usize],
    index: usize,
    level: u64,
    room: &Room,
) -> (u64, LimitedBy) {
    let want = &group[index];
    let sharing = |same: &dyn Fn(&Want) -> bool| {
        rising.iter().filter(|i| same(&group[**i])).count().max(1) as u64
    };
    let left = |side: &BTreeMap<BrokerId, u64>, node| side.get(node).copied().unwrap_or(0);
    let demand = want.bytes.saturating_sub(level);
    let egress = left(&room.egress, &want.source) / sharing(&|w| w.source == want.source);
    let ingress =
        left(&room.ingress, &want.destination) / sharing(&|w| w.destination == want.destination);
    if demand <= egress && demand <= ingress {
        (demand, LimitedBy::Demand)
    } else if egress <= ingress {
        (egress, LimitedBy::Egress)
    } else {
        (ingress, LimitedBy::Ingress)
    }
}

fn take(side: &mut BTreeMap<BrokerId, u64>, node: &BrokerId, bytes: u64) {
    if let Some(left) = side.get_mut(node) {
        *left = left.saturating_sub(bytes);
    }
}

#[cfg(test)]
#[path = "grants_tests.rs"]
mod tests;
