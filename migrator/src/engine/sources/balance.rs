//! Evening out what sources have to send.
//!
//! Copies choose their sources one after another, and the last ones may find all of theirs busy
//! while another source, of other copies only, has little to do. Then one copy goes over to a
//! second source, a copy of that one to a third, and so on to one that has room.

use std::collections::{BTreeMap, VecDeque};

use evenkeel_model::{BrokerId, ShardKey};

/// Time, nanoseconds.
type Nanos = u128;

/// A change has to make the busiest source so many percent less busy.
const LEAST_PERCENT: Nanos = 5;

/// A copy that may still be read from any of its sources.
#[derive(Debug, Clone)]
pub(super) struct Free {
    pub(super) shard: ShardKey,
    /// The chosen source.
    pub(super) source: BrokerId,
    /// Each source that it could be read from, and how long that would take it.
    pub(super) costs: Vec<(BrokerId, Nanos)>,
}

impl Free {
    fn cost(&self, source: &BrokerId) -> Nanos {
        self.costs.iter().find(|(s, _)| s == source).map_or(0, |(_, cost)| *cost)
    }
}

/// Changes the sources of free copies until the busiest one cannot be relieved, or has no more to do
/// than `enough`. `busy` is how long each source has to send, those copies included.
pub(super) fn even_out(free: &mut [Free], busy: &mut BTreeMap<BrokerId, Nanos>, enough: Nanos) {
    for _ in 0..free.len() {
        let busiest = free.iter().map(|copy| &copy.source).max_by_key(|s| (busy.get(*s), *s));
        let Some(busiest) = busiest.cloned() else { return };
        if busy.get(&busiest).is_none_or(|nanos| *nanos <= enough) {
            return;
        }
        let Some(chain) = chain(free, busy, &busiest) else { return };
        for (copy, to) in chain {
            let from = std::mem::replace(&mut free[copy].source, to.clone());
            let less = free[copy].cost(&from);
            let more = free[copy].cost(&to);
            busy.entry(from).and_modify(|nanos| *nanos = nanos.saturating_sub(less));
            *busy.entry(to).or_insert(0) += more;
        }
    }
}

/// The fewest changes that relieve a source and leave no other as busy as it was.
fn chain(
    free: &[Free],
    busy: &BTreeMap<BrokerId, Nanos>,
    busiest: &BrokerId,
) -> Option<Vec<(usize, BrokerId)>> {
    let of = |source: &BrokerId| busy.get(source).copied().unwrap_or(0);
    let most = of(busiest) * (100 - LEAST_PERCENT) / 100;
    // How each source was reached: by which copy, and from where.
    let mut reached: BTreeMap<&BrokerId, (usize, &BrokerId)> = BTreeMap::new();
    let mut queue = VecDeque::from([busiest]);
    while let Some(from) = queue.pop_front() {
        let comes = reached.get(from).map_or(0, |(copy, _)| free[*copy].cost(from));
        for (number, copy) in free.iter().enumerate().filter(|(_, copy)| copy.source == *from) {
            if of(from) + comes > most + copy.cost(from) {
                continue;
            }
            for (to, cost) in &copy.costs {
                if to == busiest || to == from || reached.contains_key(to) {
                    continue;
                }
                reached.insert(to, (number, from));
                if of(to) + cost <= most {
                    return Some(back(&reached, busiest, to));
                }
                queue.push_back(to);
            }
        }
    }
    None
}

fn back(
    reached: &BTreeMap<&BrokerId, (usize, &BrokerId)>,
    busiest: &BrokerId,
    last: &BrokerId,
) -> Vec<(usize, BrokerId)> {
    let (mut changes, mut to) = (Vec::new(), last);
    while let Some((copy, from)) = reached.get(to).filter(|_| to != busiest) {
        changes.push((*copy, to.clone()));
        to = from;
    }
    changes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(number: usize) -> BrokerId {
        format!("b{number}").parse().unwrap()
    }

    fn free(number: usize, source: usize, costs: &[(usize, Nanos)]) -> Free {
        Free {
            shard: format!("stream/d/s/{number}").parse().unwrap(),
            source: id(source),
            costs: costs.iter().map(|(source, cost)| (id(*source), *cost)).collect(),
        }
    }

    fn busy(copies: &[Free]) -> BTreeMap<BrokerId, Nanos> {
        let mut busy = BTreeMap::new();
        for copy in copies {
            *busy.entry(copy.source.clone()).or_insert(0) += copy.cost(&copy.source);
        }
        busy
    }

    #[test]
    fn a_chain_of_changes_reaches_the_source_that_has_room() {
        // b1 can give to b2 only, and b2 to b3.
        let mut copies = vec![
            free(0, 1, &[(1, 10), (2, 10)]),
            free(1, 1, &[(1, 10), (2, 10)]),
            free(2, 2, &[(2, 10), (3, 10)]),
        ];
        let mut load = busy(&copies);
        even_out(&mut copies, &mut load, 0);
        let mut sources: Vec<String> = copies.iter().map(|c| c.source.to_string()).collect();
        sources.sort();
        assert_eq!(sources, ["b1", "b2", "b3"]);
        assert_eq!(load, busy(&copies));
        let mut same = copies.clone();
        same[0].source = id(1);
        let before = same.clone();
        let mut load = busy(&same);
        even_out(&mut same, &mut load, 20);
        let sources = |copies: &[Free]| copies.iter().map(|c| c.source.clone()).collect::<Vec<_>>();
        assert_eq!(sources(&same), sources(&before), "destinations take as long");
        let slow = vec![free(0, 1, &[(1, 10), (2, 100)]), free(1, 1, &[(1, 10)])];
        let mut same = slow.clone();
        even_out(&mut same, &mut busy(&slow), 0);
        assert_eq!(same[0].source, id(1), "a source that takes longer than both is no help");
    }

    proptest! {
        #[test]
        fn the_busiest_source_is_never_busier_and_the_sums_hold(
            copies in prop::collection::vec((0usize..5, 0usize..5, 1u64..100, 1u64..100), 0..40),
        ) {
            let mut copies: Vec<Free> = copies
                .into_iter()
                .enumerate()
                .map(|(n, (a, b, x, y))| free(n, a, &[(a, x.into()), (b, if a == b { x } else { y }.into())]))
                .collect();
            let mut load = busy(&copies);
            let before = load.values().max().copied();
            even_out(&mut copies, &mut load, 0);
            let after = busy(&copies);
            prop_assert!(after.values().max().copied() <= before);
            for (source, nanos) in &load {
                prop_assert_eq!(after.get(source).copied().unwrap_or(0), *nanos);
            }
        }
    }
}
