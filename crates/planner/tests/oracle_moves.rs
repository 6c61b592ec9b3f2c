//! Who takes over from a lost leader, and where a drain goes, against the same choices reckoned
//! slowly from the written rule.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;
mod written_rule;

use std::collections::BTreeSet;

use evenkeel_model::{
    Assignment, BrokerId, Kind, Lifecycle, ShardKey, ShardState, Snapshot, Strategy, StreamKey,
};
use evenkeel_planner::{Decision, Plan, Step, Write, check, plan};
use random::{Rng, add_brokers, add_stream};
use serde_json::json;
use written_rule::{Mend, Outcome, WrittenRule};

/// Sets of one to three copies over brokers in zones, some of them `leaving`, with what their
/// followers say of themselves, and loads.
fn replicated(rng: &mut Rng, leaving: Lifecycle) -> Snapshot {
    let mut s = Snapshot::empty(1_700_000_000_000);
    add_brokers(&mut s, 3 + rng.below(6));
    s.policy.assignment_strategy =
        [Strategy::Fair, Strategy::Balanced, Strategy::WeightedLoad][rng.below(3)];
    s.policy.capacity_weighted = rng.chance(25);
    s.policy.moves_max_concurrent = 1_000;
    s.policy.repairs_max_concurrent = 1_000;
    s.policy.mass_loss_percent = 100.0;
    s.policy.rebalancing.leaders = false;
    let zones = rng.below(4);
    for view in s.brokers.values_mut() {
        view.zone = (zones > 0 && rng.chance(90)).then(|| format!("z{}", rng.below(zones)));
        view.max_shards = rng.chance(25).then(|| rng.range(4, 20));
        view.weight = f64::from(rng.range(1, 4));
        if rng.chance(75) {
            let load = json!({"reported_at_ms": s.as_of_ms, "cpu_percent": rng.below(100)});
            view.load = Some(serde_json::from_value(load).unwrap());
        }
    }
    for n in 0..1 + rng.below(4) {
        let key = StreamKey::new(Kind::Stream, "default", &format!("s{n}")).unwrap();
        let (shards, factor) = (rng.range(1, 9), rng.range(1, 3));
        add_stream(&mut s, &key, shards, factor);
        for number in 0..shards {
            add_set(rng, &mut s, key.shard(number), factor as usize);
        }
    }
    let ids: Vec<BrokerId> = s.brokers.keys().cloned().collect();
    for id in ids.iter().take(1 + rng.below(2)) {
        let view = s.brokers.get_mut(id).unwrap();
        view.lifecycle = leaving;
        view.registered = leaving == Lifecycle::Draining;
    }
    if leaving == Lifecycle::Down && rng.chance(40) {
        s.brokers.get_mut(&ids[2]).unwrap().lifecycle = Lifecycle::Draining;
    }
    s
}

fn add_set(rng: &mut Rng, s: &mut Snapshot, shard: ShardKey, factor: usize) {
    let mut ids: Vec<BrokerId> = s.brokers.keys().cloned().collect();
    rng.shuffle(&mut ids);
    let mut a = Assignment::new(shard.clone(), ids[0].clone(), ids[1..factor].to_vec());
    a.state = ShardState::Active;
    for follower in &a.followers {
        let said = match rng.below(10) {
            0 => continue,
            1 => json!({"lag_records": rng.below(3000)}),
            2 if rng.chance(50) => json!({"caught_up": true, "halted": "damaged"}),
            // Said before the assignment was last written.
            2 => json!({"phase": "halted", "generation": 0}),
            3 => json!({"caught_up": true, "generation": 7}),
            _ => json!({"caught_up": true, "log_end": 100 + rng.below(3)}),
        };
        let mut report = json!({"broker": follower, "shard": shard, "generation": 1});
        report.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        let reports = s.reports.entry(shard.clone()).or_default();
        reports.push(serde_json::from_value(report).unwrap());
    }
    if rng.chance(70) {
        let report =
            json!({"broker": a.leader, "shard": shard, "generation": 1, "phase": "serving"});
        let reports = s.reports.entry(shard.clone()).or_default();
        reports.push(serde_json::from_value(report).unwrap());
    }
    s.assignments.insert(shard, a);
}

