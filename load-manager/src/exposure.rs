//! How exposed the data is: shards with fewer live replicas than they should have, by how near they
//! are to being lost, and for how long.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_model::{BrokerId, CopyClass, ShardKey, Snapshot};
use tokio::time::Instant;

use crate::metrics as declared;

/// The classes of exposure, the gravest first; those of the copies that end it.
pub(crate) const CLASSES: [CopyClass; 3] =
    [CopyClass::Unavailable, CopyClass::LastCopy, CopyClass::UnderReplicated];

/// Shards below their replica target, by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Exposed([u32; 3]);

impl Exposed {
    /// Counts them. A shard is unavailable when half of its replicas or more are gone or have
    /// halted, so that nothing can be committed.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let serves = |broker| snapshot.brokers.get(broker).is_some_and(|b| b.is_serving());
        let halted = halted(snapshot);
        let mut exposed = Self::default();
        for assignment in snapshot.assignments.values() {
            let Some(stream) = snapshot.streams.get(&assignment.shard.stream) else { continue };
            let voters = assignment.voters().count();
            let shard = &assignment.shard;
            let serving = assignment.voters().filter(|broker| serves(broker));
            let live = serving.filter(|broker| !halted.contains(&(shard, *broker))).count();
            if live >= stream.replication_factor as usize {
                continue;
            }
            let class = CopyClass::of_loss(voters, live);
            if let Some(at) = CLASSES.iter().position(|known| *known == class) {
                exposed.0[at] += 1;
            }
        }
        exposed
    }

    /// Each class with its shards.
    pub(crate) fn by_class(self) -> impl Iterator<Item = (CopyClass, u32)> {
        CLASSES.into_iter().zip(self.0)
    }

    fn any(self) -> u32 {
        self.0.iter().sum()
    }
}

/// Replicas that halted. They are few, and most often none.
fn halted(snapshot: &Snapshot) -> BTreeSet<(&ShardKey, &BrokerId)> {
    let told = snapshot.reports.values().flatten().filter(|r| r.halted_because().is_some());
    let named = told.map(|r| (&r.shard, &r.broker));
    named.filter(|(shard, broker)| snapshot.halted(shard, broker).is_some()).collect()
}

/// What has passed since the last look, in whole seconds; the rest is kept for the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Whole(Duration);

impl Whole {
    fn add(&mut self, span: Duration) -> u64 {
        self.0 += span;
        let seconds = self.0.as_secs();
        self.0 -= Duration::from_secs(seconds);
        seconds
    }
}

/// Time and shard-seconds of exposure, counted up.
#[derive(Debug, Default)]
pub(crate) struct Exposure {
    since: Option<Instant>,
    exposed: Exposed,
    time: [Whole; 4],
    shard_time: [Whole; 4],
}

/// Whole seconds to add to the counters: of the three classes, then of any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    /// While at least one shard was exposed.
    pub(crate) seconds: [u64; 4],
    /// Summed over shards.
    pub(crate) shard_seconds: [u64; 4],
}

impl Exposure {
    /// Since the last look as many shards were exposed as were found then.
    pub(crate) fn look(&mut self, now: Instant, exposed: Exposed) {
        declared::exposed(&self.passed(now, exposed), exposed);
    }

