//! Who a copy is read from.

use proptest::prelude::*;

use super::*;

/// The sources that were ordered for a shard, in order, and when.
fn ordered(rig: &mut Rig, number: u32, rounds: u32) -> Vec<(Duration, String)> {
    let mut seen = Vec::new();
    for _ in 0..rounds {
        for line in rig.round() {
            if line.contains(&format!("order {} ", shard(number))) {
                let from = line.split(' ').skip_while(|word| *word != "from").nth(1).unwrap();
                seen.push((rig.at, from.to_owned()));
            }
        }
    }
    seen
}

fn sources(rig: &mut Rig, number: u32, rounds: u32) -> Vec<String> {
    ordered(rig, number, rounds).into_iter().map(|(_, source)| source).collect()
}

fn share(rig: &mut Rig, broker: &str, session: u64, share: f64) {
    let status = NodeStatus { share, state: "holding".to_owned(), ..NodeStatus::default() };
    rig.tell(Event::Status { broker: id(broker), session, status });
}

/// A drain of `b1`'s shard to `b3`, with 40 MB to go, and the caps of its leader and its follower.
fn drain(leader: Option<u64>, follower: Option<u64>) -> Rig {
    let mut rig = Rig::new(SLOTS);
    rig.stage(0, "b3", MoveReason::Drain);
    rig.world.sizes.insert(shard(0), 40_000_000);
    for (broker, cap) in [("b1", leader), ("b2", follower)] {
        rig.world.limits.extend(cap.map(|cap| (id(broker), cap)));
    }
    rig.see();
    rig.open("b3");
    rig
}

#[test]
fn a_free_leader_is_read_from_when_its_follower_is_held_back_and_spared_when_it_is_not() {
    assert_eq!(sources(&mut drain(None, None), 0, 1), ["b2"]);
    assert_eq!(sources(&mut drain(None, Some(400_000)), 0, 1), ["b1"]);
    // A tenth is what sparing the leader is worth.
    assert_eq!(sources(&mut drain(Some(1_000_000), Some(950_000)), 0, 1), ["b2"]);
    assert_eq!(sources(&mut drain(Some(1_000_000), Some(850_000)), 0, 1), ["b1"]);
    // Where the destination decides, a faster leader gains nothing.
    let mut rig = drain(None, Some(1_000_000));
    rig.world.limits.insert(id("b3"), 500_000);
    rig.see();
    assert_eq!(sources(&mut rig, 0, 1), ["b2"]);
}

#[test]
fn a_copy_goes_over_to_a_source_that_would_end_it_in_half_the_time_and_keeps_its_bytes() {
    let mut rig = drain(None, None);
    assert_eq!(sources(&mut rig, 0, 4), ["b2"]);
    rig.progress("b3", 0, 0, ("running", 1_000_000, 39_000_000));
    // Three quarters of the leader's rate are kept.
    rig.world.limits.insert(id("b2"), 1_200_000);
    rig.see();
    assert!(sources(&mut rig, 0, 40).is_empty());
    rig.world.limits.insert(id("b2"), 400_000);
    rig.see();
    assert_eq!(sources(&mut rig, 0, 40), ["b1"]);
    let copy = rig.copy(0);
    assert_eq!(
        (copy.state.as_str(), copy.bytes_done, copy.failures),
        ("running", Some(1_000_000), 0)
    );
    // The little that is left is not worth it.
    rig.progress("b3", 0, 0, ("running", 39_900_000, 100_000));
    rig.world.limits = BTreeMap::from([(id("b1"), 500_000)]);
    rig.see();
    assert!(sources(&mut rig, 0, 40).is_empty());
}

#[test]
fn copies_whose_sources_are_all_asked_of_are_spread_over_them() {
    let mut rig = Rig::new(Slots { cluster: 8, per_node: 4 });
    for number in 0..6 {
        rig.restore(number, &["b2", "b3"], "b4");
        rig.following(number, "b3", 3);
        rig.world.sizes.insert(shard(number), 5_000_000);
    }
    // Where the destination decides, the leader would be spared.
    rig.world.brokers.get_mut(&id("b4")).unwrap().link_bytes_per_second = 80_000_000;
    rig.see();
    rig.open("b4");
    rig.round();
    let mut of: BTreeMap<String, u32> = BTreeMap::new();
    rig.copies().into_iter().for_each(|copy| *of.entry(copy.source.unwrap()).or_insert(0) += 1);
    let expected = ["b1", "b2", "b3"].map(|b| (b.to_owned(), 2));
    assert_eq!(of, BTreeMap::from(expected));
}

