//! Computed ownership over 56 000 keys: parts follow weights, and a change of the members moves the
//! keys that it must move and no others.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use std::collections::BTreeMap;

use evenkeel_planner::{Member, Owners, owners};

const KEYS: usize = 56_000;

fn keys() -> impl Iterator<Item = String> {
    (0..KEYS).map(|n| format!("seg-{n:06}"))
}

fn members(weights: &[(&str, f64)]) -> Vec<Member> {
    let one = |(id, weight): &(&str, f64)| Member {
        id: (*id).to_owned(),
        weight: Some(*weight),
        live: true,
    };
    weights.iter().map(one).collect()
}

/// The owner of every key, and who stands by.
fn all(members: &[Member]) -> Vec<Owners> {
    keys().map(|key| owners(members, &key, Some(2))).collect()
}

/// The whole rankings of a few keys.
fn some(members: &[Member]) -> Vec<Owners> {
    keys().take(2_000).map(|key| owners(members, &key, None)).collect()
}

fn of(weights: &[(&str, f64)]) -> Vec<Owners> {
    all(&members(weights))
}

fn counts(owned: &[Owners]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for one in owned {
        *counts.entry(one.owner.as_deref().unwrap()).or_default() += 1;
    }
    counts
}

/// How many keys went from one owner to another.
fn moved<'o>(before: &'o [Owners], after: &'o [Owners]) -> BTreeMap<(&'o str, &'o str), usize> {
    let mut moved = BTreeMap::new();
    for (old, new) in before.iter().zip(after) {
        let (from, to) = (old.owner.as_deref().unwrap(), new.owner.as_deref().unwrap());
        if from != to {
            *moved.entry((from, to)).or_default() += 1;
        }
    }
    moved
}

/// Whether a count is a draw of `KEYS` keys with this chance each, within four deviations.
fn is_part(count: usize, part: f64) -> bool {
    let (expected, n) = (part * KEYS as f64, KEYS as f64);
    (count as f64 - expected).abs() <= 4.0 * (n * part * (1.0 - part)).sqrt()
}

#[test]
fn a_members_part_of_the_keys_is_its_part_of_the_weights() {
    let owned = of(&[("A", 16.0), ("B", 16.0), ("C", 8.0)]);
    let exactly = BTreeMap::from([("A", 22_485), ("B", 22_460), ("C", 11_055)]);
    assert_eq!(counts(&owned), exactly);
    for (id, part) in [("A", 0.4), ("B", 0.4), ("C", 0.2)] {
        assert!(is_part(exactly[id], part), "{id}");
    }
    let two = of(&[("A", 64.0), ("B", 32.0)]);
    assert!(is_part(counts(&two)["A"], 2.0 / 3.0), "{:?}", counts(&two));
}

#[test]
fn a_new_member_takes_its_part_and_nothing_moves_between_the_others() {
    let before = of(&[("A", 16.0), ("B", 16.0), ("C", 8.0)]);
    let after = of(&[("A", 16.0), ("B", 16.0), ("C", 8.0), ("D", 16.0)]);
    let moved = moved(&before, &after);
    assert!(moved.keys().all(|(_, to)| *to == "D"), "{moved:?}");
    // 28.6 % move, so that 71.4 % stay where their bytes are.
    assert!(is_part(moved.values().sum(), 16.0 / 56.0), "{moved:?}");
}

#[test]
fn when_a_member_leaves_only_its_keys_move_to_the_others_by_weight() {
    let before = of(&[("A", 16.0), ("B", 16.0), ("C", 8.0), ("D", 16.0)]);
    let after = of(&[("A", 16.0), ("B", 16.0), ("D", 16.0)]);
    let moved = moved(&before, &after);
    assert!(moved.keys().all(|(from, _)| *from == "C"), "{moved:?}");
    assert!(is_part(moved.values().sum(), 8.0 / 56.0), "{moved:?}");
    let of_c = counts(&before)["C"] as f64;
    for gained in moved.values() {
        let deviation = (of_c * (1.0 / 3.0) * (2.0 / 3.0)).sqrt();
        assert!((*gained as f64 - of_c / 3.0).abs() <= 4.0 * deviation, "{moved:?}");
    }
}

#[test]
fn the_second_in_the_ranking_owns_what_the_first_leaves() {
    let four = [("A", 16.0), ("B", 16.0), ("C", 8.0), ("D", 16.0)];
    let before = of(&four);
    let mut gone = members(&four);
    gone[2].live = false;
    let dead = all(&gone);
    let removed = of(&[("A", 16.0), ("B", 16.0), ("D", 16.0)]);
    for (old, (dead, new)) in before.iter().zip(dead.iter().zip(&removed)) {
        let first = &old.ranking[0];
        let expected = if first == "C" { &old.ranking[1] } else { first };
        // Listed and dead, or not listed any more: the same answer.
        assert_eq!(dead.owner.as_ref(), Some(expected));
        assert_eq!(new.owner.as_ref(), Some(expected));
    }
}

