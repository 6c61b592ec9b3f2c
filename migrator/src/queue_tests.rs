use proptest::prelude::*;

use super::*;

fn copy(shard: u32, class: CopyClass, arrival: u64) -> Waiting {
    Waiting {
        shard: format!("stream/d/s/{shard}").parse().unwrap(),
        class,
        source: "a".parse().unwrap(),
        other_sources: Vec::new(),
        destination: "b".parse().unwrap(),
        running: false,
        begun: false,
        almost_done: false,
        reserved: false,
        remaining: None,
        arrival,
    }
}

fn ends(shard: u32, source: &str, destination: &str) -> Waiting {
    Waiting {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        ..copy(shard, CopyClass::Drain, u64::from(shard))
    }
}

/// The shards that run, of copies whose repairs all could.
fn served(waiting: Vec<Waiting>, slots: Slots) -> Vec<u32> {
    numbers(&chosen(waiting, slots).served)
}

fn chosen(waiting: Vec<Waiting>, slots: Slots) -> Selection {
    let repairs = repairs(&waiting);
    select(waiting, slots, &repairs)
}

fn repairs(waiting: &[Waiting]) -> BTreeMap<BrokerId, Hold> {
    let repairs = waiting.iter().filter(|w| w.class.is_repair());
    repairs
        .flat_map(|w| {
            [&w.source, &w.destination].map(|end| (end.clone(), Hold::Repair(w.shard.clone())))
        })
        .collect()
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
    let selected = served(vec![short.clone(), running.clone()], slots);
    assert_eq!(selected, [0]);
    let urgent = copy(2, CopyClass::LastCopy, 9);
    assert_eq!(served(vec![short, running, urgent], slots), [2]);
}

#[test]
fn slots_bound_the_cluster_and_both_ends_and_a_busy_node_stops_no_other() {
    let queue = vec![
        ends(0, "a", "b"),
        ends(1, "a", "c"),
        ends(2, "c", "b"),
        ends(3, "c", "d"),
        ends(4, "d", "e"),
    ];
    let at_once = |cluster, per_node| served(queue.clone(), Slots { cluster, per_node });
    assert_eq!(at_once(8, 1), [0, 3, 4]);
    assert_eq!(at_once(8, 2), [0, 1, 2, 3, 4]);
    assert_eq!(at_once(1, 2), [0]);
    assert!(at_once(0, 2).is_empty());
    assert!(at_once(8, 0).is_empty());
}

#[test]
fn whoever_finds_one_end_full_takes_nothing_of_the_other() {
    let slots = Slots { cluster: 8, per_node: 1 };
    let queue = vec![ends(0, "a", "b"), ends(1, "a", "c"), ends(2, "d", "c")];
    let selection = chosen(queue, slots);
    assert_eq!(numbers(&selection.served), [0, 2], "c was not held for the copy that lacked a");
    let left: Vec<(u32, Full)> =
        selection.left.into_iter().map(|(w, full)| (w.shard.number, full)).collect();
    assert_eq!(left, [(1, Full::Source)]);
}

#[test]
fn balance_waits_for_repairs_at_its_own_ends_and_for_no_others() {
    let with = |class, copy: Waiting| Waiting { class, ..copy };
    let queue = vec![
        with(CopyClass::UnderReplicated, ends(0, "a", "b")),
        with(CopyClass::Balance, ends(1, "a", "c")),
        with(CopyClass::Balance, ends(2, "c", "b")),
        with(CopyClass::Balance, ends(3, "c", "d")),
        with(CopyClass::Spread, ends(4, "a", "d")),
        with(CopyClass::Drain, ends(5, "d", "b")),
    ];
    let selection = chosen(queue, Slots { cluster: 8, per_node: 4 });
    assert_eq!(numbers(&selection.served), [0, 5, 4, 3]);
    let because =
        |end: &str| Full::Held(end.parse().unwrap(), Hold::Repair("stream/d/s/0".parse().unwrap()));
    let left: Vec<Full> = selection.left.into_iter().map(|(_, full)| full).collect();
    assert_eq!(left, [because("a"), because("b")]);
}

#[test]
fn a_copy_that_lost_its_slot_is_the_next_of_its_class() {
    let slots = Slots { cluster: 1, per_node: 1 };
    let paused = Waiting { begun: true, ..copy(7, CopyClass::Drain, 9) };
    let older = copy(1, CopyClass::Drain, 1);
    assert_eq!(served(vec![older.clone(), paused.clone()], slots), [7]);
    let higher = copy(2, CopyClass::UnderReplicated, 20);
    assert_eq!(served(vec![older, paused, higher], slots), [2]);
}

#[test]
fn what_has_almost_ended_keeps_its_slot_against_higher_classes() {
    let slots = Slots { cluster: 8, per_node: 1 };
    let ending = Waiting { running: true, almost_done: true, ..copy(0, CopyClass::Drain, 0) };
    let urgent = copy(1, CopyClass::Unavailable, 1);
    assert_eq!(served(vec![ending.clone(), urgent.clone()], slots), [0]);
    let stopped = Waiting { running: false, ..ending };
    assert_eq!(served(vec![stopped, urgent], slots), [1]);
}

