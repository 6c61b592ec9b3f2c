//! Copies that stand still, and words that come too late.

use super::*;

fn orders(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().filter(|l| l.contains("order") || l.contains("cancel")).collect()
}

/// A drain from `b2` to `b3` that has 50 MB to go.
fn drain() -> Rig {
    let mut rig = Rig::new(SLOTS);
    rig.stage(0, "b3", MoveReason::Drain);
    rig.see();
    rig.open("b3");
    rig.round();
    rig.progress("b3", 0, 0, ("running", 100, 50_000_000));
    rig
}

fn seconds(rig: &mut Rig, seconds: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for _ in 0..seconds * 4 {
        rig.progress("b3", 0, 0, ("running", 100, 50_000_000));
        lines.extend(rig.round());
    }
    orders(lines)
}

#[test]
fn without_a_byte_for_too_long_a_copy_is_told_stalled_and_another_source_is_tried() {
    let mut rig = drain();
    assert!(seconds(&mut rig, 29).is_empty());
    let copy = rig.copy(0);
    assert_eq!(copy.stalled.as_deref(), Some("no byte verified for 28 s"));
    assert_eq!((copy.eta, copy.state.as_str()), (None, "running"));
    let lines = seconds(&mut rig, 3);
    assert_eq!(
        lines,
        [
            "0 <- cancel stream/d/s/0 g3",
            "0 <- order stream/d/s/0 g3 drain from b1 at h1:1 token 66",
        ]
    );
    let copy = rig.copy(0);
    assert_eq!((copy.failures, copy.bytes_done), (1, Some(100)));
    assert_eq!(copy.last_failure, "stalled: no byte verified for 30 s from b2");
    let shown = rig.engine.show(Now { at: rig.at, wall_ms: 0 }, &shard(0)).unwrap();
    let why =
        "the leader, for want of a caught-up follower that serves; the last try from b2 failed";
    assert_eq!(shown.source_reason, why);
}

#[test]
fn a_copy_that_moves_has_no_limit_of_time() {
    let mut rig = drain();
    for second in 0..3600 {
        rig.progress("b3", 0, 0, ("running", 101 + second, 50_000_000));
        let lines: Vec<String> = (0..4).flat_map(|_| rig.round()).collect();
        assert!(orders(lines).is_empty(), "at {second} s");
    }
}

#[test]
fn verification_starvation_and_silence_are_no_stalls() {
    let mut rig = drain();
    for _ in 0..200 {
        rig.progress("b3", 0, 0, ("running", 200, 0));
        assert!(orders(rig.round()).is_empty(), "what is left is to verify it");
    }
    // What came to light meanwhile has its own time.
    rig.progress("b3", 0, 0, ("running", 200, 70_000));
    assert!(orders(rig.round()).is_empty());
    let mut rig = drain();
    rig.world.limits.extend([(id("b1"), 0), (id("b2"), 0)]);
    rig.see();
    assert!(seconds(&mut rig, 50).is_empty(), "nothing is granted");
    let mut rig = drain();
    rig.tell(Event::Closed { broker: id("b3"), session: 0 });
    let lines: Vec<String> = (0..200).flat_map(|_| rig.round()).collect();
    assert!(orders(lines).is_empty(), "nobody is there to be asked");
}

#[test]
fn a_comparison_takes_a_chunk_at_most_and_its_record_is_kept_while_its_agent_speaks() {
    let mut rig = drain();
    rig.progress("b3", 0, 0, ("running", 200, 0));
    // What was granted before runs out.
    (0..4).for_each(|_| drop(rig.round()));
    let compare = |rig: &mut Rig, speaks: bool| {
        let (mut granted, mut written) = (0, 0);
        for _ in 0..480 {
            if speaks {
                rig.progress("b3", 0, 0, ("running", 200, 0));
            }
            let lines = rig.round();
            granted += Rig::granted(&lines, 0);
            written += lines.iter().filter(|line| line.starts_with("write")).count();
        }
        (granted, written)
    };
    let (granted, written) = compare(&mut rig, true);
    assert!((1..=240 * 65_536).contains(&granted), "{granted}: a chunk each two rounds");
    assert!((23..=25).contains(&written), "{written} in two minutes");
    assert!(!rig.copy(0).reserved, "it waits for nothing");
    let (_, written) = compare(&mut rig, false);
    assert!(written <= 2, "{written} of an agent that says nothing");
}

