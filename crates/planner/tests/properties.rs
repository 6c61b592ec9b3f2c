//! What holds of every plan, over many random clusters.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::{Assignment, BrokerId, Snapshot, Strategy, StreamKey};
use evenkeel_planner::{
    Decision, Step, apply, balance, check, plan, plan_without_stream_tiers, settle, until_stable,
};
use random::{Rng, cluster, messy};
use serde_json::json;

/// Leaders per stream and broker, and in total, moves in flight taken as finished.
fn counts(s: &Snapshot) -> (BTreeMap<(StreamKey, BrokerId), i64>, BTreeMap<BrokerId, i64>) {
    let mut streams = BTreeMap::new();
    let mut totals = BTreeMap::new();
    for a in s.assignments.values() {
        if let Some(leader) = a.eventual_leader() {
            *streams.entry((a.shard.stream.clone(), leader.clone())).or_default() += 1;
            *totals.entry(leader.clone()).or_default() += 1;
        }
    }
    (streams, totals)
}

fn potential(s: &Snapshot) -> (i64, i64) {
    let (streams, totals) = counts(s);
    (streams.values().map(|n| n * n).sum(), totals.values().map(|n| n * n).sum())
}

fn spread_of(values: impl Iterator<Item = i64> + Clone) -> i64 {
    values.clone().max().unwrap_or(0) - values.min().unwrap_or(0)
}

/// Every stream and the totals within one, zeros counted.
fn is_level(s: &Snapshot) -> Result<(), String> {
    let (streams, totals) = counts(s);
    let live: Vec<&BrokerId> =
        s.brokers.iter().filter(|(_, b)| b.is_target()).map(|(id, _)| id).collect();
    for stream in s.streams.keys() {
        let led =
            |b: &&BrokerId| streams.get(&(stream.clone(), (*b).clone())).copied().unwrap_or(0);
        if spread_of(live.iter().map(led)) > 1 {
            return Err(format!("{stream} is uneven"));
        }
    }
    let total = |b: &&BrokerId| totals.get(*b).copied().unwrap_or(0);
    if spread_of(live.iter().map(total)) > 1 {
        return Err("the totals are uneven".to_owned());
    }
    Ok(())
}

#[test]
fn any_layout_comes_to_rest_level_and_every_move_lowers_the_potential() {
    for seed in 0..300 {
        let mut s = cluster(&mut Rng::new(seed));
        for _pass in 0..2000 {
            let plan = plan(&s);
            let mut written = 0;
            for decision in &plan.decisions {
                let Some(write) = decision.decision.write() else { continue };
                written += 1;
                let before = potential(&s);
                apply(&mut s, decision);
                if matches!(write.step, Step::Stage | Step::Fence) && write.next.successor.is_some()
                {
                    let after = potential(&s);
                    let started = write.step == Step::Stage || before != after;
                    assert!(!started || after < before, "seed {seed}: {decision}");
                }
            }
            if written == 0 {
                break;
            }
            settle(&mut s);
        }
        is_level(&s).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(plan(&s).report.written(), 0, "seed {seed}");
    }
}

/// The fewest moves after which nobody leads more of a stream than its ceiling or less than its floor.
fn fewest_moves(s: &Snapshot, stream: &StreamKey) -> i64 {
    let (streams, _) = counts(s);
    let (n, m) = (i64::from(s.streams[stream].shards), s.brokers.len() as i64);
    let led = |b: &BrokerId| streams.get(&(stream.clone(), b.clone())).copied().unwrap_or(0);
    let ceiling = (n + m - 1) / m;
    let over: i64 = s.brokers.keys().map(|b| (led(b) - ceiling).max(0)).sum();
    let under: i64 = s.brokers.keys().map(|b| (n / m - led(b)).max(0)).sum();
    over.max(under)
}

#[test]
fn streams_are_evened_out_in_the_fewest_moves_and_no_shard_moves_twice() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut s = cluster(&mut rng);
        s.policy.moves_max_concurrent = rng.range(1, 5);
        let fewest: i64 = s.streams.keys().map(|stream| fewest_moves(&s, stream)).sum();
        let rest = until_stable(s, 5_000);
        let moved: Vec<_> = rest.steps.iter().filter(|m| m.step == Step::CutOver).collect();
        let for_streams = moved.iter().filter(|m| m.reason.as_str() == "stream_balance").count();
        assert_eq!(for_streams as i64, fewest, "seed {seed}");
        let shards: BTreeSet<_> = moved.iter().map(|m| &m.shard).collect();
        assert_eq!(shards.len(), moved.len(), "seed {seed}: a shard moves twice");
    }
}

#[test]
fn a_drain_from_a_level_cluster_leaves_every_stream_level() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut s = cluster(&mut rng);
        if s.brokers.len() < 3 {
            continue;
        }
        s.policy.moves_max_concurrent = rng.range(1, 5);
        let mut s = until_stable(s, 5_000).snapshot;
        let view = s.brokers.values_mut().next().unwrap();
        view.lifecycle = evenkeel_model::Lifecycle::Draining;
        let rest = until_stable(s, 5_000);
        let again = rest.steps.iter().filter(|m| m.reason.as_str() == "stream_balance").count();
        assert_eq!(again, 0, "seed {seed}");
    }
}

