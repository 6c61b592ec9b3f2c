use proptest::prelude::*;

use super::*;

fn want(shard: u32, class: CopyClass, source: &str, destination: &str, bytes: u64) -> Want {
    Want {
        shard: format!("stream/d/s/{shard}").parse().unwrap(),
        class,
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        bytes,
        reserved: false,
    }
}

fn nothing_aside(wants: &[Want], room: &mut Room) -> Vec<Allotment> {
    allot(wants, room, Room::default())
}

fn room(egress: &[(&str, u64)], ingress: &[(&str, u64)]) -> Room {
    let side = |nodes: &[(&str, u64)]| {
        nodes.iter().map(|(node, bytes)| (node.parse().unwrap(), *bytes)).collect()
    };
    Room { egress: side(egress), ingress: side(ingress) }
}

fn bytes(allotted: &[Allotment]) -> Vec<u64> {
    allotted.iter().map(|a| a.bytes).collect()
}

#[test]
fn a_repair_takes_what_it_wants_before_anything_routine_gets_a_byte() {
    use CopyClass::{Balance, LastCopy};
    let wants = [want(0, LastCopy, "a", "b", 800), want(1, Balance, "a", "c", 800)];
    let mut left = room(&[("a", 1000)], &[("b", 1000), ("c", 1000)]);
    let allotted = nothing_aside(&wants, &mut left);
    assert_eq!(bytes(&allotted), [800, 200]);
    assert_eq!(
        allotted.iter().map(|a| a.limited_by).collect::<Vec<_>>(),
        [LimitedBy::Demand, LimitedBy::Egress]
    );
    assert_eq!(left, room(&[("a", 0)], &[("b", 200), ("c", 800)]));
}

#[test]
fn repairs_of_one_class_are_served_one_after_another() {
    let class = CopyClass::UnderReplicated;
    let wants = [want(0, class, "a", "b", 700), want(1, class, "a", "c", 700)];
    let allotted = nothing_aside(&wants, &mut room(&[("a", 1000)], &[("b", 1000), ("c", 1000)]));
    assert_eq!(bytes(&allotted), [700, 300]);
}

#[test]
fn routine_copies_share_evenly_and_leave_what_they_do_not_want() {
    let class = CopyClass::Balance;
    let wants = [
        want(0, class, "a", "b", 100),
        want(1, class, "a", "c", 900),
        want(2, class, "a", "d", 900),
        want(3, class, "e", "d", 900),
    ];
    let mut left = room(&[("a", 1000), ("e", 5000)], &[("b", 1000), ("c", 1000), ("d", 600)]);
    let allotted = nothing_aside(&wants, &mut left);
    // 0 wants little; 2 and 3 share d; 1 takes what is left of a.
    assert_eq!(bytes(&allotted), [100, 600, 300, 300]);
    assert_eq!(
        allotted.iter().map(|a| a.limited_by).collect::<Vec<_>>(),
        [LimitedBy::Demand, LimitedBy::Egress, LimitedBy::Ingress, LimitedBy::Ingress]
    );
}

#[test]
fn a_node_that_is_not_known_gives_nothing() {
    let wants = [want(0, CopyClass::Unavailable, "a", "b", 100)];
    let allotted = nothing_aside(&wants, &mut room(&[], &[("b", 1000)]));
    assert_eq!(allotted, [Allotment { bytes: 0, limited_by: LimitedBy::Egress }]);
}

const NODES: [&str; 4] = ["a", "b", "c", "d"];

fn wants() -> impl Strategy<Value = Vec<Want>> {
    prop::collection::vec((0usize..7, 0usize..4, 0usize..4, 0u64..5000), 0..24).prop_map(|all| {
        let mut wants: Vec<Want> = all
            .into_iter()
            .enumerate()
            .map(|(i, (class, source, destination, bytes))| {
                let class = CopyClass::ALL[class];
                want(i as u32, class, NODES[source], NODES[destination], bytes)
            })
            .collect();
        wants.sort_by_key(|w| w.class);
        wants
    })
}

fn rooms() -> impl Strategy<Value = Room> {
    prop::array::uniform8(0u64..10_000).prop_map(|bytes| {
        let side = |offset: usize| -> Vec<(&str, u64)> {
            NODES.iter().enumerate().map(|(i, n)| (*n, bytes[offset + i])).collect()
        };
        room(&side(0), &side(4))
    })
}

fn used(
    wants: &[Want],
    allotted: &[Allotment],
    end: impl Fn(&Want) -> &BrokerId,
) -> BTreeMap<BrokerId, u64> {
    let mut used = BTreeMap::new();
    for (want, allotment) in wants.iter().zip(allotted) {
        *used.entry(end(want).clone()).or_insert(0) += allotment.bytes;
    }
    used
}

