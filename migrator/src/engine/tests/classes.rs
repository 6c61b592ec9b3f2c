//! Order, reservation, pre-emption and fairness as whole rounds show them.

use evenkeel_throttle::Sample;

use super::*;

const ONE: Slots = Slots { cluster: 8, per_node: 1 };

/// Runs rounds until `seconds` have passed; every destination uses what it is granted. Answers the
/// bytes that each shard was granted.
fn carry(rig: &mut Rig, shards: &[(u32, &str, u64)], seconds: u64) -> BTreeMap<u32, u64> {
    let mut granted: BTreeMap<u32, u64> = BTreeMap::new();
    for _ in 0..seconds * 4 {
        let lines = rig.round();
        for (number, destination, session) in shards {
            let sum = granted.entry(*number).or_insert(0);
            *sum += Rig::granted(&lines, *number);
            let done = *sum;
            rig.progress(destination, *session, *number, ("running", done, 1 << 40));
        }
    }
    granted
}

#[test]
fn a_class_rises_where_the_copy_is_when_another_replica_is_lost_and_falls_back() {
    let mut rig = Rig::new(SLOTS);
    rig.restore(0, &["b2", "b4"], "b3");
    rig.world.brokers.get_mut(&id("b4")).unwrap().address = None;
    rig.see();
    rig.open("b3");
    rig.round();
    rig.progress("b3", 0, 0, ("running", 300_000, 5_000_000));
    assert_eq!(rig.copy(0).class, "under_replicated");

    rig.world.brokers.get_mut(&id("b2")).unwrap().address = None;
    assert!(rig.see().is_empty(), "nobody is told to begin anew");
    let lines = rig.round();
    let copy = rig.copy(0);
    assert_eq!((copy.class.as_str(), copy.bytes_done), ("unavailable", Some(300_000)));
    // The source has gone with the replica; the leader is what is left.
    assert_eq!(lines[0], "0 <- order stream/d/s/0 g3 unavailable from b1 at h1:1 token 66");
    assert!(lines[2].starts_with("write stream/d/s/0 unavailable b1 -> b3 300000/"), "{lines:?}");

    rig.world.brokers.get_mut(&id("b2")).unwrap().address = Some("h2:1".to_owned());
    rig.see();
    let lines = rig.round();
    // Its agent is told the class as well, and only once.
    assert_eq!(lines[0], "0 <- order stream/d/s/0 g3 under_replicated from b1 at h1:1 token 66");
    assert_eq!(rig.copy(0).class, "under_replicated");
    assert!(Rig::granted(&lines, 0) > 0);
    let lines = rig.round();
    assert!(!lines.iter().any(|line| line.contains("order")), "{lines:?}");
}

#[test]
fn a_running_copy_that_rises_takes_the_lead_at_once() {
    let mut rig = Rig::new(SLOTS);
    rig.restore(0, &["b2"], "b3");
    rig.restore(1, &["b4"], "b3");
    rig.world.sizes.insert(shard(0), 1_000);
    rig.world.sizes.insert(shard(1), 50_000_000);
    for number in [0, 1] {
        rig.following(number, "b4", 3);
    }
    rig.see();
    rig.open("b3");
    rig.round();
    let order = |rig: &Rig| -> Vec<String> { rig.copies().into_iter().map(|c| c.shard).collect() };
    assert_eq!(order(&rig), ["stream/d/s/0", "stream/d/s/1"], "equal class: by arrival");
    // b4 leaves the second shard with its leader alone; the source of neither copy is b4.
    rig.world.moving.get_mut(&shard(1)).unwrap().followers = vec![id("b4")];
    rig.world.brokers.get_mut(&id("b4")).unwrap().address = None;
    rig.see();
    let lines = rig.round();
    assert_eq!(rig.copy(1).class, "unavailable");
    assert_eq!(order(&rig)[0], "stream/d/s/1");
    let again = lines.iter().filter(|line| line.contains("order stream/d/s/0"));
    assert_eq!(again.count(), 0);
}

