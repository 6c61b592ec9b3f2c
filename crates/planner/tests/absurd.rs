//! Absurd numbers and records that contradict themselves: a plan all the same, and never a panic.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;

use evenkeel_model::{
    BrokerId, HistoryEntry, Lifecycle, Millis, Move, MoveOutcome, MoveReason, ShardState, Snapshot,
    Strategy,
};
use evenkeel_planner::{
    LoadAim, apply, apply_load_plan, balance, cancel_move, check, even_load, explain,
    operator_move, plan, rank, settle,
};
use random::{Rng, broker, messy};
use serde_json::json;

fn time(rng: &mut Rng, now: Millis) -> Millis {
    [0, -1, 1, now, now - 1, now + 1, i64::MIN, i64::MAX, now + 100_000][rng.below(9)]
}

fn number(rng: &mut Rng) -> u64 {
    [0, 1, 2, 1_000, 1_001, u64::MAX - 1, u64::MAX][rng.below(7)]
}

fn rate(rng: &mut Rng) -> f64 {
    [0.0, -1.0, 1e-300, 1.0, 100.0, 1e300, f64::MAX, f64::MIN][rng.below(8)]
}

fn any(rng: &mut Rng) -> Option<BrokerId> {
    rng.chance(70).then(|| broker(rng.below(12)))
}

fn distort(rng: &mut Rng, s: &mut Snapshot) {
    let now = s.as_of_ms;
    s.first_registered_ms = time(rng, now);
    s.elected_at_ms = time(rng, now);
    if rng.chance(10) {
        s.as_of_ms = time(rng, now);
    }
    for view in s.brokers.values_mut() {
        view.since_ms = time(rng, now);
        view.last_seen_ms = time(rng, now);
        view.weight = [0.0, 1e-300, 1.0, 7.0, 1e300, f64::MAX][rng.below(6)];
        view.max_shards = [None, Some(0), Some(1), Some(u32::MAX)][rng.below(4)];
        view.network_bytes_per_second = rng.chance(50).then(|| number(rng));
        view.disk_bytes_per_second = rng.chance(50).then(|| number(rng));
        if rng.chance(10) {
            view.lifecycle = Lifecycle::Left;
        }
        if let Some(load) = &mut view.load {
            load.reported_at_ms = time(rng, now);
            (load.cpu_percent, load.memory_percent) = (Some(rate(rng)), Some(rate(rng)));
            load.disk_io_bytes_per_second = Some(rate(rng));
            for row in &mut load.shards {
                row.bytes_per_second = rate(rng);
                row.backlog = number(rng);
                row.producers = number(rng) as u32;
                row.consumers = number(rng) as u32;
            }
        }
    }
    for stream in s.streams.values_mut() {
        stream.replication_factor = [1, 2, 3, 7, u32::MAX][rng.below(5)];
        stream.created_at_ms = rng.chance(80).then(|| time(rng, now));
    }
    distort_shards(rng, s, now);
    distort_policy(rng, s, now);
}

fn distort_shards(rng: &mut Rng, s: &mut Snapshot, now: Millis) {
    for a in s.assignments.values_mut() {
        if rng.chance(60) {
            continue;
        }
        (a.successor, a.joining, a.leaving) = (any(rng), any(rng), any(rng));
        a.leader = if rng.chance(10) { None } else { a.leader.clone() };
        a.state = [ShardState::Active, ShardState::Assigning, ShardState::Draining][rng.below(3)];
        a.move_ = rng.chance(70).then(|| Move {
            reason: [MoveReason::Restore, MoveReason::Load, MoveReason::Drain][rng.below(3)],
            started_at_ms: time(rng, now),
            fenced_at_ms: rng.chance(50).then(|| time(rng, now)),
            progress_at_ms: rng.chance(50).then(|| time(rng, now)),
            give_ups: [0, 1, 40, u32::MAX][rng.below(4)],
            next_try_ms: rng.chance(50).then(|| time(rng, now)),
        });
        let entry = HistoryEntry {
            at_ms: time(rng, now),
            shard: a.shard.clone(),
            from: any(rng),
            to: any(rng),
            reason: MoveReason::Load,
            outcome: MoveOutcome::GivenUp,
        };
        s.history.push(entry);
    }
    for report in s.reports.values_mut().flatten() {
        report.log_end = rng.chance(80).then(|| number(rng));
        report.lag_records = rng.chance(80).then(|| number(rng));
        report.halted = rng.chance(10).then(|| "damaged".to_owned());
    }
}