proptest! {
    #[test]
    fn no_end_is_exceeded_no_room_is_wasted_and_no_lower_class_is_felt(
        wants in wants(),
        before in rooms(),
        first in 0usize..7,
    ) {
        let mut after = before.clone();
        let allotted = nothing_aside(&wants, &mut after);
        prop_assert_eq!(allotted.len(), wants.len());
        for (node, bytes) in used(&wants, &allotted, |w| &w.source) {
            prop_assert_eq!(before.egress[&node] - bytes, after.egress[&node]);
        }
        for (node, bytes) in used(&wants, &allotted, |w| &w.destination) {
            prop_assert_eq!(before.ingress[&node] - bytes, after.ingress[&node]);
        }
        for (want, got) in wants.iter().zip(&allotted) {
            prop_assert!(got.bytes <= want.bytes);
            // What is left where a copy stopped is less than one byte for each that shares it.
            let sharers = wants.len() as u64;
            match got.limited_by {
                LimitedBy::Demand => prop_assert_eq!(got.bytes, want.bytes),
                LimitedBy::Egress => prop_assert!(after.egress[&want.source] < sharers),
                LimitedBy::Ingress => prop_assert!(after.ingress[&want.destination] < sharers),
            }
        }
        let class = CopyClass::ALL[first];
        let above: Vec<Want> = wants.iter().filter(|w| w.class <= class).cloned().collect();
        let alone = nothing_aside(&above, &mut before.clone());
        prop_assert_eq!(&alone[..], &allotted[..above.len()]);
    }

    #[test]
    fn routine_copies_between_the_same_ends_get_the_same(
        demands in prop::collection::vec(0u64..5000, 1..12),
        egress in 0u64..20_000,
        ingress in 0u64..20_000,
    ) {
        let wants: Vec<Want> = demands
            .iter()
            .enumerate()
            .map(|(i, d)| want(i as u32, CopyClass::Drain, "a", "b", *d))
            .collect();
        let got = bytes(&nothing_aside(&wants, &mut room(&[("a", egress)], &[("b", ingress)])));
        let most = got.iter().copied().max().unwrap_or(0);
        for (bytes, demand) in got.iter().zip(&demands) {
            prop_assert!(*bytes == most || bytes == demand, "{got:?} of {demands:?}");
        }
    }
}

#[test]
fn a_drain_that_waited_too_long_has_its_part_before_repairs_and_no_more() {
    use CopyClass::{Drain, UnderReplicated};
    let overdue = |n, to| Want { reserved: true, ..want(n, Drain, "a", to, 500) };
    let wants = [want(0, UnderReplicated, "a", "b", 5000), overdue(1, "c"), overdue(2, "d")];
    let full = room(&[("a", 1000)], &[("b", 1000), ("c", 1000), ("d", 1000)]);
    let aside = room(&[("a", 100)], &[("b", 100), ("c", 40), ("d", 100)]);
    let allotted = allot(&wants, &mut full.clone(), aside.clone());
    assert_eq!(bytes(&allotted), [900, 40, 60], "both ends keep a part, the first drain first");
    // What the repair leaves is shared as ever.
    let wants = [want(0, UnderReplicated, "a", "b", 300), overdue(1, "c"), overdue(2, "d")];
    assert_eq!(bytes(&allot(&wants, &mut full.clone(), aside)), [300, 340, 360]);
}

proptest! {
    #[test]
    fn what_is_set_aside_bounds_what_higher_classes_feel(
        mut wants in wants(),
        before in rooms(),
        parts in rooms(),
        overdue in any::<u32>(),
    ) {
        for (i, want) in wants.iter_mut().enumerate() {
            want.reserved = want.class == CopyClass::Drain && overdue >> (i % 32) & 1 == 1;
        }
        let mut after = before.clone();
        let allotted = allot(&wants, &mut after, parts.clone());
        for (node, bytes) in used(&wants, &allotted, |w| &w.source) {
            prop_assert_eq!(before.egress[&node] - bytes, after.egress[&node]);
        }
        for (node, bytes) in used(&wants, &allotted, |w| &w.destination) {
            prop_assert_eq!(before.ingress[&node] - bytes, after.ingress[&node]);
        }
        let least = |w: &Want| {
            let ends = [&before, &parts].map(|r| r.egress[&w.source].min(r.ingress[&w.destination]));
            w.bytes.min(ends[0]).min(ends[1])
        };
        if let Some(first) = wants.iter().position(|w| w.reserved) {
            prop_assert!(allotted[first].bytes >= least(&wants[first]));
        }
        // Where a repair found an end empty, lower classes have at most what was set aside.
        for (repair, got) in wants.iter().zip(&allotted) {
            if !repair.class.is_repair() || got.limited_by != LimitedBy::Egress {
                continue;
            }
            let lower = wants.iter().zip(&allotted).filter(|(w, _)| {
                w.class > CopyClass::UnderReplicated && w.source == repair.source
            });
            let (reserved, others): (Vec<_>, Vec<_>) = lower.partition(|(w, _)| w.reserved);
            prop_assert!(others.iter().all(|(_, got)| got.bytes == 0));
            let reserved: u64 = reserved.iter().map(|(_, got)| got.bytes).sum();
            prop_assert!(reserved <= parts.egress[&repair.source]);
        }
    }
}