#[test]
fn a_drain_that_waited_a_minute_has_a_slot_and_a_tenth_while_repairs_never_end() {
    let mut rig = Rig::new(ONE);
    rig.leader_is_busy();
    rig.stage(0, "b4", MoveReason::Drain);
    rig.restore(1, &["b2"], "b3");
    rig.restore(2, &["b2"], "b3");
    rig.see();
    rig.open("b3");
    rig.open("b4");
    let shards = [(0, "b4", 1), (1, "b3", 0), (2, "b3", 0)];
    let first = carry(&mut rig, &shards, 59);
    assert_eq!(first[&0], 0, "strict until then");
    assert_eq!(rig.copy(0).limited_by, "under_replicated copies go first");
    carry(&mut rig, &shards, 2);
    let later = carry(&mut rig, &shards, 20);
    let all: u64 = later.values().sum();
    let part = later[&0] as f64 / all as f64;
    assert!((0.095..=0.105).contains(&part), "{part} of {all}");
    assert!(rig.copy(0).reserved);
    // It keeps its part until it ends, and no more than that.
    let much_later = carry(&mut rig, &shards, 120);
    let part = much_later[&0] as f64 / much_later.values().sum::<u64>() as f64;
    assert!((0.095..=0.105).contains(&part), "{part}");
}

#[test]
fn balance_stops_where_a_repair_is_queued_and_nowhere_else() {
    let mut rig = Rig::new(SLOTS);
    rig.leader_is_busy();
    rig.stage(0, "b3", MoveReason::Load);
    rig.stage(1, "b4", MoveReason::Load);
    rig.world.moving.get_mut(&shard(1)).unwrap().followers = vec![id("b3")];
    rig.following(1, "b3", 3);
    rig.see();
    rig.open("b3");
    rig.open("b4");
    rig.open("b1");
    rig.round();
    assert_eq!(rig.states().len(), 2);
    // b2 is read from for a repair of what b1 lost; b3 to b4 is not concerned.
    rig.restore(2, &["b2"], "b1");
    rig.see();
    let lines = rig.round();
    assert_eq!(Rig::granted(&lines, 0), 0);
    assert!(Rig::granted(&lines, 1) > 0 && Rig::granted(&lines, 2) > 0, "{lines:?}");
    assert_eq!(rig.copy(0).limited_by, "the repair of stream/d/s/2 at b2 goes first");
    // A repair that nobody could serve holds nothing up.
    rig.tell(Event::Closed { broker: id("b1"), session: 2 });
    let lines = rig.round();
    assert!(Rig::granted(&lines, 0) > 0, "{lines:?}");
}

#[test]
fn a_node_out_of_capacity_takes_part_in_no_balance_and_says_so() {
    let mut rig = Rig::new(SLOTS);
    rig.stage(0, "b3", MoveReason::Load);
    rig.stage(1, "b3", MoveReason::Drain);
    rig.see();
    rig.open("b3");
    // A law on a node that stays too slow whatever copies take.
    let mut law = evenkeel_throttle::Steady::new(100.0).unwrap();
    for second in 0..75 {
        rig.progress("b3", 0, 1, ("running", second, 1 << 30));
        let p99_ms = Some(250.0);
        let at_ms = second * 1000;
        let state = law.observe(Sample { at_ms, p99_ms, requests: 1000, queue: None, used: 1.0 });
        let status = NodeStatus {
            share: law.share(),
            state: state.as_str().to_owned(),
            p99_ms,
            ..NodeStatus::default()
        };
        rig.tell(Event::Status { broker: id("b3"), session: 0, status });
        (0..4).for_each(|_| drop(rig.round()));
    }
    assert_eq!(rig.copy(0).limited_by, "b3 is out of capacity");
    assert_eq!(rig.copy(1).state, "running");
    let limits = rig.engine.limits(rig.at);
    let limit = limits.iter().find(|limit| limit.broker == "b3").unwrap();
    assert!(limit.out_of_capacity && limit.floor_seconds >= 60, "{limit:?}");
    assert_eq!(limit.reason, "400.0 kB/s, latency");
    // An agent that has gone holds nothing up.
    rig.at += Duration::from_secs(10);
    rig.round();
    let limits = rig.engine.limits(rig.at);
    let limit = limits.iter().find(|limit| limit.broker == "b3").unwrap();
    assert_eq!((limit.out_of_capacity, limit.floor_seconds, limit.p99_ms), (false, 0, None));
    assert_ne!(rig.copy(0).limited_by, "b3 is out of capacity");
}