#[test]
fn the_pause_after_a_failure_is_no_wait() {
    let mut rig = drain();
    for _ in 0..70 {
        rig.progress("b3", 0, 0, ("failed", 100, 50_000_000));
        (0..5).for_each(|_| drop(rig.round()));
        rig.progress("b3", 0, 0, ("running", 100, 50_000_000));
    }
    assert!(rig.copy(0).failures >= 5 && !rig.copy(0).reserved);
    rig.world.limits.insert(id("b3"), 0);
    rig.see();
    // The last pause after a failure takes up to half a minute of it.
    seconds(&mut rig, 95);
    assert!(rig.copy(0).reserved, "without a byte for a minute");
}

#[test]
fn an_agent_that_says_impossible_numbers_breaks_no_sum() {
    let mut rig = drain();
    rig.stage(1, "b3", MoveReason::Drain);
    rig.see();
    for verified in [u64::MAX, 0, u64::MAX, 5] {
        for number in [0, 1] {
            rig.progress("b3", 0, number, ("running", verified, u64::MAX));
        }
        rig.round();
    }
    assert_eq!((rig.copy(0).bytes_done, rig.copy(0).bytes_total), (Some(u64::MAX), Some(u64::MAX)));
}

#[test]
fn a_word_about_another_generation_changes_nothing() {
    let mut rig = drain();
    for (generation, state) in [(2, "failed"), (2, "level"), (4, "failed"), (4, "level")] {
        let progress = CopyProgress {
            shard: shard(0).to_string(),
            generation,
            state: state.to_owned(),
            bytes_verified: 77_000_000,
            ..CopyProgress::default()
        };
        let told = Event::Progress { broker: id("b3"), session: 0, progress };
        assert!(rig.tell(told).is_empty());
        assert_eq!((rig.copy(0).state.as_str(), rig.copy(0).bytes_done), ("running", Some(100)));
    }
}

#[test]
fn an_older_life_of_an_agent_does_not_displace_a_newer_one_that_is_there() {
    let mut rig = Rig::new(SLOTS);
    rig.see();
    rig.open("b3");
    assert!(rig.engine.admits(&id("b3"), 1) && rig.engine.admits(&id("b3"), 2));
    assert!(!rig.engine.admits(&id("b3"), 0));
    rig.tell(Event::Closed { broker: id("b3"), session: 0 });
    assert!(rig.engine.admits(&id("b3"), 0), "its disk may have been replaced");
}

/// Every source is tried in turn, the leader too, and the record tells since when no byte came.
#[test]
fn a_copy_that_only_fails_tries_every_source_and_does_not_seem_to_get_on() {
    let mut rig = Rig::new(SLOTS);
    rig.stage(0, "b3", MoveReason::Drain);
    rig.second_follower(0, "b4");
    rig.see();
    rig.open("b3");
    let (mut sources, mut last) = (std::collections::BTreeSet::new(), None);
    for _ in 0..240 {
        let now = Now { at: rig.at, wall_ms: rig.at.as_millis() as Millis };
        for action in rig.engine.on_event(now, Event::Round) {
            match action {
                Action::Send { message: Message::Order(order), .. } => {
                    sources.insert(order.source);
                    rig.progress("b3", 0, 0, ("failed", 0, 50_000_000));
                }
                Action::Write(record) => last = Some((record.at_ms, now.wall_ms)),
                _ => {}
            }
        }
        rig.at += Duration::from_millis(250);
    }
    assert_eq!(sources.into_iter().collect::<Vec<_>>(), ["b1", "b2", "b4"]);
    let (got_on, written) = last.unwrap();
    assert!(written > 20_000 && got_on < 1_000, "at {written} it says that it got on at {got_on}");
}

#[test]
fn a_broker_that_is_gone_keeps_the_link_that_it_had() {
    let mut rig = Rig::new(SLOTS);
    rig.see();
    let link = |rig: &Rig| {
        let limits = rig.engine.limits(rig.at);
        limits.iter().find(|l| l.broker == "b1").map(|l| l.link_bytes_per_second)
    };
    let before = link(&rig);
    let broker = rig.world.brokers.get_mut(&id("b1")).unwrap();
    (broker.address, broker.link_bytes_per_second) = (None, 125_000_000);
    rig.see();
    assert_eq!((before, link(&rig)), (Some(8_000_000), Some(8_000_000)));
}