#[test]
fn a_drain_that_waited_too_long_has_a_slot_beyond_those_that_repairs_fill() {
    let slots = Slots { cluster: 2, per_node: 2 };
    let repair = |n| copy(n, CopyClass::UnderReplicated, u64::from(n));
    let overdue = |n, arrival| Waiting { reserved: true, ..copy(n, CopyClass::Drain, arrival) };
    let fresh = copy(9, CopyClass::Drain, 1);
    let queue = vec![repair(0), repair(1), fresh, overdue(6, 7), overdue(5, 6)];
    assert_eq!(served(queue, slots), [0, 1, 5], "the longest wait, one for each end");
    // Alone it needs no slot beyond the limits.
    assert_eq!(served(vec![overdue(5, 6), overdue(6, 7), overdue(7, 8)], slots), [5, 6]);
    assert!(served(vec![overdue(5, 6)], Slots { cluster: 0, per_node: 2 }).is_empty());
}

#[test]
fn a_copy_whose_source_is_full_takes_the_slot_of_another_source_and_balance_none_that_is_held() {
    let with = |copy: Waiting, others: &[&str]| Waiting {
        other_sources: others.iter().map(|other| other.parse().unwrap()).collect(),
        ..copy
    };
    let slots = Slots { cluster: 8, per_node: 1 };
    let queue = vec![ends(0, "a", "b"), with(ends(1, "a", "c"), &["b", "d", "e"])];
    let selection = chosen(queue.clone(), slots);
    assert_eq!(numbers(&selection.served), [0, 1]);
    assert_eq!(selection.served[1].source.as_str(), "b");
    let full = with(ends(2, "a", "c"), &["d"]);
    let selection = chosen([queue, vec![full]].concat(), slots);
    assert_eq!(selection.left[0].1, Full::Source, "its destination is full as well");
    let repair = Waiting { class: CopyClass::LastCopy, ..ends(0, "a", "b") };
    let balance = Waiting { class: CopyClass::Balance, ..with(ends(1, "d", "e"), &["a", "c"]) };
    let drain = ends(3, "d", "c");
    let selection = chosen(vec![repair, drain, balance], slots);
    assert_eq!(selection.served[2].source.as_str(), "c", "a repair is at a");
}

const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn queues() -> impl Strategy<Value = Vec<Waiting>> {
    let one = (0usize..6, 0usize..5, 0usize..5, any::<[bool; 4]>(), 0u64..4);
    prop::collection::vec(one, 0..30).prop_map(|all| {
        let waiting =
            all.into_iter().enumerate().map(|(i, (class, from, to, flags, remaining))| {
                let [running, almost_done, reserved, known] = flags;
                let class = CopyClass::ALL[class];
                Waiting {
                    class,
                    running,
                    begun: running,
                    almost_done,
                    reserved: reserved && class == CopyClass::Drain,
                    remaining: known.then_some(remaining),
                    ..ends(i as u32, NODES[from], NODES[to])
                }
            });
        waiting.collect()
    })
}

fn source(copy: &Waiting) -> &BrokerId {
    &copy.source
}

fn destination(copy: &Waiting) -> &BrokerId {
    &copy.destination
}

fn uses(copies: &[&Waiting], end: fn(&Waiting) -> &BrokerId, node: &BrokerId) -> usize {
    copies.iter().filter(|copy| end(copy) == node).count()
}

proptest! {
    #[test]
    fn slots_hold_at_every_end_and_none_stays_empty_while_somebody_waits_for_it(
        queue in queues(),
        cluster in 0usize..8,
        per_node in 0usize..4,
    ) {
        let slots = Slots { cluster, per_node };
        let selection = chosen(queue.clone(), slots);
        prop_assert_eq!(selection.served.len() + selection.left.len(), queue.len());
        let all: Vec<&Waiting> = selection.served.iter().collect();
        let plain: Vec<&Waiting> = all.iter().copied().filter(|w| !w.reserved).collect();
        prop_assert!(plain.len() <= cluster && all.len() <= cluster + slots.reserved());
        for node in NODES.map(|n| n.parse::<BrokerId>().unwrap()) {
            for side in [source as fn(&Waiting) -> &BrokerId, destination] {
                prop_assert!(uses(&plain, side, &node) <= per_node);
                prop_assert!(uses(&all, side, &node) <= per_node + usize::from(per_node > 0));
            }
        }
        for (copy, full) in &selection.left {
            match full {
                Full::Cluster => prop_assert!(all.len() >= cluster),
                Full::Source => prop_assert!(uses(&all, source, &copy.source) >= per_node),
                Full::Destination => {
                    prop_assert!(uses(&all, destination, &copy.destination) >= per_node);
                }
                Full::Held(..) => prop_assert_eq!(copy.class, CopyClass::Balance),
            }
        }
    }

    #[test]
    fn no_balance_copy_runs_at_an_end_where_a_repair_waits(queue in queues()) {
        let busy = repairs(&queue);
        let selection = chosen(queue, Slots { cluster: 4, per_node: 1 });
        for copy in selection.served.iter().filter(|w| w.class == CopyClass::Balance) {
            let at_a_repair = [&copy.source, &copy.destination].iter().any(|e| busy.contains_key(*e));
            prop_assert!(!at_a_repair);
        }
    }
}