#[test]
fn zones_and_replicas_stop_no_stream_from_being_level() {
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let mut s = Snapshot::empty(1_700_000_000_000);
        random::add_brokers(&mut s, 3 + rng.below(7));
        let zones = 1 + rng.below(3);
        for view in s.brokers.values_mut() {
            view.zone = Some(format!("z{}", rng.below(zones)));
        }
        s.policy.moves_max_concurrent = rng.range(1, 5);
        for n in 0..1 + rng.below(4) {
            let name = format!("s{n}");
            let key = StreamKey::new(evenkeel_model::Kind::Stream, "default", &name).unwrap();
            let (shards, factor) = (rng.range(1, 12), rng.range(1, 3));
            random::add_stream(&mut s, &key, shards, factor);
            for number in 0..shards {
                let mut ids: Vec<BrokerId> = s.brokers.keys().cloned().collect();
                if rng.chance(50) {
                    rng.shuffle(&mut ids);
                }
                let followers = ids[1..factor as usize].to_vec();
                let mut a = Assignment::new(key.shard(number), ids[0].clone(), followers);
                a.state = evenkeel_model::ShardState::Active;
                s.assignments.insert(a.shard.clone(), a);
            }
        }
        let rest = until_stable(s, 5_000);
        assert!(rest.stable, "seed {seed}");
        is_level(&rest.snapshot).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(balance(&rest.snapshot).crowded, 0, "seed {seed}");
    }
}

#[test]
fn planning_an_applied_plan_writes_nothing_new_until_something_happens() {
    for seed in 0..400 {
        let mut s = messy(&mut Rng::new(seed));
        let first = plan(&s);
        first.decisions.iter().for_each(|d| apply(&mut s, d));
        // What the writes freed may let more start, but it must come to rest without any report.
        let mut writes = 0;
        for _ in 0..50 {
            let next = plan(&s);
            writes = next.report.written();
            if writes == 0 {
                break;
            }
            next.decisions.iter().for_each(|d| apply(&mut s, d));
        }
        assert_eq!(writes, 0, "seed {seed}");
    }
}

#[test]
fn where_nothing_is_under_way_an_applied_plan_is_followed_by_an_empty_one() {
    let mut wrote = 0;
    for seed in 0..2_000 {
        let mut s = messy(&mut Rng::new(seed));
        // One pass looks at load as it was reported, the next as it is after the moves.
        s.policy.rebalancing.enabled = false;
        let lost = |s: &Snapshot, b: &BrokerId| s.brokers.get(b).is_none_or(|b| !b.is_serving());
        let rests = |s: &Snapshot, a: &Assignment| {
            !a.is_moving() && a.leader.as_ref().is_some_and(|l| !lost(s, l))
        };
        let under_way: Vec<_> =
            s.assignments.values().filter(|a| !rests(&s, a)).map(|a| a.shard.clone()).collect();
        for shard in under_way {
            s.assignments.remove(&shard);
        }
        let first = plan(&s);
        first.decisions.iter().for_each(|d| apply(&mut s, d));
        wrote += u32::from(first.report.written() > 0);
        let second = plan(&s);
        let written: Vec<_> =
            second.decisions.iter().filter(|d| d.decision.write().is_some()).collect();
        assert!(written.is_empty(), "seed {seed}: {}", written[0]);
    }
    assert!(wrote > 1_000, "only {wrote}");
}

#[test]
fn the_order_of_the_document_changes_nothing() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let s = messy(&mut rng);
        let expected = plan(&s);
        let mut document = s.to_json();
        for list in ["brokers", "streams", "unassigned", "assignments", "reports"] {
            let items = document[list].as_array_mut().unwrap();
            rng.shuffle(items);
        }
        let again = Snapshot::parse(document.to_string().as_bytes()).unwrap();
        assert_eq!(plan(&again), expected, "seed {seed}");
    }
}

#[test]
fn no_plan_breaks_a_rule_on_the_way_to_rest() {
    for seed in 0..300 {
        let mut s = messy(&mut Rng::new(seed));
        for pass in 0..400 {
            let plan = plan(&s);
            let violations = check(&s, &plan);
            assert!(violations.is_empty(), "seed {seed}, pass {pass}: {}", violations[0]);
            if plan.report.written() == 0 {
                break;
            }
            plan.decisions.iter().for_each(|d| apply(&mut s, d));
            settle(&mut s);
            assert!(pass < 399, "seed {seed} does not come to rest");
        }
    }
}