#[test]
fn a_weight_that_rises_pulls_keys_only_to_it_and_one_that_falls_pushes_them_only_out() {
    let small = of(&[("A", 16.0), ("B", 16.0), ("C", 8.0), ("D", 16.0)]);
    let large = of(&[("A", 16.0), ("B", 16.0), ("C", 24.0), ("D", 16.0)]);
    let up = moved(&small, &large);
    assert!(up.keys().all(|(_, to)| *to == "C"), "{up:?}");
    // From 8 of 56 to 24 of 72: 19.0 % of all keys.
    assert!(is_part(up.values().sum(), 24.0 / 72.0 - 8.0 / 56.0), "{up:?}");
    let from: BTreeMap<&str, usize> = up.iter().map(|((from, _), n)| (*from, *n)).collect();
    let each = up.values().sum::<usize>() / 3;
    assert!(from.values().all(|n| n.abs_diff(each) < each / 20), "{from:?}");
    let down = moved(&large, &small);
    assert!(down.keys().all(|(from, _)| *from == "C"), "{down:?}");
    assert_eq!(down.values().sum::<usize>(), up.values().sum::<usize>());
}

#[test]
fn the_order_of_the_members_and_restarts_change_nothing() {
    let weights = [("A", 16.0), ("B", 16.0), ("C", 8.0), ("D", 16.0)];
    let mut turned = members(&weights);
    turned.reverse();
    assert_eq!(some(&turned), some(&members(&weights)));
    // Without a weight, or with one below 1, a member weighs 1.
    let odd = [None, Some(0.25), Some(f64::NAN)];
    let ids = ["A", "B", "C", "D"];
    let with = |weight| ids.map(|id| Member { id: id.to_owned(), weight, live: true }).to_vec();
    let ones = some(&with(Some(1.0)));
    for weight in odd {
        assert_eq!(some(&with(weight)), ones);
    }
}

#[test]
fn a_node_on_an_empty_disk_is_another_member() {
    let before = of(&[("A", 16.0), ("B", 16.0), ("C", 8.0)]);
    let after = of(&[("A", 16.0), ("B", 16.0), ("C-2", 8.0)]);
    let moved = moved(&before, &after);
    // One leaves and one joins: keys go from the old name to anybody, and from anybody to the new.
    assert!(moved.keys().all(|(from, to)| *from == "C" || *to == "C-2"), "{moved:?}");
    let sum: usize = moved.values().sum();
    // 8 of 40 leave and 8 of 40 come; of those, 2 · 8/48 · 8/40 are the same keys.
    assert!(is_part(sum, 0.2 + 0.2 - 2.0 * 8.0 / 48.0 * 8.0 / 40.0), "{moved:?}");
}

#[test]
fn a_rolling_upgrade_disturbs_one_members_part_at_a_time() {
    let weights = [("A", 16.0), ("B", 16.0), ("C", 8.0), ("D", 16.0)];
    let before = of(&weights);
    for (at, (id, weight)) in weights.iter().enumerate() {
        let mut restarting = members(&weights);
        restarting[at].live = false;
        let during = all(&restarting);
        let moved = moved(&before, &during);
        assert!(moved.keys().all(|(from, _)| from == id), "{moved:?}");
        assert!(is_part(moved.values().sum(), weight / 56.0), "{moved:?}");
    }
}

#[test]
fn consecutive_keys_scatter() {
    // 56 runs of 1 000 consecutive keys over ten equal members: chi-squared with nine degrees of
    // freedom stays below 33.7 in all but one of 10 000 draws.
    let ids: Vec<String> = (0..10).map(|n| format!("m{n}")).collect();
    let weights: Vec<(&str, f64)> = ids.iter().map(|id| (id.as_str(), 4.0)).collect();
    let owned = of(&weights);
    for run in owned.chunks(1_000) {
        let counts = counts(run);
        let square = |id: &String| {
            let count = counts.get(id.as_str()).copied().unwrap_or(0) as f64;
            (count - 100.0).powi(2) / 100.0
        };
        let chi: f64 = ids.iter().map(square).sum();
        assert!(chi < 33.7, "{chi}: {counts:?}");
    }
}

#[test]
fn without_members_nobody_owns_and_without_live_ones_the_ranking_stands() {
    let nobody = owners(&[], "seg-000001", None);
    assert_eq!((nobody.owner, nobody.ranking.len()), (None, 0));
    let mut dead = members(&[("A", 1.0), ("B", 1.0)]);
    dead.iter_mut().for_each(|m| m.live = false);
    let down = owners(&dead, "seg-000001", None);
    assert_eq!((down.owner, down.ranking.len()), (None, 2));
}
