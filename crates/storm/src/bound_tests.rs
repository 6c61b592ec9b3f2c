use proptest::prelude::*;

use super::*;

const LINK: f64 = 40e6;

fn even(nodes: usize, rate: f64) -> Vec<Link> {
    vec![Link { egress: rate, ingress: rate }; nodes]
}

fn copy(bytes: f64, holders: &[usize], allowed: &[usize]) -> Missing {
    Missing { bytes, holders: holders.to_vec(), allowed: allowed.to_vec() }
}

fn seconds(rates: &[Link], copies: &[Missing]) -> f64 {
    least_seconds(rates, copies).unwrap()
}

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-4 * expected.max(1e-9), "{found}, not {expected}");
}

#[test]
fn one_copy_takes_its_size_over_the_narrower_end() {
    let mut rates = even(2, 10.0);
    rates[1].ingress = 4.0;
    assert_near(seconds(&rates, &[copy(40.0, &[0], &[1])]), 10.0);
    // A second holder does not help a full destination; a second destination does.
    let rates = [rates[0], rates[1], Link { egress: 10.0, ingress: 4.0 }];
    assert_near(seconds(&rates, &[copy(40.0, &[0], &[1, 2])]), 5.0);
    assert_near(seconds(&rates, &[copy(40.0, &[0], &[0, 1])]), 10.0);
}

#[test]
fn fan_in_and_fan_out_are_bound_by_the_one_node() {
    let to_one: Vec<_> = (0..3).map(|n| copy(8e6, &[n], &[3])).collect();
    assert_near(seconds(&even(4, 8e6), &to_one), 3.0);
    let from_one: Vec<_> = (0..3).map(|n| copy(8e6, &[3], &[n])).collect();
    assert_near(seconds(&even(4, 8e6), &from_one), 3.0);
}

/// Four brokers of which one is dead, three replicas: every shard that it held has exactly one
/// broker left to go to. All bytes over all links at share 0.5 would take 8.6 s; but those that
/// must go to the node with most of them need longer, however the others idle.
#[test]
fn the_only_legal_destination_binds_and_not_the_sum_of_all_links() {
    let rates = even(3, LINK * 0.5);
    // Lost bytes by the broker that must take them: 516 MB over 3 × 20 MB/s.
    let per_node = [222e6, 171e6, 123e6];
    let copies: Vec<_> = (0..3)
        .map(|to| {
            let holders: Vec<usize> = (0..3).filter(|node| *node != to).collect();
            copy(per_node[to], &holders, &[to])
        })
        .collect();
    let naive = per_node.iter().sum::<f64>() / (3.0 * LINK * 0.5);
    assert_near(naive, 8.6);
    assert_near(seconds(&rates, &copies), 11.1);
}

/// With six brokers each shard has a choice, and the two agree.
#[test]
fn with_enough_brokers_the_sum_of_all_links_is_the_bound() {
    let nodes = 5;
    let mut copies = Vec::new();
    for first in 0..nodes {
        for second in first + 1..nodes {
            let others: Vec<usize> = (0..nodes).filter(|n| *n != first && *n != second).collect();
            copies.push(copy(10e6, &[first, second], &others));
        }
    }
    let naive = 100e6 / (nodes as f64 * LINK * 0.5);
    assert_near(seconds(&even(nodes, LINK * 0.5), &copies), naive);
}

#[test]
fn a_share_that_changes_is_counted_as_it_was() {
    // 2 bytes a second for ten seconds, then 5.
    let within = |t: f64| {
        let bytes = 2.0 * t.min(10.0) + 5.0 * (t - 10.0).max(0.0);
        even(2, bytes)
    };
    let copies = [copy(30.0, &[0], &[1])];
    assert_near(least_seconds_within(within, &copies, 60.0).unwrap(), 12.0);
    assert_eq!(least_seconds_within(within, &copies, 11.0), None);
}

#[test]
fn nothing_to_do_takes_no_time_and_what_cannot_be_done_has_none() {
    assert_eq!(least_seconds(&even(2, 1.0), &[]), Some(0.0));
    assert_eq!(least_seconds(&even(2, 1.0), &[copy(1.0, &[], &[1])]), None);
    assert_eq!(least_seconds(&even(2, 1.0), &[copy(1.0, &[0], &[0])]), None);
    assert_eq!(least_seconds(&even(2, 1.0), &[copy(1.0, &[0], &[7])]), None);
    assert_eq!(least_seconds(&even(2, 0.0), &[copy(1.0, &[0], &[1])]), None);
    assert_eq!(least_seconds(&[], &[copy(1.0, &[0], &[1])]), None);
}

/// By the law of cuts: for every choice of nodes that give nothing and nodes that take nothing,
/// the copies that then have no way left in or out do not fit through the others' links. The
/// longest of those times is the bound, over every set of copies, senders and receivers.
fn by_hand(rates: &[Link], copies: &[Missing]) -> f64 {
    let nodes = rates.len();
    let mut least = 0.0_f64;
    for cut in 0..1_u32 << (2 * nodes) {
        let sends = |node: usize| cut >> node & 1 == 1;
        let receives = |node: usize| cut >> (nodes + node) & 1 == 1;
        // Copies that pass only through the chosen links.
        let bound: f64 = copies
            .iter()
            .filter(|copy| {
                let mut takers = copy.allowed.iter().filter(|n| !copy.holders.contains(n));
                copy.holders.iter().all(|n| sends(*n)) || takers.all(|n| receives(*n))
            })
            .map(|copy| copy.bytes)
            .sum();
        let through: f64 = (0..nodes)
            .map(|n| {
                let out = if sends(n) { rates[n].egress } else { 0.0 };
                out + if receives(n) { rates[n].ingress } else { 0.0 }
            })
            .sum();
        if bound > 0.0 {
            least = least.max(bound / through);
        }
    }
    least
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_bound_is_the_tightest_cut(
        rates in prop::collection::vec((1u32..20, 1u32..20), 4),
        copies in prop::collection::vec((1u32..50, 0usize..4, 0usize..4, 0usize..4), 1..7),
    ) {
        let rates: Vec<Link> = rates
            .into_iter()
            .map(|(out, into)| Link { egress: out.into(), ingress: into.into() })
            .collect();
        let copies: Vec<Missing> = copies
            .into_iter()
            .map(|(bytes, holder, other, to)| {
                let mut holders = vec![holder];
                if other != holder {
                    holders.push(other);
                }
                // One destination, or all that hold nothing when that is no legal one.
                let allowed = match holders.contains(&to) {
                    true => (0..4).collect(),
                    false => vec![to],
                };
                Missing { bytes: bytes.into(), holders, allowed }
            })
            .collect();
        let found = least_seconds(&rates, &copies).unwrap();
        let expected = by_hand(&rates, &copies);
        prop_assert!((found - expected).abs() <= 1e-4 * expected, "{found}, not {expected}");
    }

    #[test]
    fn faster_links_never_take_longer(
        rate in 1u32..20, more in 1u32..20, bytes in prop::collection::vec(1u32..50, 1..6),
    ) {
        let copies: Vec<Missing> = bytes
            .iter()
            .enumerate()
            .map(|(n, bytes)| copy((*bytes).into(), &[n % 3], &[0, 1, 2]))
            .collect();
        let slow = least_seconds(&even(3, rate.into()), &copies).unwrap();
        let fast = least_seconds(&even(3, (rate + more).into()), &copies).unwrap();
        prop_assert!(fast < slow, "{fast}, {slow}");
    }
}
