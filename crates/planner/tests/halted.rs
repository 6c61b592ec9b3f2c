//! Replicas that halted, over many random clusters: each is replaced or rebuilt, and on the way no
//! set is left without a majority that holds everything.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;

use std::collections::BTreeSet;

use evenkeel_model::{
    Assignment, BrokerId, Kind, Phase, ShardKey, ShardReport, ShardState, Snapshot, StreamKey,
};
use evenkeel_planner::{Step, apply, check, plan, settle};
use random::{Rng, add_brokers, add_stream};

/// Sets of three and more whose leaders serve, a minority of their followers halted and the others
/// level, on so few brokers that many have nowhere else to go.
fn damaged(rng: &mut Rng) -> Snapshot {
    let mut s = Snapshot::empty(1_700_000_000_000);
    add_brokers(&mut s, 3 + rng.below(4));
    s.policy.moves_max_concurrent = rng.range(1, 4);
    let ids: Vec<BrokerId> = s.brokers.keys().cloned().collect();
    let key = StreamKey::new(Kind::Stream, "default", "s").unwrap();
    let factor = if ids.len() > 4 && rng.chance(50) { 5 } else { 3 };
    let shards = rng.range(2, 9);
    add_stream(&mut s, &key, shards, factor as u32);
    for number in 0..shards {
        let shard = key.shard(number);
        let mut set = ids.clone();
        rng.shuffle(&mut set);
        let mut a = Assignment::new(shard.clone(), set[0].clone(), set[1..factor].to_vec());
        (a.state, a.generation) = (ShardState::Active, 3);
        let halted = rng.below(factor / 2 + 1);
        for (at, voter) in a.voters().enumerate() {
            let damaged = at > 0 && at <= halted;
            let report = ShardReport {
                broker: voter.clone(),
                shard: shard.clone(),
                generation: if damaged { 1 + rng.below(3) as u64 } else { 3 },
                phase: Some(match (at, damaged) {
                    (0, _) => Phase::Serving,
                    (_, true) => Phase::Halted,
                    (_, false) => Phase::Following,
                }),
                caught_up: !damaged,
                lag_records: None,
                drained: false,
                halted: damaged.then(|| "damaged".to_owned()),
                log_end: Some(5_000),
                declined: false,
            };
            s.reports.entry(shard.clone()).or_default().push(report);
        }
        s.assignments.insert(shard, a);
    }
    s
}

fn good(s: &Snapshot, a: &Assignment) -> usize {
    a.voters().filter(|b| s.halted(&a.shard, b).is_none()).count()
}

#[test]
fn every_shard_becomes_whole_and_keeps_a_majority_on_the_way() {
    let (mut dropped, mut copied) = (BTreeSet::<(u64, ShardKey)>::new(), 0);
    for seed in 0..300 {
        let mut s = damaged(&mut Rng::new(seed));
        for pass in 0.. {
            assert!(pass < 300, "seed {seed}: no rest");
            let plan = plan(&s);
            assert_eq!(check(&s, &plan), [], "seed {seed}, pass {pass}");
            if plan.report.written() == 0 {
                break;
            }
            for decision in &plan.decisions {
                let Some(write) = decision.decision.write() else { continue };
                copied += usize::from(write.step == Step::Restore);
                if write.step == Step::Drop {
                    dropped.insert((seed, decision.shard.clone()));
                }
                apply(&mut s, decision);
            }
            for a in s.assignments.values() {
                let voters = a.voters().count();
                assert!(2 * good(&s, a) > voters, "seed {seed}: {a:?}");
            }
            settle(&mut s);
        }
        let factor = |a: &Assignment| s.streams[&a.shard.stream].replication_factor as usize;
        for a in s.assignments.values() {
            assert_eq!((good(&s, a), a.voters().count()), (factor(a), factor(a)), "seed {seed}");
        }
    }
    assert!(dropped.len() > 100 && copied > 500, "{} {copied}", dropped.len());
}