/// Shards with a follower that halted, in the order of their repair: those that can commit nothing
/// first.
fn halted<'s>(rule: &WrittenRule<'s>) -> Vec<(&'s Assignment, BrokerId)> {
    let of = |a: &'s Assignment| {
        let halted: Vec<&BrokerId> = a.followers.iter().filter(|b| rule.has_halted(a, b)).collect();
        let live = a.voters().count() - halted.len();
        let first = (*halted.first()?).clone();
        Some((2 * live > a.voters().count(), (a, first)))
    };
    let mut all: Vec<(bool, (&Assignment, BrokerId))> =
        rule.s.assignments.values().filter_map(of).collect();
    all.sort_by_key(|(short, (a, _))| (*short, a.shard.clone()));
    all.into_iter().map(|(_, found)| found).collect()
}

fn write_of<'p>(plan: &'p Plan, shard: &ShardKey) -> Option<&'p Write> {
    let decision = plan.decisions.iter().find(|d| d.shard == *shard);
    decision.and_then(|d| d.decision.write())
}

#[test]
fn the_planner_promotes_whom_the_written_rule_names() {
    let (mut promoted, mut without) = (0, 0);
    for seed in 0..600 {
        let s = replicated(&mut Rng::new(seed), Lifecycle::Down);
        let mut rule = WrittenRule::new(&s);
        let plan = plan(&s);
        let lost =
            |a: &&Assignment| s.brokers[a.leader.as_ref().unwrap()].lifecycle == Lifecycle::Down;
        for a in s.assignments.values().filter(lost) {
            let expected = rule.promote(a);
            let write = write_of(&plan, &a.shard).filter(|w| w.step == Step::Promote);
            let to = write.and_then(|w| w.to.clone());
            assert_eq!(to, expected, "seed {seed}: {}", a.shard);
            promoted += usize::from(to.is_some());
            without += usize::from(to.is_none());
        }
    }
    assert!(promoted > 800 && without > 500, "{promoted} {without}");
}

#[test]
fn a_drain_goes_where_the_written_rule_says() {
    let (mut leaders, mut followers, mut nowhere) = (0, 0, 0);
    let (mut copied, mut dropped, mut kept) = (0, 0, 0);
    for seed in 0..600 {
        let s = replicated(&mut Rng::new(seed), Lifecycle::Draining);
        let mut rule = WrittenRule::new(&s);
        let plan = plan(&s);
        let drains = |b: &BrokerId| s.brokers[b].lifecycle == Lifecycle::Draining;
        let mut mended: BTreeSet<&ShardKey> = BTreeSet::new();
        for (a, follower) in halted(&rule) {
            let write = write_of(&plan, &a.shard).map(|w| (w.step, w.from.clone(), w.to.clone()));
            let from = Some(follower.clone());
            match rule.mend(a, &follower) {
                Mend::Copy(to) => {
                    assert_eq!(write, Some((Step::Restore, from, Some(to))), "seed {seed}");
                    copied += 1;
                }
                Mend::Drop => {
                    assert_eq!(write, Some((Step::Drop, from, None)), "seed {seed}: {}", a.shard);
                    dropped += 1;
                }
                Mend::Nothing => {
                    let step = write.map(|(step, ..)| step);
                    let repairs = [Some(Step::Restore), Some(Step::Drop)];
                    assert!(!repairs.contains(&step), "seed {seed}: {}", a.shard);
                    kept += 1;
                    continue;
                }
            }
            mended.insert(&a.shard);
        }
        let mut rest: Vec<&Assignment> = Vec::new();
        for a in s.assignments.values().filter(|a| !mended.contains(&a.shard)) {
            if !drains(a.leader.as_ref().unwrap()) {
                rest.push(a);
                continue;
            }
            let expected = rule.drain_leader(a);
            let write = write_of(&plan, &a.shard).filter(|w| w.next.successor.is_some());
            assert_eq!(write.and_then(|w| w.to.clone()), expected, "seed {seed}: {}", a.shard);
            if expected.is_none() {
                rest.push(a);
            }
            leaders += usize::from(expected.is_some());
        }
        for a in rest {
            let Some(leaving) = a.followers.iter().find(|b| drains(b)) else { continue };
            let expected = rule.replace_follower(a, leaving);
            let write = write_of(&plan, &a.shard);
            let reseat =
                write.filter(|w| w.step == Step::Reseat && w.from.as_ref() == Some(leaving));
            assert_eq!(reseat.and_then(|w| w.to.clone()), expected, "seed {seed}: {}", a.shard);
            if expected.is_none() {
                let decision = plan.decisions.iter().find(|d| d.shard == a.shard).unwrap();
                assert!(
                    matches!(decision.decision, Decision::Refuse(_)),
                    "seed {seed}: {decision}"
                );
                nowhere += 1;
            }
            followers += usize::from(expected.is_some());
        }
    }
    assert!(leaders > 1000 && followers > 500 && nowhere > 20, "{leaders} {followers} {nowhere}");
    assert!(copied > 500 && dropped > 20 && kept > 50, "{copied} {dropped} {kept}");
}