    fn passed(&mut self, now: Instant, exposed: Exposed) -> Passed {
        let span = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let [unavailable, last_copy, short] = self.exposed.0;
        let shards = [unavailable, last_copy, short, self.exposed.any()];
        let mut passed = Passed::default();
        for (at, shards) in shards.into_iter().enumerate() {
            let time = if shards > 0 { span } else { Duration::ZERO };
            passed.seconds[at] = self.time[at].add(time);
            passed.shard_seconds[at] = self.shard_time[at].add(span * shards);
        }
        (self.since, self.exposed) = (Some(now), exposed);
        passed
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_model::{Assignment, BrokerView, Lifecycle, ShardReport, Stream};

    use super::*;

    fn snapshot(live: &[&str], sets: &[&[&str]], factor: u32) -> Snapshot {
        let mut snapshot = Snapshot::empty(0);
        for name in ["b1", "b2", "b3", "b4"] {
            let mut broker = BrokerView::live(0);
            if !live.contains(&name) {
                broker.lifecycle = Lifecycle::Down;
                broker.registered = false;
            }
            snapshot.brokers.insert(name.parse().unwrap(), broker);
        }
        let stream = Stream { shards: 9, ..stream_of(factor) };
        snapshot.streams.insert(stream.stream.clone(), stream);
        for (n, set) in sets.iter().enumerate() {
            let shard: ShardKey = format!("stream/d/s/{n}").parse().unwrap();
            let mut set = set.iter().map(|b| b.parse().unwrap());
            let leader = set.next().unwrap();
            let assignment = Assignment::new(shard.clone(), leader, set.collect());
            snapshot.assignments.insert(shard, assignment);
        }
        snapshot
    }

    fn stream_of(factor: u32) -> Stream {
        let text = format!(r#"{{"stream":"stream/d/s","shards":1,"replication_factor":{factor}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn shards_are_exposed_by_how_many_replicas_live() {
        let sets: [&[&str]; 5] = [
            &["b1", "b2", "b3"],
            &["b1", "b3", "b4"],
            &["b3", "b4", "b1"],
            &["b1", "b2", "b4"],
            &["b1"],
        ];
        let of = |live: &[&str], factor| Exposed::of(&snapshot(live, &sets, factor)).0;
        assert_eq!(of(&["b1", "b2", "b3", "b4"], 3), [0, 1, 0], "the last has one of three");
        assert_eq!(of(&["b1", "b2", "b3"], 3), [0, 1, 3]);
        assert_eq!(of(&["b1", "b2"], 3), [2, 1, 2]);
        assert_eq!(of(&["b1", "b2", "b3", "b4"], 1), [0, 0, 0]);
        assert_eq!(of(&[], 1), [5, 0, 0]);
    }

    #[test]
    fn a_replica_that_halted_is_not_a_live_one() {
        let mut snapshot = snapshot(&["b1", "b2", "b3"], &[&["b1", "b2", "b3"]], 3);
        let mut say = |broker: &str, generation: u64, phase: &str| {
            let text = format!(
                r#"{{"broker":"{broker}","shard":"stream/d/s/0","generation":{generation},
                "phase":"{phase}"}}"#
            );
            let report: ShardReport = serde_json::from_str(&text).unwrap();
            snapshot.reports.entry(report.shard.clone()).or_default().push(report);
            Exposed::of(&snapshot).0
        };
        assert_eq!(say("b3", 1, "following"), [0, 0, 0]);
        assert_eq!(say("b3", 2, "halted"), [0, 0, 1], "its latest word");
        assert_eq!(say("b2", 1, "halted"), [1, 0, 0]);
        assert_eq!(say("b3", 3, "following"), [0, 0, 1], "it was mended");
    }

    #[test]
    fn seconds_are_counted_while_any_shard_is_exposed_and_shard_seconds_for_each() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut exposure = Exposure::default();
        assert_eq!(exposure.passed(at(0), Exposed([0, 2, 3])), Passed::default());
        let passed = exposure.passed(at(1_500), Exposed([1, 0, 0]));
        assert_eq!((passed.seconds, passed.shard_seconds), ([0, 1, 1, 1], [0, 3, 4, 7]));
        let passed = exposure.passed(at(2_500), Exposed([0, 0, 0]));
        assert_eq!(passed.seconds, [1, 0, 0, 1]);
        // Half a shard-second each was left over of the class and of all.
        assert_eq!(passed.shard_seconds, [1, 0, 0, 1]);
        let passed = exposure.passed(at(9_000), Exposed([0, 0, 1]));
        assert_eq!(passed, Passed::default(), "nothing was exposed");
        let passed = exposure.passed(at(9_600), Exposed([0, 0, 0]));
        assert_eq!((passed.seconds[2], passed.seconds[3]), (1, 1), "with the half from before");
    }

    #[test]
    fn the_counters_and_the_gauge_are_what_a_scraper_reads() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let start = Instant::now();
        metrics::with_local_recorder(&recorder, || {
            let mut exposure = Exposure::default();
            exposure.look(start, Exposed([0, 2, 3]));
            exposure.look(start + Duration::from_secs(60), Exposed([1, 0, 4]));
        });
        let text = recorder.handle().render();
        for line in [
            "evenkeel_exposed_seconds_total{class=\"last_copy\"} 60",
            "evenkeel_exposed_seconds_total{class=\"unavailable\"} 0",
            "evenkeel_exposed_seconds_total{class=\"any\"} 60",
            "evenkeel_exposed_shard_seconds_total{class=\"under_replicated\"} 180",
            "evenkeel_under_replicated_shard_seconds_total 300",
            "evenkeel_shards_exposed{class=\"unavailable\"} 1",
            "evenkeel_shards_exposed{class=\"under_replicated\"} 4",
        ] {
            assert!(text.lines().any(|told| told == line), "{line} in\n{text}");
        }
    }
}
