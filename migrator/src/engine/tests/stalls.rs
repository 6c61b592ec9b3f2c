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
    assert_eq!((copy.failures, copy.bytes_done), (1, 100));
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
    let mut rig = drain();
    rig.world.limits.insert(id("b2"), 0);
    rig.see();
    assert!(seconds(&mut rig, 50).is_empty(), "nothing is granted");
    let mut rig = drain();
    rig.tell(Event::Closed { broker: id("b3"), session: 0 });
    let lines: Vec<String> = (0..200).flat_map(|_| rig.round()).collect();
    assert!(orders(lines).is_empty(), "nobody is there to be asked");
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
        assert_eq!((rig.copy(0).state.as_str(), rig.copy(0).bytes_done), ("running", 100));
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
