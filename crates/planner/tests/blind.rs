//! What the checks are worth: a planner that does not see a rule, because its snapshot leaves out what
//! the rule is about, is caught by `check` over the whole snapshot.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;

use evenkeel_model::{Lifecycle, ShardState, Snapshot};
use evenkeel_planner::{check, plan};
use random::{Rng, messy};

/// Of 400 random clusters, those where a plan made without what `blind` takes away breaks a rule that
/// `says` names.
fn caught(prepare: impl Fn(&mut Snapshot), blind: impl Fn(&mut Snapshot), says: &str) -> usize {
    let is_caught = |seed: &u64| {
        let mut whole = messy(&mut Rng::new(*seed));
        prepare(&mut whole);
        assert_eq!(check(&whole, &plan(&whole)), [], "seed {seed}");
        let mut seen = whole.clone();
        blind(&mut seen);
        let found = check(&whole, &plan(&seen));
        found.iter().any(|violation| violation.what.contains(says))
    };
    (0..400).filter(is_caught).count()
}

fn nothing(_: &mut Snapshot) {}

#[test]
fn without_zones_cut_overs_would_lose_them() {
    // Every broker has a zone, and sets are full and drained, so that one copy of each goes.
    let zoned = |s: &mut Snapshot| {
        for (n, view) in s.brokers.values_mut().enumerate() {
            view.zone = Some(format!("z{}", n % 2));
            (view.lifecycle, view.registered) = (Lifecycle::Live, true);
        }
        for stream in s.streams.values_mut() {
            stream.replication_factor = 2;
        }
        for a in s.assignments.values_mut().filter(|a| a.successor.is_some()) {
            a.state = ShardState::Draining;
        }
        s.reports.values_mut().flatten().for_each(|r| r.drained = true);
    };
    let blind = |s: &mut Snapshot| s.brokers.values_mut().for_each(|b| b.zone = None);
    assert!(caught(zoned, blind, "a copy in a zone of its own goes") > 3);
}

#[test]
fn without_the_guard_a_mass_loss_would_be_a_storm() {
    let half_lost = |s: &mut Snapshot| {
        let since = s.as_of_ms - 400_000;
        for view in s.brokers.values_mut().step_by(2) {
            (view.lifecycle, view.registered, view.since_ms) = (Lifecycle::Down, false, since);
        }
    };
    let guard = |s: &mut Snapshot| s.policy.mass_loss_released_at_ms = Some(s.as_of_ms);
    assert!(caught(half_lost, guard, "many brokers are missing") > 20);
}

#[test]
fn without_limits_too_much_would_start() {
    let slots = |s: &mut Snapshot| s.policy.moves_max_concurrent = 1_000;
    assert!(caught(nothing, slots, "moves would be under way") > 50);
    let repairs = |s: &mut Snapshot| s.policy.repairs_max_concurrent = 1_000;
    assert!(caught(nothing, repairs, "repairs would be under way") > 20);
    let per_broker = |s: &mut Snapshot| s.policy.moves_max_per_node = None;
    assert!(caught(nothing, per_broker, "would take part in") > 50);
    let caps = |s: &mut Snapshot| s.brokers.values_mut().for_each(|b| b.max_shards = None);
    assert!(caught(nothing, caps, "and its max_shards is") > 50);
}

#[test]
fn without_a_pause_moves_would_start() {
    let paused = |s: &mut Snapshot| s.paused = true;
    let resumed = |s: &mut Snapshot| s.paused = false;
    assert!(caught(paused, resumed, "placement is paused") > 100);
}

#[test]
fn without_lifecycles_and_regions_shards_would_go_where_they_may_not() {
    let lifecycles = |s: &mut Snapshot| {
        for view in s.brokers.values_mut().filter(|b| b.lifecycle == Lifecycle::Draining) {
            view.lifecycle = Lifecycle::Live;
        }
    };
    assert!(caught(nothing, lifecycles, "is no target") > 100);
    let regions = |s: &mut Snapshot| s.streams.values_mut().for_each(|s| s.region = None);
    assert!(caught(nothing, regions, "is not in the stream's region") > 20);
}

#[test]
fn without_weights_balance_would_move_the_wrong_way() {
    let weighted = |s: &mut Snapshot| {
        s.policy.capacity_weighted = true;
        s.policy.moves_max_concurrent = 9;
    };
    let weights = |s: &mut Snapshot| s.policy.capacity_weighted = false;
    assert!(caught(weighted, weights, "squares would go from") > 5);
}

#[test]
fn without_reports_of_its_own_generation_a_failover_would_guess() {
    let stale = |s: &mut Snapshot| {
        for report in s.reports.values_mut().flatten() {
            report.generation += 1;
        }
    };
    let fresh = |s: &mut Snapshot| {
        for report in s.reports.values_mut().flatten() {
            report.generation -= 1;
        }
    };
    assert!(caught(stale, fresh, "is not known to hold everything") > 50);
    assert!(caught(stale, fresh, "the leader has not drained") > 10);
}
