//! What an operator's pause holds, and what it does not.

use evenkeel_model::{CopyPauseRecord, PauseScope};

use super::*;

/// At the rig's wall clock, which starts at 1 000 000.
fn pause(rig: &mut Rig, scope: &str, until_ms: Option<i64>) {
    let scope: PauseScope = scope.parse().unwrap();
    let record = CopyPauseRecord {
        v: 1,
        scope: scope.clone(),
        by: "ann".to_owned(),
        reason: "rack work".to_owned(),
        at_ms: 1_000_000,
        until_ms,
    };
    rig.world.pauses.insert(scope, record);
    rig.see();
}

fn running(rig: &Rig) -> Vec<u32> {
    (0..3).filter(|n| rig.copy(*n).state == "running").collect()
}

/// A drain, a balance move and a restore, all under way to `b3` and `b4`.
fn three() -> Rig {
    let mut rig = Rig::new(Slots { cluster: 8, per_node: 4 });
    rig.stage(0, "b3", MoveReason::Drain);
    rig.stage(1, "b4", MoveReason::Load);
    rig.world.moving.get_mut(&shard(1)).unwrap().followers = vec![id("b3")];
    rig.following(1, "b3", 3);
    rig.restore(2, &["b2"], "b2");
    let assignment = rig.world.moving.get_mut(&shard(2)).unwrap();
    assignment.followers.clear();
    rig.world.reports.remove(&(shard(2), id("b2")));
    rig.see();
    for broker in ["b2", "b3", "b4"] {
        rig.open(broker);
    }
    rig.round();
    rig.progress("b3", 1, 0, ("running", 5_000, 70_000_000));
    assert_eq!(running(&rig), [0, 1, 2]);
    rig
}

#[test]
fn a_pause_of_a_class_stops_its_grants_and_orders_and_keeps_what_is_there() {
    let mut rig = three();
    pause(&mut rig, "class/drain", None);
    let lines = rig.round();
    assert_eq!((Rig::granted(&lines, 0), running(&rig)), (0, vec![1, 2]));
    assert!(!lines.iter().any(|line| line.contains("cancel")), "{lines:?}");
    let copy = rig.copy(0);
    assert_eq!((copy.state.as_str(), copy.bytes_done), ("held", Some(5_000)));
    assert_eq!(copy.limited_by, "ann paused it: rack work");
    assert_eq!((copy.eta, copy.stalled), (None, None));
    // For as long as it lasts nothing stalls and nothing fails.
    for _ in 0..400 {
        let lines = rig.round();
        assert!(!lines.iter().any(|l| l.contains("stream/d/s/0") && !l.starts_with("write")));
    }
    rig.world.pauses.clear();
    rig.see();
    let lines = rig.round();
    assert!(Rig::granted(&lines, 0) > 0, "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("order stream/d/s/0")), "it has its order");
    assert_eq!((rig.copy(0).state.as_str(), rig.copy(0).bytes_done), ("running", Some(5_000)));
    assert!(!rig.copy(0).reserved, "a pause of more than a minute is no wait");
}

#[test]
fn a_pause_of_a_shard_holds_that_shard_and_ends_by_itself() {
    let mut rig = three();
    let until_ms = 1_000_000 + rig.at.as_millis() as i64 + 1_000;
    pause(&mut rig, "shard/stream/d/s/2", Some(until_ms));
    rig.round();
    assert_eq!(running(&rig), [0, 1]);
    let page = rig
        .engine
        .page(Now { at: rig.at, wall_ms: until_ms - 1 }, &Page { size: 10, ..Page::default() });
    assert_eq!(page.pauses.len(), 1);
    (0..4).for_each(|_| drop(rig.round()));
    assert_eq!(running(&rig), [0, 1, 2]);
    let page = rig
        .engine
        .page(Now { at: rig.at, wall_ms: until_ms }, &Page { size: 10, ..Page::default() });
    assert_eq!(page.pauses, []);
}

#[test]
fn a_held_repair_holds_no_balance_up_and_a_record_says_that_it_waits() {
    let mut rig = three();
    rig.stage(1, "b2", MoveReason::Load);
    rig.world.moving.get_mut(&shard(1)).unwrap().followers = vec![id("b3")];
    rig.world.reports.remove(&(shard(1), id("b2")));
    rig.see();
    rig.round();
    assert_eq!(rig.copy(1).limited_by, "the repair of stream/d/s/2 at b2 goes first");
    pause(&mut rig, "class/last_copy", None);
    pause(&mut rig, "class/under_replicated", None);
    let wall_ms = 1_000_000 + rig.at.as_millis() as i64;
    rig.at += Duration::from_secs(6);
    let actions = rig.engine.on_event(Now { at: rig.at, wall_ms }, Event::Round);
    assert_eq!(running(&rig), [0, 1]);
    let waits: Vec<(u32, bool)> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Write(record) => Some((record.shard.number, record.waits)),
            _ => None,
        })
        .collect();
    assert!(waits.contains(&(2, true)), "{waits:?}");
    assert!(!waits.contains(&(0, true)), "{waits:?}");
}

#[test]
fn a_fenced_move_is_no_copy_and_no_pause_touches_it() {
    let mut rig = three();
    pause(&mut rig, "class/drain", None);
    rig.world.moving.get_mut(&shard(0)).unwrap().state = ShardState::Draining;
    let lines = rig.see();
    assert_eq!(lines, ["1 <- cancel stream/d/s/0 g3", "remove stream/d/s/0"]);
    assert!(rig.copies().iter().all(|copy| copy.shard != "stream/d/s/0"));
}

#[test]
fn pages_follow_each_other_and_every_class_has_its_sum() {
    let mut rig = three();
    let now = Now { at: rig.at, wall_ms: 1_000_000 };
    let mut page = Page { size: 2, ..Page::default() };
    let first = rig.engine.page(now, &page);
    let shards = |answer: &evenkeel_proto::migrations::ListMigrationsResponse| -> Vec<String> {
        answer.migrations.iter().map(|m| m.class.clone()).collect()
    };
    assert_eq!(shards(&first), ["last_copy", "drain"]);
    page.after = Some(first.next_page_token.parse().unwrap());
    let second = rig.engine.page(now, &page);
    assert_eq!((shards(&second), second.next_page_token.as_str()), (vec!["balance".into()], ""));
    let classes: Vec<(&str, u32, u32)> =
        first.classes.iter().map(|c| (c.class.as_str(), c.running, c.queued)).collect();
    assert_eq!(classes, [("last_copy", 1, 0), ("drain", 1, 0), ("balance", 1, 0)]);
    assert!(first.classes.iter().all(|class| class.eta.is_none()), "nothing has moved yet");
    page = Page { size: 9, after: None, class: Some(evenkeel_model::CopyClass::Drain) };
    assert_eq!(shards(&rig.engine.page(now, &page)), ["drain"]);
    rig.world.moving.clear();
    rig.see();
    assert_eq!(rig.engine.page(now, &page).migrations, []);
}

#[test]
fn a_pause_of_maintenance_is_told_to_every_agent_once_a_second() {
    let mut rig = Rig::new(SLOTS);
    rig.see();
    rig.open("b1");
    rig.open("b3");
    pause(&mut rig, "class/maintenance", Some(1_002_100));
    let lines: Vec<String> = (0..16).flat_map(|_| rig.round()).collect();
    // At 0.25 s, 1.25 s; at 2.25 s it is over.
    let both = ["0 <- hold for 3000 ms", "1 <- hold for 3000 ms"];
    assert_eq!(lines, [both, both].concat());
}