#[test]
fn a_fresh_stream_is_a_fixed_point_whatever_was_there_before() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut s = cluster(&mut rng);
        let key = StreamKey::new(evenkeel_model::Kind::Stream, "default", "zz-new").unwrap();
        random::add_stream(&mut s, &key, rng.range(1, 40), rng.range(1, 3));
        let placed = plan(&s);
        placed.decisions.iter().for_each(|d| apply(&mut s, d));
        settle(&mut s);
        let moved = until_stable(s, 5000);
        assert!(moved.stable, "seed {seed}");
        let of_new = moved.steps.iter().filter(|m| m.shard.stream == key);
        let stream_moves = of_new.filter(|m| m.reason.as_str() == "stream_balance").count();
        assert_eq!(stream_moves, 0, "seed {seed}");
    }
}

#[test]
fn a_single_fresh_stream_wants_no_move_at_all() {
    for brokers in 1..=12 {
        for shards in [1, 2, 3, 5, 7, 12, 25, 40] {
            for factor in 1..=3 {
                let mut s = Snapshot::empty(1_700_000_000_000);
                random::add_brokers(&mut s, brokers);
                let key = StreamKey::new(evenkeel_model::Kind::Stream, "default", "s").unwrap();
                random::add_stream(&mut s, &key, shards, factor);
                let placed = plan(&s);
                assert_eq!(placed.report.written(), shards);
                placed.decisions.iter().for_each(|d| apply(&mut s, d));
                settle(&mut s);
                let next = plan(&s);
                assert_eq!(next.report.written(), 0, "{shards} on {brokers}, factor {factor}");
            }
        }
    }
}

#[test]
fn a_fresh_stream_wants_no_move_whatever_the_load_the_weights_and_the_zones() {
    for seed in 0..600 {
        let mut rng = Rng::new(seed);
        let mut s = Snapshot::empty(1_700_000_000_000);
        random::add_brokers(&mut s, 1 + rng.below(12));
        s.policy.capacity_weighted = rng.chance(50);
        s.policy.assignment_strategy =
            [Strategy::Fair, Strategy::Balanced, Strategy::WeightedLoad][rng.below(3)];
        let zones = rng.below(4);
        for view in s.brokers.values_mut() {
            view.weight = f64::from(rng.range(1, 9));
            view.zone = (zones > 0).then(|| format!("z{}", rng.below(zones)));
            let load = json!({"reported_at_ms": s.as_of_ms, "cpu_percent": rng.below(100),
                "disk_io_bytes_per_second": rng.below(300_000_000)});
            view.load = rng.chance(80).then(|| serde_json::from_value(load).unwrap());
        }
        let key = StreamKey::new(evenkeel_model::Kind::Stream, "default", "s").unwrap();
        let (shards, factor) = (rng.range(1, 40), rng.range(1, 3));
        random::add_stream(&mut s, &key, shards, factor);
        plan(&s).decisions.iter().for_each(|d| apply(&mut s, d));
        settle(&mut s);
        let next = plan(&s);
        let written: Vec<_> =
            next.decisions.iter().filter(|d| d.decision.write().is_some()).collect();
        assert!(written.is_empty(), "seed {seed}: {}", written[0]);
    }
}

#[test]
fn nobody_moves_to_a_broker_that_leaves_and_nothing_stays_there() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut s = cluster(&mut rng);
        let victim = s.brokers.keys().nth(rng.below(s.brokers.len())).cloned().unwrap();
        if s.brokers.len() < 3 {
            continue;
        }
        s.brokers.get_mut(&victim).unwrap().lifecycle = evenkeel_model::Lifecycle::Draining;
        s.policy.moves_max_concurrent = 3;
        let rest = until_stable(s, 5000);
        assert!(rest.stable, "seed {seed}");
        let names = |a: &&Assignment| a.leader.as_ref() == Some(&victim);
        assert_eq!(rest.snapshot.assignments.values().filter(names).count(), 0, "seed {seed}");
        let to_victim = rest.steps.iter().filter(|m| m.to.as_ref() == Some(&victim)).count();
        assert_eq!(to_victim, 0, "seed {seed}");
    }
}

#[test]
fn a_live_leaders_shard_is_never_simply_given_away() {
    for seed in 0..300 {
        let s = messy(&mut Rng::new(seed));
        for decision in plan(&s).decisions {
            let Decision::Write(write) = &decision.decision else { continue };
            let Some(old) = s.assignments.get(&decision.shard) else { continue };
            if old.leader == write.next.leader {
                continue;
            }
            let leader = old.leader.as_ref().and_then(|l| s.brokers.get(l));
            let alive = leader.is_some_and(|b| b.is_serving());
            assert!(!alive || write.step == Step::CutOver, "seed {seed}: {decision}");
        }
    }
}

#[test]
fn without_the_stream_tiers_the_balance_is_lost() {
    let mut worst = 0;
    for seed in 0..50 {
        let mut s = cluster(&mut Rng::new(seed));
        for _ in 0..500 {
            let plan = plan_without_stream_tiers(&s);
            if plan.report.written() == 0 {
                break;
            }
            plan.decisions.iter().for_each(|d| apply(&mut s, d));
            settle(&mut s);
        }
        worst += usize::from(is_level(&s).is_err());
    }
    assert!(worst > 25, "only {worst} of 50 layouts stayed uneven");
}
