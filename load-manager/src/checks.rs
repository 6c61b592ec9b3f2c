//! Named checks: each says one thing that is not as it should be, and nothing when all is well.

use evenkeel_model::{Lifecycle, Millis, Policy, ShardState, Snapshot};
use evenkeel_planner::{Balance, Decision, Plan, RefusedBecause, WaitingOn};
use evenkeel_proto::admin::Check;

use crate::figures::Figures;
use crate::policy;
use crate::records::Records;

/// What the checks look at.
pub(crate) struct Facts<'a> {
    /// The stored records.
    pub(crate) records: &'a Records,
    /// The snapshot of them.
    pub(crate) snapshot: &'a Snapshot,
    /// The plan made from it.
    pub(crate) plan: &'a Plan,
    /// Its balance.
    pub(crate) balance: &'a Balance,
    /// Its counts.
    pub(crate) figures: &'a Figures,
    /// The policy under the stored one.
    pub(crate) configured: &'a Policy,
}

type Finding = fn(&Facts<'_>) -> Option<String>;

/// Every check, in the order of their weight.
const CHECKS: &[(&str, Finding)] = &[
    ("NO_LEADER", no_leader),
    ("SHARDS_UNAVAILABLE", shards_unavailable),
    ("SHARDS_UNPLACED", shards_unplaced),
    ("REPLICA_HALTED", replica_halted),
    ("MASS_LOSS", mass_loss),
    ("BROKER_DOWN", broker_down),
    ("SHARDS_UNDER_REPLICATED", shards_under_replicated),
    ("RECORDS_UNREADABLE", records_unreadable),
    ("POLICY_INVALID", policy_invalid),
    ("PLACEMENT_PAUSED", placement_paused),
    ("MOVES_HELD", moves_held),
    ("MOVES_GIVEN_UP", moves_given_up),
    ("NO_PLACE", no_place),
    ("BROKER_DRAINING", broker_draining),
    ("NO_MIGRATOR", no_migrator),
    ("ZONES_CROWDED", zones_crowded),
    ("LOAD_UNKNOWN", load_unknown),
];

/// What is not as it should be, the gravest first.
pub(crate) fn run(facts: &Facts<'_>) -> Vec<Check> {
    let found = CHECKS.iter().filter_map(|(name, check)| {
        Some(Check { name: (*name).to_owned(), summary: check(facts)? })
    });
    found.collect()
}

/// "3 shards, a/b/0 among them", or nothing.
fn several(what: &str, rest: &str, names: Vec<String>) -> Option<String> {
    match names.as_slice() {
        [] => None,
        [one] => Some(format!("{what} {one} {rest}")),
        [first, ..] => Some(format!("{} {what}s {rest}: {first} and others", names.len())),
    }
}

fn brokers(facts: &Facts<'_>, lifecycle: Lifecycle) -> Vec<String> {
    let now_ms = facts.snapshot.as_of_ms;
    let of = facts.snapshot.brokers.iter().filter(|(_, b)| b.lifecycle == lifecycle);
    of.map(|(id, b)| format!("{id} (for {})", age(now_ms - b.since_ms))).collect()
}

fn age(ms: Millis) -> String {
    let seconds = (ms / 1000).max(0);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}

fn no_leader(facts: &Facts<'_>) -> Option<String> {
    let missing = facts.records.leaders.get(&"load-manager".to_owned()).is_none();
    missing.then(|| "no load manager is elected: nothing is placed or repaired".to_owned())
}

fn no_migrator(facts: &Facts<'_>) -> Option<String> {
    let missing = facts.records.leaders.get(&"migrator".to_owned()).is_none();
    missing.then(|| "no migrator is elected: copies wait".to_owned())
}

fn shards_unavailable(facts: &Facts<'_>) -> Option<String> {
    let snapshot = facts.snapshot;
    let lost = snapshot.assignments.values().filter(|a| {
        let leader = a.leader.as_ref().and_then(|l| snapshot.brokers.get(l));
        !leader.is_some_and(|b| b.is_serving())
    });
    several("shard", "has no living leader", lost.map(|a| a.shard.to_string()).collect())
}

fn shards_unplaced(facts: &Facts<'_>) -> Option<String> {
    let placed = facts.snapshot.assignments.len() + facts.records.opaque_shards().len();
    let open = (facts.figures.shards as usize).saturating_sub(placed);
    (open > 0).then(|| format!("{open} shards are not placed yet"))
}

fn replica_halted(facts: &Facts<'_>) -> Option<String> {
    let reports = facts.snapshot.reports.values().flatten();
    let halted = reports.filter_map(|r| {
        let why = r.halted.as_ref()?;
        Some(format!("{} on {} ({why})", r.shard, r.broker))
    });
    several("replica", "has halted", halted.collect())
}

fn mass_loss(facts: &Facts<'_>) -> Option<String> {
    let held = facts.plan.decisions.iter().find_map(|d| match &d.decision {
        Decision::Wait(w) if w.on == WaitingOn::MassLoss => Some(w.detail.clone()),
        _ => None,
    })?;
    Some(format!("many brokers were lost at once, repair copies are held: {held}"))
}

fn broker_down(facts: &Facts<'_>) -> Option<String> {
    several("broker", "is down", brokers(facts, Lifecycle::Down))
}

fn broker_draining(facts: &Facts<'_>) -> Option<String> {
    several("broker", "is draining", brokers(facts, Lifecycle::Draining))
}

fn shards_under_replicated(facts: &Facts<'_>) -> Option<String> {
    let (short, missing) = (facts.balance.under_replicated, facts.balance.replicas_missing);
    (short > 0).then(|| format!("{short} shards are below their target, {missing} copies missing"))
}

fn records_unreadable(facts: &Facts<'_>) -> Option<String> {
    let faults = facts.records.unreadable().into_iter();
    several("record", "cannot be read", faults.map(|(_, u)| u.key.clone()).collect())
}

fn policy_invalid(facts: &Facts<'_>) -> Option<String> {
    let fault = policy::fault(facts.records, facts.configured)?;
    Some(format!("the stored policy is not used: {fault}"))
}

fn placement_paused(facts: &Facts<'_>) -> Option<String> {
    if !facts.snapshot.paused {
        return None;
    }
    let Some(pause) = facts.records.pause.get(&()).map(|p| &p.value) else {
        return Some("the pause record cannot be read: placement is held".to_owned());
    };
    let since = age(facts.snapshot.as_of_ms - pause.at_ms);
    Some(format!("placement was paused by {} {since} ago: {}", pause.by, pause.reason))
}

fn moves_held(facts: &Facts<'_>) -> Option<String> {
    let held = facts.snapshot.policy.moves_max_concurrent == 0;
    held.then(|| "moves_max_concurrent is 0: no move starts".to_owned())
}

fn moves_given_up(facts: &Facts<'_>) -> Option<String> {
    let traces = facts.snapshot.assignments.values().filter(|a| {
        !a.is_moving()
            && a.state != ShardState::Draining
            && a.move_.as_ref().is_some_and(|m| m.give_ups > 0)
    });
    several("move", "was given up", traces.map(|a| a.shard.to_string()).collect())
}

fn no_place(facts: &Facts<'_>) -> Option<String> {
    let refused = facts.plan.decisions.iter().filter_map(|d| match &d.decision {
        Decision::Refuse(r) if r.because != RefusedBecause::NoCaughtUpReplica => {
            Some(format!("{} ({})", d.shard, r.detail))
        }
        _ => None,
    });
    several("shard", "has no legal place", refused.collect())
}

fn zones_crowded(facts: &Facts<'_>) -> Option<String> {
    let (crowded, limited) = (facts.balance.crowded, facts.balance.zone_limited);
    (crowded > 0).then(|| {
        format!("{crowded} shards span fewer zones than they could ({limited} have more copies than there are zones)")
    })
}

fn load_unknown(facts: &Facts<'_>) -> Option<String> {
    let silent = facts.snapshot.brokers.iter().filter(|(_, b)| {
        let age_ms = b.load.as_ref().map(|l| facts.snapshot.as_of_ms - l.reported_at_ms);
        let young =
            facts.snapshot.as_of_ms - b.since_ms < facts.snapshot.policy.load_stale_after_ms;
        let fresh = age_ms.is_some_and(|ms| ms <= facts.snapshot.policy.load_stale_after_ms);
        b.is_target() && !fresh && !young
    });
    several("broker", "has no fresh load report", silent.map(|(id, _)| id.to_string()).collect())
}
