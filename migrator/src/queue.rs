//! Which copies run, and in which order they are served.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use evenkeel_model::{BrokerId, CopyClass, ShardKey};

/// A copy that could run now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The shard.
    pub shard: ShardKey,
    /// Its class.
    pub class: CopyClass,
    /// Where the bytes come from.
    pub source: BrokerId,
    /// Where they go.
    pub destination: BrokerId,
    /// Whether it ran in the last round.
    pub running: bool,
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

/// Class by class. Inside a repair class the shortest first, because it ends the most exposure
/// soonest; routine classes in order of arrival. Within its class a copy that runs is not
/// displaced by one that does not.
pub fn order(waiting: &mut [Waiting]) {
    waiting.sort_by(|a, b| rank(a).cmp(&rank(b)));
}

fn rank(w: &Waiting) -> (CopyClass, Reverse<bool>, u64, u64, &ShardKey) {
    // What is not known yet is not called short.
    let length = if w.class.is_repair() { w.remaining.unwrap_or(u64::MAX) } else { 0 };
    (w.class, Reverse(w.running), length, w.arrival, &w.shard)
}

/// Those that run this round, in order of service. A copy that finds a slot taken lets the next
/// one try: one busy node must not stop the others.
pub fn select(mut waiting: Vec<Waiting>, slots: Slots) -> Vec<Waiting> {
    order(&mut waiting);
    let mut out: BTreeMap<BrokerId, usize> = BTreeMap::new();
    let mut into: BTreeMap<BrokerId, usize> = BTreeMap::new();
    let mut selected = Vec::new();
    for copy in waiting {
        if selected.len() == slots.cluster {
            break;
        }
        let leaving = out.entry(copy.source.clone()).or_insert(0);
        let arriving = into.entry(copy.destination.clone()).or_insert(0);
        if *leaving >= slots.per_node || *arriving >= slots.per_node {
            continue;
        }
        *leaving += 1;
        *arriving += 1;
        selected.push(copy);
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(shard: u32, class: CopyClass, arrival: u64) -> Waiting {
        Waiting {
            shard: format!("stream/d/s/{shard}").parse().unwrap(),
            class,
            source: "a".parse().unwrap(),
            destination: "b".parse().unwrap(),
            running: false,
            remaining: None,
            arrival,
        }
    }

    fn numbers(waiting: &[Waiting]) -> Vec<u32> {
        waiting.iter().map(|w| w.shard.number).collect()
    }

    #[test]
    fn repairs_go_first_by_what_is_left_of_the_shard() {
        let mut queue = vec![
            copy(0, CopyClass::Balance, 0),
            copy(1, CopyClass::LastCopy, 1),
            copy(2, CopyClass::Unavailable, 2),
            copy(3, CopyClass::LastCopy, 3),
        ];
        order(&mut queue);
        assert_eq!(numbers(&queue), [2, 1, 3, 0]);
    }

    #[test]
    fn repairs_are_served_shortest_first_and_routine_ones_by_arrival() {
        let sized = |shard, class, arrival, remaining| Waiting {
            remaining: Some(remaining),
            ..copy(shard, class, arrival)
        };
        let mut queue = vec![
            sized(0, CopyClass::UnderReplicated, 0, 500),
            sized(1, CopyClass::UnderReplicated, 1, 100),
            copy(2, CopyClass::UnderReplicated, 2),
            sized(3, CopyClass::Balance, 3, 500),
            sized(4, CopyClass::Balance, 4, 100),
        ];
        order(&mut queue);
        assert_eq!(numbers(&queue), [1, 0, 2, 3, 4]);
    }

    #[test]
    fn a_running_copy_yields_to_a_higher_class_only() {
        let running = Waiting { running: true, ..copy(0, CopyClass::UnderReplicated, 5) };
        let short = Waiting { remaining: Some(1), ..copy(1, CopyClass::UnderReplicated, 1) };
        let slots = Slots { cluster: 8, per_node: 1 };
        let selected = select(vec![short.clone(), running.clone()], slots);
        assert_eq!(numbers(&selected), [0]);
        let urgent = copy(2, CopyClass::LastCopy, 9);
        let selected = select(vec![short, running, urgent], slots);
        assert_eq!(numbers(&selected), [2]);
    }

    #[test]
    fn slots_bound_the_cluster_and_both_ends_and_a_busy_node_stops_no_other() {
        let ends = |shard, source: &str, destination: &str| Waiting {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            ..copy(shard, CopyClass::Drain, u64::from(shard))
        };
        let queue = vec![
            ends(0, "a", "b"),
            ends(1, "a", "c"),
            ends(2, "c", "b"),
            ends(3, "c", "d"),
            ends(4, "d", "e"),
        ];
        let at_once =
            |cluster, per_node| numbers(&select(queue.clone(), Slots { cluster, per_node }));
        assert_eq!(at_once(8, 1), [0, 3, 4]);
        assert_eq!(at_once(8, 2), [0, 1, 2, 3, 4]);
        assert_eq!(at_once(1, 2), [0]);
        assert!(at_once(0, 2).is_empty());
        assert!(at_once(8, 0).is_empty());
    }
}
