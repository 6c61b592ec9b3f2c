//! Committed records survive every schedule of crashes, losses and set changes that the planner's
//! rules allow.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::Cluster;
use cluster::choices::Choices;
use proptest::prelude::*;

fn run(choices: Choices, steps: usize, joint_counting: bool) -> (Result<(), String>, Cluster) {
    let mut cluster = Cluster::new(choices, joint_counting);
    let verdict = cluster.run(steps);
    (verdict, cluster)
}

fn explain(cluster: &Cluster, error: &str) -> String {
    let writes = cluster.planner.writes.join("\n");
    let trace = cluster.trace.join("\n");
    format!("{error}\nwrites:\n{writes}\nnotes:\n{trace}")
}

#[test]
fn committed_records_survive_seeded_schedules() {
    let seeds: u64 = 200;
    let (mut writes, mut acknowledged, mut restarted, mut given_up) = (0, 0, 0, 0);
    for seed in 0..seeds {
        let (verdict, cluster) = run(Choices::seeded(seed), 3000, true);
        if let Err(error) = verdict {
            panic!("seed {seed}: {}", explain(&cluster, &error));
        }
        writes += cluster.planner.writes.len();
        acknowledged += cluster.acknowledged_records();
        given_up += usize::from(cluster.begins_at() > 0);
        restarted += cluster.trace.iter().filter(|note| note.contains("begins anew")).count();
    }
    // The schedules must do something, or the test proves nothing.
    assert!(writes as u64 > 5 * seeds, "{writes} writes");
    assert!(acknowledged as u64 > 30 * seeds, "{acknowledged} acknowledged");
    assert!(given_up as u64 > seeds / 2, "{given_up} logs begin later");
    assert!(restarted as u64 > seeds / 10, "{restarted} logs began anew");
}

fn compacting(choices: Choices, steps: usize) -> (Result<(), String>, Cluster) {
    let mut cluster = Cluster::new(choices, true);
    cluster.compacts = true;
    let verdict = cluster.run(steps);
    (verdict, cluster)
}

#[test]
fn compacted_logs_say_what_all_that_was_committed_says() {
    let seeds: u64 = 100;
    let (mut writes, mut rewritten, mut given_up) = (0, 0, 0);
    for seed in 0..seeds {
        let (verdict, cluster) = compacting(Choices::seeded(seed), 3000);
        if let Err(error) = verdict {
            panic!("seed {seed}: {}", explain(&cluster, &error));
        }
        writes += cluster.planner.writes.len();
        rewritten += cluster.rewritten();
        given_up += usize::from(cluster.begins_at() > 0);
    }
    assert!(writes as u64 > 5 * seeds, "{writes} writes");
    assert!(rewritten as u64 > 10 * seeds, "{rewritten} records were written again");
    assert!(given_up as u64 > seeds / 2, "{given_up} logs begin later");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn committed_records_survive_any_schedule(
        bytes in proptest::collection::vec(any::<u16>(), 500..8000)
    ) {
        let (verdict, cluster) = run(Choices::Given { bytes, next: 0 }, 4000, true);
        if let Err(error) = verdict {
            prop_assert!(false, "{}", explain(&cluster, &error));
        }
    }

    #[test]
    fn compaction_changes_nothing_that_any_log_says(
        bytes in proptest::collection::vec(any::<u16>(), 500..8000)
    ) {
        let (verdict, cluster) = compacting(Choices::Given { bytes, next: 0 }, 4000);
        if let Err(error) = verdict {
            prop_assert!(false, "{}", explain(&cluster, &error));
        }
    }
}

#[test]
fn without_joint_counting_a_loss_is_found() {
    let found = (0..1000).find(|seed| run(Choices::seeded(*seed), 3000, false).0.is_err());
    assert!(found.is_some(), "the checker did not notice that the joiner was not counted");
}