/// A restore of shard 0 to `b4`, and after it a drain of shard 1 that can be read from `b2` only.
fn with_a_rival(followers: &[&str]) -> Rig {
    let mut rig = Rig::new(Slots { cluster: 8, per_node: 4 });
    rig.world.brokers.get_mut(&id("b4")).unwrap().link_bytes_per_second = 80_000_000;
    rig.restore(0, followers, "b4");
    followers.iter().for_each(|follower| rig.following(0, follower, 3));
    rig.stage(1, "b4", MoveReason::Drain);
    rig.world.moving.get_mut(&shard(1)).unwrap().leader = Some(id("b2"));
    rig.world.moving.get_mut(&shard(1)).unwrap().followers.clear();
    rig.world.sizes.extend([(shard(0), 5_000_000), (shard(1), 6_000_000)]);
    rig.see();
    rig.open("b4");
    rig
}

#[test]
fn a_source_chosen_for_the_sake_of_other_copies_is_told_as_such() {
    let reason = |rig: &Rig| {
        let shown = rig.engine.show(Now { at: rig.at, wall_ms: 0 }, &shard(0)).unwrap();
        (shown.migration.unwrap().source.unwrap(), shown.source_reason)
    };
    let mut rig = with_a_rival(&["b2", "b3"]);
    rig.leader_is_busy();
    rig.round();
    let why = "in place of b2, which has more to send than others";
    assert_eq!(reason(&rig), ("b3".to_owned(), format!("a caught-up follower; {why}")));
    assert_eq!(rig.engine.copies[&shard(0)].other_sources, [id("b2")]);
    let mut rig = with_a_rival(&["b2"]);
    rig.round();
    assert_eq!(reason(&rig), ("b1".to_owned(), format!("the leader; {why}")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the laws do, an agent is sent to another source at most once a second, and a copy
    /// that is given bytes at most once in five.
    #[test]
    fn sources_do_not_thrash(
        shares in prop::collection::vec(prop::collection::vec(0.05f64..0.5, 4), 1..40),
        remaining in prop::collection::vec(1u64..60_000_000, 4),
        per_node in 1usize..4,
    ) {
        let mut rig = Rig::new(Slots { cluster: 8, per_node });
        for (number, left) in (0..4).zip(&remaining) {
            rig.stage(number, if number < 2 { "b3" } else { "b4" }, MoveReason::Drain);
            rig.second_follower(number, if number < 2 { "b4" } else { "b3" });
            rig.world.sizes.insert(shard(number), *left);
        }
        rig.see();
        (1..=4).for_each(|n| drop(rig.open(&format!("b{n}"))));
        let mut last: BTreeMap<u32, (Duration, String)> = BTreeMap::new();
        let mut verified = [0_u64; 4];
        for second in shares {
            for (session, one) in (0..).zip(&second) {
                share(&mut rig, &format!("b{}", session + 1), session, *one);
            }
            for _ in 0..4 {
                let lines = rig.round();
                for number in 0..4_u32 {
                    let more = Rig::granted(&lines, number);
                    let (at, left) = (number as usize, remaining[number as usize]);
                    verified[at] = (verified[at] + more).min(left);
                    let (to, session) = if number < 2 { ("b3", 2) } else { ("b4", 3) };
                    let word = ("running", verified[at], left - verified[at]);
                    if more > 0 {
                        rig.progress(to, session, number, word);
                    }
                    let order = lines.iter().find(|l| l.contains(&format!("order {} ", shard(number))));
                    let Some(order) = order else { continue };
                    let before = last.insert(number, (rig.at, order.clone()));
                    let Some((at, _)) = before else { continue };
                    prop_assert!(rig.at >= at + Duration::from_secs(1), "{order} at {at:?}");
                }
            }
        }
    }
}