#[test]
fn a_preempted_copy_is_the_next_of_its_class_and_goes_on_where_it_was() {
    let mut rig = Rig::new(ONE);
    for (number, to) in [(0, "b3"), (1, "b3"), (2, "b3")] {
        rig.stage(number, to, MoveReason::Spread);
    }
    rig.see();
    rig.open("b3");
    rig.round();
    rig.progress("b3", 0, 0, ("running", 123_456, 9_000_000));
    rig.restore(3, &["b2"], "b3");
    rig.see();
    rig.round();
    assert_eq!(rig.copy(0).state, "paused");
    let places: Vec<u32> = (0..3).map(|n| rig.copy(n).place).collect();
    assert_eq!(places, [1, 2, 3]);
    rig.world.moving.remove(&shard(3));
    rig.see();
    let lines = rig.round();
    assert!(Rig::granted(&lines, 0) > 0, "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("order stream/d/s/0")), "{lines:?}");
    assert_eq!((rig.copy(0).state.as_str(), rig.copy(0).bytes_done), ("running", Some(123_456)));
}

#[test]
fn the_last_second_of_a_copy_is_not_preempted_for_a_slot() {
    let mut rig = Rig::new(ONE);
    rig.stage(0, "b3", MoveReason::Spread);
    rig.see();
    rig.open("b3");
    let mut done = 0;
    for _ in 0..40 {
        let lines = rig.round();
        done += Rig::granted(&lines, 0);
        rig.progress("b3", 0, 0, ("running", done, 700_000));
    }
    rig.restore(1, &["b2"], "b3");
    rig.see();
    rig.round();
    assert_eq!((rig.copy(0).state.as_str(), rig.copy(1).state.as_str()), ("running", "queued"));
    rig.progress("b3", 0, 0, ("running", done, 5_000_000));
    rig.round();
    assert_eq!((rig.copy(0).state.as_str(), rig.copy(1).state.as_str()), ("paused", "running"));
}

#[test]
fn routine_copies_with_equal_demand_get_equal_bytes() {
    let mut rig = Rig::new(Slots { cluster: 8, per_node: 4 });
    for number in 0..4 {
        rig.stage(number, if number < 2 { "b3" } else { "b4" }, MoveReason::Drain);
    }
    rig.see();
    rig.open("b3");
    rig.open("b4");
    let shards = [(0, "b3", 0), (1, "b3", 0), (2, "b4", 1), (3, "b4", 1)];
    let granted = carry(&mut rig, &shards, 10);
    let (sum, squares) = granted.values().fold((0.0, 0.0), |(sum, squares), bytes| {
        let bytes = *bytes as f64;
        (sum + bytes, squares + bytes * bytes)
    });
    let jain = sum * sum / (4.0 * squares);
    assert!(jain >= 0.999, "{jain}: {granted:?}");
}

#[test]
fn repairs_of_a_class_end_one_after_another_the_shortest_first() {
    let mut rig = Rig::new(Slots { cluster: 8, per_node: 2 });
    rig.leader_is_busy();
    rig.restore(0, &["b2"], "b3");
    rig.restore(1, &["b2"], "b4");
    rig.world.sizes.insert(shard(0), 9_000_000);
    rig.world.sizes.insert(shard(1), 3_000_000);
    rig.see();
    rig.open("b3");
    rig.open("b4");
    let lines: Vec<String> = (0..4).flat_map(|_| rig.round()).collect();
    assert_eq!(Rig::granted(&lines, 0), 0, "both are read from b2, and one is shorter");
    assert!(Rig::granted(&lines, 1) > 1_000_000);
}
