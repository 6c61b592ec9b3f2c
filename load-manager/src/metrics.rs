//! Every metric of the load manager, declared and set here and nowhere else.

use std::time::Duration;

use evenkeel_model::{Assignment, CopyClass, LoadReport, Millis, Snapshot};
use evenkeel_planner::Step;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::exposure::{self, Exposed, Passed};
use crate::pass::PassEnd;

/// Every metric with its help text.
const COUNTERS: &[(&str, &str)] = &[
    ("evenkeel_shard_move_steps_total", "Steps written, by step"),
    ("evenkeel_shard_moves_timed_out_total", "Moves, fences and restores that were given up"),
    (
        "evenkeel_shard_assignment_write_conflicts_total",
        "Steps not written because the shard had changed",
    ),
    (
        "evenkeel_placement_writes_fenced_total",
        "Passes and requests stopped because another instance leads",
    ),
    ("evenkeel_placement_writes_unknown_total", "Writes whose outcome is not known"),
    ("evenkeel_placement_passes_total", "Planning passes, by how they ended"),
    (
        "evenkeel_invariant_violations_total",
        "Planned writes that broke a rule and were not made, by scope",
    ),
    ("evenkeel_decisions_total", "Decisions of passes, by kind and word"),
    ("evenkeel_leader_changes_total", "How often this instance was elected"),
    ("evenkeel_rebalancing_checks_total", "Passes that looked at the balance"),
    ("evenkeel_rebalancing_moves_total", "Balance moves that were completed"),
    ("evenkeel_rebalancing_failures_total", "Balance moves that were given up"),
    ("evenkeel_admin_changes_total", "Changes asked for by operators, by action and result"),
    ("evenkeel_history_trimmed_total", "History entries removed"),
    (
        "evenkeel_exposed_seconds_total",
        "Time that at least one shard was below its replica target, by class and for any",
    ),
    ("evenkeel_exposed_shard_seconds_total", "The same summed over shards, by class and for any"),
    (
        "evenkeel_under_replicated_shard_seconds_total",
        "Time that shards were below their replica target, summed over shards",
    ),
];

const GAUGES: &[(&str, &str)] = &[
    (
        "evenkeel_shards_under_replicated",
        "Shards with fewer copies on serving brokers than they should have",
    ),
    (
        "evenkeel_shards_exposed",
        "Shards below their replica target, by class: no majority lives, one replica, more",
    ),
    ("evenkeel_shard_replicas_missing", "Copies that are missing over all shards"),
    ("evenkeel_shard_moves_waiting", "Moves that could not advance in the last pass"),
    ("evenkeel_shard_moves", "Moves in flight, by stage"),
    ("evenkeel_shards_waiting", "Shards for which something waits, by what for"),
    ("evenkeel_shards", "Shards, by state"),
    ("evenkeel_placement_lease_held", "1 on the instance that leads, 0 elsewhere"),
    ("evenkeel_placement_paused", "1 while placement is paused"),
    ("evenkeel_cluster_balance_cv", "Coefficient of variation of the brokers' scores, ratio"),
    ("evenkeel_cluster_balance_mean_load", "Mean score of active brokers"),
    ("evenkeel_cluster_balance_max_load", "Highest score of an active broker"),
    ("evenkeel_cluster_balance_min_load", "Lowest score of an active broker"),
    ("evenkeel_cluster_balance_std_dev", "Population standard deviation of the scores"),
    ("evenkeel_cluster_active_brokers", "Live, registered brokers"),
    ("evenkeel_brokers", "Brokers, by lifecycle"),
    ("evenkeel_broker_topics_owned", "Shards led, by broker"),
    ("evenkeel_broker_cpu_usage_ratio", "CPU in use, by broker"),
    ("evenkeel_broker_memory_usage_ratio", "Memory in use, by broker"),
    ("evenkeel_broker_throughput_bytes_per_second", "Network bytes per second, by broker"),
    ("evenkeel_records_unreadable", "Stored records that cannot be read, by family"),
    ("evenkeel_placement_spread", "Widest difference of leaders between two brokers, by scope"),
];