fn distort_policy(rng: &mut Rng, s: &mut Snapshot, now: Millis) {
    let zero_or_much = |rng: &mut Rng| [0, 1, i64::MAX][rng.below(3)];
    let policy = &mut s.policy;
    policy.assignment_strategy =
        [Strategy::Fair, Strategy::Balanced, Strategy::WeightedLoad][rng.below(3)];
    policy.capacity_weighted = rng.chance(50);
    policy.tie_band_percent = [0.0, 10.0, 1000.0][rng.below(3)];
    policy.mass_loss_percent = [0.0, 40.0, 100.0][rng.below(3)];
    policy.mass_loss_released_at_ms = rng.chance(50).then(|| time(rng, now));
    policy.moves_max_concurrent = [0, 1, u32::MAX][rng.below(3)];
    policy.repairs_max_concurrent = [0, 1, u32::MAX][rng.below(3)];
    policy.moves_max_per_node = [None, Some(0), Some(1)][rng.below(3)];
    policy.move_fence_max_lag_records = number(rng);
    policy.move_timeout_ms = zero_or_much(rng);
    policy.fence_timeout_ms = zero_or_much(rng);
    policy.restore_after_ms = zero_or_much(rng);
    policy.restore_stall_ms = zero_or_much(rng);
    policy.settle_ms = zero_or_much(rng);
    policy.broker_expiry_ms = [1, 15_000, i64::MAX][rng.below(3)];
    policy.load_stale_after_ms = [1, 90_000, i64::MAX][rng.below(3)];
    let threshold = [0.0, 20.0, 1000.0][rng.below(3)];
    let patch = json!({"rebalancing": {"enabled": rng.chance(50), "cv_threshold_percent": threshold,
        "check_interval_seconds": number(rng), "cooldown_seconds": number(rng),
        "max_moves_per_hour": number(rng) as u32, "min_topic_age_seconds": number(rng),
        "min_brokers_for_rebalance": number(rng) as u32}});
    *policy = policy.merged(&patch).unwrap();
}

#[test]
fn whatever_the_numbers_and_records_there_is_a_plan() {
    let mut writes = 0;
    for seed in 0..1_500 {
        let mut rng = Rng::new(seed);
        let mut s = messy(&mut rng);
        distort(&mut rng, &mut s);
        for _ in 0..3 {
            let plan = plan(&s);
            let _ = check(&s, &plan);
            writes += plan.report.written();
            plan.decisions.iter().for_each(|d| apply(&mut s, d));
            settle(&mut s);
        }
        let shard = s.assignments.keys().nth(rng.below(s.assignments.len().max(1))).cloned();
        if let Some(shard) = shard {
            assert!(explain(&s, &shard).is_some());
            let _ = operator_move(&s, &shard, None);
            let _ = cancel_move(&s, &shard);
        }
        for aim in [LoadAim::BothSides, LoadAim::FewestMoves] {
            let evened = even_load(&s, 5.0, aim);
            let told = [evened.load_moved, evened.max_over_mean, evened.min_over_mean];
            assert!(told.iter().all(|n| n.is_finite()), "seed {seed}: {told:?}");
            apply_load_plan(&mut s.clone(), &evened);
        }
        let shown = balance(&s);
        assert!(shown.mean.is_finite() && shown.cv_percent.is_finite(), "seed {seed}");
        let ranked = rank(&s, s.policy.assignment_strategy);
        assert!(ranked.rankings.iter().all(|r| r.score.is_finite()), "seed {seed}");
    }
    assert!(writes > 1_000, "only {writes}");
}
