//! What a migrator tells of copies that were there before it was elected.

use super::*;

/// A drain to `b3` that another migrator had begun, with the size that its leader tells.
fn taken_over(size: Option<u64>) -> Rig {
    let mut rig = Rig::elected(SLOTS);
    rig.stage(0, "b3", MoveReason::Drain);
    rig.world.sizes.extend(size.map(|size| (shard(0), size)));
    rig.see();
    rig
}

fn figures(rig: &Rig) -> (Option<u64>, Option<u64>) {
    let copy = rig.copy(0);
    (copy.bytes_done, copy.bytes_total)
}

fn counted(rig: &mut Rig, word: (&str, u64, u64)) -> u64 {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    ::metrics::with_local_recorder(&recorder, || rig.progress("b3", 0, 0, word));
    let text = handle.render();
    let line = text.lines().find(|line| line.starts_with("evenkeel_copy_bytes_total"));
    line.and_then(|line| line.rsplit(' ').next()).map_or(0, |bytes| bytes.parse().unwrap())
}

#[test]
fn what_others_counted_is_shown_and_written_and_not_counted_again() {
    let mut rig = taken_over(Some(10_000_000));
    rig.open("b3");
    let lines = rig.round();
    assert!(!lines.iter().any(|line| line.starts_with("write")), "nothing is known: {lines:?}");
    assert_eq!(figures(&rig), (None, Some(10_000_000)));
    // The present try brought three millions, an earlier one two.
    assert_eq!(counted(&mut rig, ("running", 3_000_000, 5_000_000)), 0);
    assert_eq!(figures(&rig), (Some(5_000_000), Some(10_000_000)));
    let lines = rig.round();
    let written = "write stream/d/s/0 drain b2 -> b3 5000000/10000000".to_owned();
    assert!(lines.contains(&written), "{lines:?}");
    assert_eq!(counted(&mut rig, ("running", 3_500_000, 4_500_000)), 500_000);
    assert_eq!(figures(&rig), (Some(5_500_000), Some(10_000_000)));
}

#[test]
fn a_destination_that_says_nothing_is_recorded_after_a_moment() {
    let mut rig = taken_over(None);
    let lines: Vec<String> = (0..8).flat_map(|_| rig.round()).collect();
    assert_eq!(lines, ["write stream/d/s/0 drain b2 -> b3 0/0"]);
    assert_eq!(figures(&rig), (None, None));
}

#[test]
fn a_size_that_nobody_has_told_is_not_called_nothing() {
    let mut rig = Rig::new(SLOTS);
    rig.stage(0, "b3", MoveReason::Drain);
    rig.see();
    rig.open("b3");
    rig.round();
    let opened = CopyProgress {
        shard: shard(0).to_string(),
        generation: 3,
        state: "running".to_owned(),
        size_unknown: true,
        ..CopyProgress::default()
    };
    rig.tell(Event::Progress { broker: id("b3"), session: 0, progress: opened.clone() });
    // It goes on at the whole rate, and not as one of which nothing is left.
    assert_eq!(Rig::granted(&rig.round(), 0), 400_000);
    assert_eq!((figures(&rig), rig.copy(0).eta), ((Some(0), None), None));
    let page =
        rig.engine.page(Now { at: rig.at, wall_ms: 0 }, &Page { size: 9, ..Page::default() });
    assert_eq!((page.classes[0].unknown_size, page.classes[0].eta), (1, None));
    let verified = CopyProgress { bytes_verified: 50, ..opened };
    rig.tell(Event::Progress { broker: id("b3"), session: 0, progress: verified });
    let lines: Vec<String> = (0..24).flat_map(|_| rig.round()).collect();
    let record = "write stream/d/s/0 drain b2 -> b3 50/0".to_owned();
    assert!(lines.contains(&record), "{lines:?}");
    rig.progress("b3", 0, 0, ("running", 100, 900));
    assert_eq!(figures(&rig), (Some(100), Some(1000)));
}