const HISTOGRAMS: &[(&str, &str)] = &[
    ("evenkeel_shard_move_duration_seconds", "From a move's first step to its cut-over"),
    ("evenkeel_shard_move_fence_seconds", "From a move's fence to its cut-over"),
    ("evenkeel_plan_duration_seconds", "Time to read the records and plan"),
    ("evenkeel_rebalancing_cycle_duration_seconds", "Time of a whole pass"),
    ("evenkeel_step_write_duration_seconds", "Time of one guarded write"),
];

/// Describes every metric, and shows the counters that have no labels at 0.
pub(crate) fn describe() {
    for (name, help) in COUNTERS {
        describe_counter!(*name, *help);
    }
    for (name, help) in GAUGES {
        describe_gauge!(*name, *help);
    }
    for (name, help) in HISTOGRAMS {
        describe_histogram!(*name, *help);
    }
    for step in Step::ALL {
        counter!("evenkeel_shard_move_steps_total", "step" => step.as_str()).increment(0);
    }
    counter!("evenkeel_shard_moves_timed_out_total").increment(0);
    counter!("evenkeel_shard_assignment_write_conflicts_total").increment(0);
    counter!("evenkeel_placement_writes_fenced_total").increment(0);
    counter!("evenkeel_rebalancing_checks_total").increment(0);
    counter!("evenkeel_rebalancing_moves_total").increment(0);
    counter!("evenkeel_rebalancing_failures_total").increment(0);
    gauge!("evenkeel_placement_lease_held").set(0.0);
    gauge!("evenkeel_shard_moves_waiting").set(0.0);
}

/// This instance leads, or no longer does. Gauges of the cluster are the leader's to tell: an
/// instance that no longer leads takes its own back.
pub(crate) fn leading(leads: bool) {
    gauge!("evenkeel_placement_lease_held").set(if leads { 1.0 } else { 0.0 });
    if leads {
        counter!("evenkeel_leader_changes_total").increment(1);
        return;
    }
    let untold = [
        "evenkeel_shards_under_replicated",
        "evenkeel_shard_replicas_missing",
        "evenkeel_shard_moves_waiting",
        "evenkeel_cluster_active_brokers",
        "evenkeel_placement_paused",
    ];
    for name in untold {
        set(name, 0.0);
    }
    for (class, _) in Exposed::default().by_class() {
        set_labelled("evenkeel_shards_exposed", "class", class.as_str(), 0.0);
    }
    for stage in ["staged", "fenced", "joining"] {
        set_labelled("evenkeel_shard_moves", "stage", stage, 0.0);
    }
    for state in ["serving", "not_serving"] {
        set_labelled("evenkeel_shards", "state", state, 0.0);
    }
    for lifecycle in ["live", "draining", "down", "left"] {
        set_labelled("evenkeel_brokers", "lifecycle", lifecycle, 0.0);
    }
}

/// Shards were below their replica target for so long, and so many are now.
pub(crate) fn exposed(passed: &Passed, now: Exposed) {
    let classes = exposure::CLASSES.map(CopyClass::as_str);
    let words = [classes[0], classes[1], classes[2], "any"];
    for (at, class) in words.into_iter().enumerate() {
        let [seconds, shard_seconds] = [passed.seconds[at], passed.shard_seconds[at]];
        counter!("evenkeel_exposed_seconds_total", "class" => class).increment(seconds);
        counter!("evenkeel_exposed_shard_seconds_total", "class" => class).increment(shard_seconds);
    }
    counter!("evenkeel_under_replicated_shard_seconds_total").increment(passed.shard_seconds[3]);
    for (class, shards) in now.by_class() {
        set_labelled("evenkeel_shards_exposed", "class", class.as_str(), f64::from(shards));
    }
}

/// A step was written.
pub(crate) fn step_written(
    write: &evenkeel_planner::Write,
    before: Option<&Assignment>,
    now_ms: Millis,
) {
    let step = write.step;
    counter!("evenkeel_shard_move_steps_total", "step" => step.as_str()).increment(1);
    let given_up = matches!(step, Step::TimedOut | Step::Stalled);
    if given_up {
        counter!("evenkeel_shard_moves_timed_out_total").increment(1);
    }
    let Some(move_) = before.and_then(|a| a.move_.as_ref()) else { return };
    let balance = matches!(move_.reason.as_str(), "stream_balance" | "total_balance" | "load");
    if step == Step::CutOver {
        histogram!("evenkeel_shard_move_duration_seconds")
            .record(seconds(now_ms - move_.started_at_ms));
        if let Some(fenced_at_ms) = move_.fenced_at_ms {
            histogram!("evenkeel_shard_move_fence_seconds").record(seconds(now_ms - fenced_at_ms));
        }
        if balance {
            counter!("evenkeel_rebalancing_moves_total").increment(1);
        }
    } else if balance && (given_up || step == Step::Abandon) {
        counter!("evenkeel_rebalancing_failures_total").increment(1);
    }
}

