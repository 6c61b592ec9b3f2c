use evenkeel_model::{Lifecycle, Move, ShardReport};

use super::*;
use crate::world::Broker;

fn id(name: &str) -> BrokerId {
    name.parse().unwrap()
}

fn shard() -> ShardKey {
    "stream/d/s/0".parse().unwrap()
}

/// `b1` to `b5`, all live; the shard is led by `b1`.
fn world(followers: &[&str], reason: Option<MoveReason>) -> World {
    let followers = followers.iter().map(|f| id(f)).collect();
    let mut assignment = Assignment::new(shard(), id("b1"), followers);
    assignment.state = ShardState::Active;
    assignment.generation = 7;
    assignment.move_ = reason.map(|reason| Move {
        reason,
        started_at_ms: 0,
        fenced_at_ms: None,
        progress_at_ms: None,
        give_ups: 0,
        next_try_ms: None,
    });
    let mut world = World::default();
    world.moving.insert(shard(), assignment);
    world.tokens.insert(shard(), 9);
    for n in 1..=5 {
        let broker = Broker {
            lifecycle: Lifecycle::Live,
            address: Some(format!("h:{n}")),
            link_bytes_per_second: 100,
        };
        world.brokers.insert(id(&format!("b{n}")), broker);
    }
    world
}

fn assignment(world: &mut World) -> &mut Assignment {
    world.moving.get_mut(&shard()).unwrap()
}

fn down(world: &mut World, broker: &str) {
    let broker = world.brokers.get_mut(&id(broker)).unwrap();
    broker.lifecycle = Lifecycle::Down;
    broker.address = None;
}

fn report(world: &mut World, broker: &str, phase: Phase, caught_up: bool) {
    let report = ShardReport {
        broker: id(broker),
        shard: shard(),
        generation: 7,
        phase: Some(phase),
        caught_up,
        lag_records: None,
        drained: false,
        halted: None,
        log_end: None,
        declined: false,
    };
    world.reports.insert((shard(), id(broker)), report);
}

fn class_of(world: &World) -> Option<CopyClass> {
    derive(world).get(&shard()).map(|job| job.class)
}

#[test]
fn a_staged_move_is_a_job_until_the_destination_is_level_or_the_leader_fenced() {
    let mut world = world(&["b2", "b3"], Some(MoveReason::Drain));
    assert_eq!(derive(&world), BTreeMap::new(), "nobody is named");
    assignment(&mut world).successor = Some(id("b4"));
    world.sizes.insert(shard(), 5000);
    report(&mut world, "b2", Phase::Following, false);
    report(&mut world, "b3", Phase::Following, true);
    let expected = Job {
        shard: shard(),
        generation: 7,
        token: 9,
        class: CopyClass::Drain,
        class_reason: "a move for drain".to_owned(),
        destination: id("b4"),
        sources: vec![id("b3"), id("b1"), id("b2")],
        behind: 1,
        leader: Some(id("b1")),
        size_bytes: Some(5000),
    };
    assert_eq!(derive(&world), BTreeMap::from([(shard(), expected)]));

    let mut level = world.clone();
    report(&mut level, "b4", Phase::Copying, true);
    assert_eq!(derive(&level), BTreeMap::new());
    let mut fenced = world.clone();
    assignment(&mut fenced).state = ShardState::Draining;
    assert_eq!(derive(&fenced), BTreeMap::new());
    assignment(&mut world).successor = Some(id("b2"));
    assert_eq!(derive(&world), BTreeMap::new(), "a follower has its copy");
}

#[test]
fn a_lost_broker_is_no_source() {
    let mut world = world(&["b2", "b3"], None);
    assignment(&mut world).joining = Some(id("b4"));
    report(&mut world, "b2", Phase::Following, true);
    down(&mut world, "b2");
    assert_eq!(derive(&world)[&shard()].sources, [id("b1"), id("b3")]);
}

#[test]
fn the_class_of_a_repair_is_what_is_left_of_the_shard() {
    let mut world = world(&["b2", "b3", "b4"], Some(MoveReason::Restore));
    assignment(&mut world).joining = Some(id("b5"));
    assignment(&mut world).leaving = Some(id("b4"));
    down(&mut world, "b4");
    assert_eq!(class_of(&world), Some(CopyClass::UnderReplicated));
    down(&mut world, "b3");
    assert_eq!(class_of(&world), Some(CopyClass::Unavailable), "2 of 4 commit nothing");

    let mut short = self::world(&[], Some(MoveReason::Restore));
    assignment(&mut short).joining = Some(id("b2"));
    assert_eq!(class_of(&short), Some(CopyClass::LastCopy), "one replica, and another wanted");
}

#[test]
fn a_replica_that_halted_is_neither_live_nor_a_source() {
    let mut world = world(&["b2", "b3"], Some(MoveReason::Restore));
    assignment(&mut world).joining = Some(id("b4"));
    assignment(&mut world).leaving = Some(id("b3"));
    world.halted.insert((shard(), id("b3")));
    let job = &derive(&world)[&shard()];
    assert_eq!((job.class, job.class_reason.as_str()), {
        (CopyClass::UnderReplicated, "2 of 3 replicas are live: short of its target")
    });
    assert_eq!(job.sources, [id("b1"), id("b2")]);
    world.halted.insert((shard(), id("b2")));
    assert_eq!(class_of(&world), Some(CopyClass::Unavailable), "1 of 3 commits nothing");
    assert_eq!(derive(&world)[&shard()].sources, [id("b1")]);
}

#[test]
fn the_class_of_a_move_is_its_reason_unless_it_also_repairs() {
    for (reason, class) in [
        (MoveReason::Drain, CopyClass::Drain),
        (MoveReason::Spread, CopyClass::Spread),
        (MoveReason::StreamBalance, CopyClass::Balance),
        (MoveReason::TotalBalance, CopyClass::Balance),
        (MoveReason::Load, CopyClass::Balance),
        (MoveReason::Operator, CopyClass::Balance),
        (MoveReason::Restore, CopyClass::UnderReplicated),
    ] {
        let mut world = world(&["b2", "b3"], Some(reason));
        assignment(&mut world).joining = Some(id("b4"));
        assignment(&mut world).leaving = Some(id("b3"));
        assert_eq!(class_of(&world), Some(class), "{reason:?}");
        down(&mut world, "b3");
        assert_eq!(class_of(&world), Some(CopyClass::UnderReplicated), "{reason:?}");
    }
    // A single-replica stream is not short of replicas: moving its leader is a move.
    let mut single = world(&[], Some(MoveReason::StreamBalance));
    assignment(&mut single).successor = Some(id("b2"));
    assert_eq!(class_of(&single), Some(CopyClass::Balance));
}