/// Fences one set of three, drained, with a destination that says anything of itself.
fn fence_one(rng: &mut Rng, s: &mut Snapshot) -> Option<ShardKey> {
    let live = |b: &BrokerId| s.brokers[b].lifecycle == Lifecycle::Live;
    let fits = |a: &&Assignment| a.followers.len() == 2 && a.leader.as_ref().is_some_and(live);
    let shard = s.assignments.values().find(fits)?.shard.clone();
    let brokers: Vec<BrokerId> = s.brokers.keys().cloned().collect();
    let a = s.assignments.get_mut(&shard)?;
    let learners: Vec<BrokerId> =
        brokers.into_iter().filter(|b| a.voters().all(|v| v != b)).collect();
    let to = match learners.is_empty() || rng.chance(30) {
        true => a.followers[0].clone(),
        false => learners[rng.below(learners.len())].clone(),
    };
    a.successor = Some(to.clone());
    a.state = ShardState::Draining;
    let fenced = s.as_of_ms - 1000;
    let record = json!({"reason": "drain", "started_at_ms": fenced - 9, "fenced_at_ms": fenced});
    a.move_ = rng.chance(80).then(|| serde_json::from_value(record).unwrap());
    let since = fenced - 1 + rng.below(3) as i64;
    s.brokers.get_mut(&to).unwrap().since_ms = since;
    let leader = a.leader.clone();
    let reports = s.reports.entry(shard.clone()).or_default();
    reports.retain(|r| Some(&r.broker) != leader.as_ref() && r.broker != to);
    let of = |broker: &BrokerId, said: serde_json::Value| {
        let mut report = json!({"broker": broker, "shard": shard, "generation": 1});
        report.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        serde_json::from_value(report).unwrap()
    };
    reports.push(of(leader.as_ref()?, json!({"drained": true})));
    match rng.below(6) {
        0 => {}
        1 => reports.push(of(&to, json!({"caught_up": false}))),
        2 => reports.push(of(&to, json!({"phase": "halted", "caught_up": rng.chance(50)}))),
        3 => reports.push(of(&to, json!({"halted": "damaged", "generation": 0}))),
        4 => reports.push(of(&to, json!({"generation": 0}))),
        _ => reports.push(of(&to, json!({"caught_up": true}))),
    }
    Some(shard)
}

#[test]
fn a_drained_shard_goes_where_the_written_rule_says() {
    let (mut led, mut others, mut back, mut waits) = (0, 0, 0, 0);
    for seed in 0..1500 {
        let mut rng = Rng::new(seed);
        let mut s = replicated(&mut rng, Lifecycle::Down);
        let Some(shard) = fence_one(&mut rng, &mut s) else { continue };
        let a = &s.assignments[&shard];
        let plan = plan(&s);
        assert_eq!(check(&s, &plan), [], "seed {seed}");
        let write = write_of(&plan, &shard).map(|w| (w.step, w.to.clone()));
        match WrittenRule::new(&s).hand_over(a) {
            Outcome::Led(to) => {
                led += usize::from(a.successor.as_ref() == Some(&to));
                others += usize::from(a.successor.as_ref() != Some(&to));
                assert_eq!(write, Some((Step::CutOver, Some(to))), "seed {seed}");
            }
            Outcome::Back => {
                back += 1;
                assert_eq!(write, Some((Step::Retake, a.leader.clone())), "seed {seed}");
            }
            Outcome::Waits => {
                waits += 1;
                assert_eq!(write, None, "seed {seed}");
            }
        }
    }
    assert!(led > 100 && others > 50 && back > 5 && waits > 30, "{led} {others} {back} {waits}");
}