fn seconds(ms: Millis) -> f64 {
    ms.max(0) as f64 / 1000.0
}

/// A write was refused by a guard of its shard.
pub(crate) fn write_conflict() {
    counter!("evenkeel_shard_assignment_write_conflicts_total").increment(1);
}

/// A pass or a request was stopped because another instance leads.
pub(crate) fn write_fenced() {
    counter!("evenkeel_placement_writes_fenced_total").increment(1);
}

/// The outcome of a write is not known.
pub(crate) fn write_unknown() {
    counter!("evenkeel_placement_writes_unknown_total").increment(1);
}

/// One guarded write took this long.
pub(crate) fn write_took(took: Duration) {
    histogram!("evenkeel_step_write_duration_seconds").record(took);
}

/// A planned write broke a rule of its own, or the plan as a whole did, and was not made.
pub(crate) fn violation(scope: &'static str) {
    counter!("evenkeel_invariant_violations_total", "scope" => scope).increment(1);
}

/// A pass was planned.
pub(crate) fn planned(plan: &evenkeel_planner::Plan, took: Duration) {
    histogram!("evenkeel_plan_duration_seconds").record(took);
    counter!("evenkeel_rebalancing_checks_total").increment(1);
    for entry in &plan.decisions {
        let (kind, word) = crate::words::of(&entry.decision);
        counter!("evenkeel_decisions_total", "kind" => kind, "word" => word).increment(1);
    }
}

/// A pass ended.
pub(crate) fn passed(end: &PassEnd, took: Duration) {
    counter!("evenkeel_placement_passes_total", "end" => end.as_str()).increment(1);
    histogram!("evenkeel_rebalancing_cycle_duration_seconds").record(took);
}

/// An operator asked for a change.
pub(crate) fn admin_change(action: &'static str, result: &'static str) {
    counter!("evenkeel_admin_changes_total", "action" => action, "result" => result).increment(1);
}

/// History entries were removed.
pub(crate) fn history_trimmed(entries: usize) {
    counter!("evenkeel_history_trimmed_total").increment(entries as u64);
}

/// How many records of a family cannot be read.
pub(crate) fn unreadable(family: &'static str, records: usize) {
    gauge!("evenkeel_records_unreadable", "family" => family).set(records as f64);
}

/// What each broker reports, and what it leads.
pub(crate) fn brokers(snapshot: &Snapshot) {
    let mut led = std::collections::BTreeMap::new();
    for leader in snapshot.assignments.values().filter_map(|a| a.leader.as_ref()) {
        *led.entry(leader).or_insert(0_u32) += 1;
    }
    for (id, broker) in &snapshot.brokers {
        let name = id.to_string();
        let owned = led.get(id).copied().unwrap_or_default();
        gauge!("evenkeel_broker_topics_owned", "broker" => name.clone()).set(owned);
        let load = broker.load.as_ref();
        // A broker that reports nothing uses nothing that anybody knows of.
        let value = |field: fn(&LoadReport) -> Option<f64>| load.and_then(field).unwrap_or(0.0);
        gauge!("evenkeel_broker_cpu_usage_ratio", "broker" => name.clone())
            .set(value(|l| l.cpu_percent) / 100.0);
        gauge!("evenkeel_broker_memory_usage_ratio", "broker" => name.clone())
            .set(value(|l| l.memory_percent) / 100.0);
        gauge!("evenkeel_broker_throughput_bytes_per_second", "broker" => name)
            .set(value(|l| l.network_io_bytes_per_second));
    }
}

/// A gauge without labels.
pub(crate) fn set(name: &'static str, value: f64) {
    gauge!(name).set(value);
}

/// A gauge with one label of a fixed set of words.
pub(crate) fn set_labelled(
    name: &'static str,
    label: &'static str,
    word: &'static str,
    value: f64,
) {
    gauge!(name, label => word).set(value);
}
