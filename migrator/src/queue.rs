//! Which copies run, and in which order they are served.
//!
//! Both ends of a copy are taken in one step: whoever finds one end full takes nothing of the other.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use evenkeel_model::{BrokerId, CopyClass, ShardKey};

use crate::copies::{Copy, State};

/// A copy that could run now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The shard.
    pub shard: ShardKey,
    /// Its class.
    pub class: CopyClass,
    /// Where the bytes come from.
    pub source: BrokerId,
    /// Where they may come from instead if that one's slots are taken, the best first.
    pub other_sources: Vec<BrokerId>,
    /// Where they go.
    pub destination: BrokerId,
    /// Whether it ran in the last round.
    pub running: bool,
    /// Whether it ever had a slot: it goes on before those of its class that did not.
    pub begun: bool,
    /// It runs and has almost ended: ending it frees more than stopping it.
    pub almost_done: bool,
    /// A drain that has waited too long: it has a slot of its own.
    pub reserved: bool,
    /// Bytes still to copy; none if that is not known yet.
    pub remaining: Option<u64>,
    /// Rises with each copy that comes in.
    pub arrival: u64,
}

/// How many copies may run at once; 0 holds them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// In the cluster.
    pub cluster: usize,
    /// Out of one node, and into one node.
    pub per_node: usize,
}

impl Slots {
    /// Slots beyond `cluster` for drains that have waited too long; at most one for each end.
    pub fn reserved(self) -> usize {
        if self.cluster == 0 || self.per_node == 0 { 0 } else { (self.cluster / 4).max(1) }
    }
}

/// Why a copy has no slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Full {
    /// As many copies as may run in the cluster do.
    Cluster,
    /// As many as may leave its source do.
    Source,
    /// As many as may enter its destination do.
    Destination,
    /// Something at one of its ends that balance waits for.
    Held(BrokerId, Hold),
}

/// What keeps balance copies from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// A repair that runs there or waits to.
    Repair(ShardKey),
    /// Requests are too slow there though copies have the least they may have.
    OutOfCapacity,
}

/// Who runs this round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// They run, in order of service.
    pub served: Vec<Waiting>,
    /// They do not, in order of service.
    pub left: Vec<(Waiting, Full)>,
}

/// Class by class. Inside a repair class the shortest first, because it ends the most exposure
/// soonest; routine classes in order of arrival. Within its class a copy that runs is not
/// displaced by one that does not, and one that lost its slot is the next to have one.
pub fn order(waiting: &mut [Waiting]) {
    waiting.sort_by(|a, b| rank(a).cmp(&rank(b)));
}

/// A copy's place in the order of service.
pub type Rank<'a> = (CopyClass, Reverse<bool>, Reverse<bool>, u64, u64, &'a ShardKey);

fn rank(w: &Waiting) -> Rank<'_> {
    let length = length(w.class, w.remaining);
    (w.class, Reverse(w.running), Reverse(w.begun), length, w.arrival, &w.shard)
}

/// The place of a copy that may not have a source yet.
pub fn rank_of(copy: &Copy) -> Rank<'_> {
    let (job, runs) = (&copy.job, copy.state == State::Running);
    let length = length(job.class, copy.remaining());
    (job.class, Reverse(runs), Reverse(copy.started.is_some()), length, copy.arrival, &job.shard)
}

/// What is not known yet is not called short.
fn length(class: CopyClass, remaining: Option<u64>) -> u64 {
    if class.is_repair() { remaining.unwrap_or(u64::MAX) } else { 0 }
}

/// Those that run this round. A copy that finds a slot taken lets the next one try: one busy node
/// must not stop the others. `holds` keep balance from their nodes, and nothing else.
pub fn select(
    mut waiting: Vec<Waiting>,
    slots: Slots,
    holds: &BTreeMap<BrokerId, Hold>,
) -> Selection {
    order(&mut waiting);
    let mut taken = Taken::default();
    let (kept, others): (Vec<Waiting>, Vec<Waiting>) =
        waiting.into_iter().partition(|w| w.running && w.almost_done);
    let (mut served, mut left) = (Vec::new(), Vec::new());
    for copy in kept.into_iter().chain(others) {
        let copy = taken.with_free_source(copy, slots, holds);
        match held(&copy, holds).or_else(|| taken.lacks(&copy, slots)) {
            Some(full) => left.push((copy, full)),
            None => {
                taken.take(&copy);
                served.push(copy);
            }
        }
    }
    serve_reserved(&mut served, &mut left, slots);
    order(&mut served);
    left.sort_by(|(a, _), (b, _)| rank(a).cmp(&rank(b)));
    Selection { served, left }
}

fn held(copy: &Waiting, holds: &BTreeMap<BrokerId, Hold>) -> Option<Full> {
    if copy.class != CopyClass::Balance {
        return None;
    }
    let ends = [&copy.source, &copy.destination];
    let (broker, hold) = ends.into_iter().find_map(|end| holds.get_key_value(end))?;
    Some(Full::Held(broker.clone(), hold.clone()))
}

/// Drains that have waited too long run beyond the limits, the longest wait first: one out of and
/// into each node, and few in the cluster.
fn serve_reserved(served: &mut Vec<Waiting>, left: &mut Vec<(Waiting, Full)>, slots: Slots) {
    let mut taken = Taken::default();
    served.iter().filter(|copy| copy.reserved).for_each(|copy| taken.take(copy));
    // Those that have a slot like any other leave the extra ones to who has none.
    let beyond = Slots { cluster: taken.cluster + slots.reserved(), per_node: 1 };
    let mut overdue: Vec<Waiting> =
        left.iter().map(|(copy, _)| copy).filter(|copy| copy.reserved).cloned().collect();
    overdue.sort_by_key(|copy| copy.arrival);
    for copy in overdue {
        if taken.lacks(&copy, beyond).is_none() {
            taken.take(&copy);
            left.retain(|(other, _)| other.shard != copy.shard);
            served.push(copy);
        }
    }
}

/// Slots in use.
#[derive(Default)]
struct Taken {
    cluster: usize,
    out: BTreeMap<BrokerId, usize>,
    into: BTreeMap<BrokerId, usize>,
}

impl Taken {
    fn lacks(&self, copy: &Waiting, slots: Slots) -> Option<Full> {
        let used = |side: &BTreeMap<BrokerId, usize>, node| side.get(node).copied().unwrap_or(0);
        if self.cluster >= slots.cluster {
            Some(Full::Cluster)
        } else if used(&self.out, &copy.source) >= slots.per_node {
            Some(Full::Source)
        } else if used(&self.into, &copy.destination) >= slots.per_node {
            Some(Full::Destination)
        } else {
            None
        }
    }

    /// From another source if only that of the first is full.
    fn with_free_source(
        &self,
        copy: Waiting,
        slots: Slots,
        holds: &BTreeMap<BrokerId, Hold>,
    ) -> Waiting {
        if self.lacks(&copy, slots) != Some(Full::Source) {
            return copy;
        }
        let from = |source: &BrokerId| Waiting { source: source.clone(), ..copy.clone() };
        let mut others = copy.other_sources.iter().map(from);
        let free =
            |other: &Waiting| held(other, holds).is_none() && self.lacks(other, slots).is_none();
        others.find(free).unwrap_or(copy)
    }

    fn take(&mut self, copy: &Waiting) {
        self.cluster += 1;
        *self.out.entry(copy.source.clone()).or_insert(0) += 1;
        *self.into.entry(copy.destination.clone()).or_insert(0) += 1;
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
