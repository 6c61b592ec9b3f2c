//! Named checks: each says one thing that is not as it should be, and nothing when all is well.

use evenkeel_model::{Lifecycle, Millis, Policy, Snapshot};
use evenkeel_planner::{Balance, Decision, Plan, RefusedBecause, WaitingOn, full_disk};
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
    ("DISK_FULL", disk_full),
    ("MASS_LOSS", mass_loss),
    ("BROKER_DOWN", broker_down),
    ("SHARDS_UNDER_REPLICATED", shards_under_replicated),
    ("RECORDS_UNREADABLE", records_unreadable),
    ("POLICY_INVALID", policy_invalid),
    ("PLACEMENT_PAUSED", placement_paused),
    ("COPIES_PAUSED", copies_paused),
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

/// What a check is about: a noun and what is wrong with one and with several.
struct Phrase {
    noun: &'static str,
    one: &'static str,
    many: &'static str,
}

impl Phrase {
    const fn new(noun: &'static str, one: &'static str, many: &'static str) -> Self {
        Self { noun, one, many }
    }

    /// "broker b3 is down", "2 brokers are down: b3 and others", or nothing. Each name comes with a
    /// note to set behind it.
    fn about(&self, names: impl IntoIterator<Item = (String, String)>) -> Option<String> {
        let names: Vec<(String, String)> = names.into_iter().collect();
        let Self { noun, one, many } = self;
        match names.as_slice() {
            [] => None,
            [(name, note)] => Some(format!("{noun} {name} {one}{note}")),
            [(name, note), ..] => {
                Some(format!("{} {noun}s {many}: {name}{note} and others", names.len()))
            }
        }
    }
}

fn plain(name: impl ToString) -> (String, String) {
    (name.to_string(), String::new())
}

fn counted(n: u32, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

fn brokers(facts: &Facts<'_>, lifecycle: Lifecycle) -> impl Iterator<Item = (String, String)> {
    let now_ms = facts.snapshot.as_of_ms;
    let of = facts.snapshot.brokers.iter().filter(move |(_, b)| b.lifecycle == lifecycle);
    of.map(move |(id, b)| {
        (id.to_string(), format!(" for {}", age(now_ms.saturating_sub(b.since_ms))))
    })
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
    const SAY: Phrase = Phrase::new("shard", "has no living leader", "have no living leader");
    let snapshot = facts.snapshot;
    let lost = snapshot.assignments.values().filter(|a| {
        let leader = a.leader.as_ref().and_then(|l| snapshot.brokers.get(l));
        !leader.is_some_and(|b| b.is_serving())
    });
    SAY.about(lost.map(|a| plain(&a.shard)))
}

fn shards_unplaced(facts: &Facts<'_>) -> Option<String> {
    let placed = facts.snapshot.assignments.len() + facts.records.opaque_shards().len();
    let placed = u32::try_from(placed).unwrap_or(u32::MAX);
    let open = facts.figures.shards.saturating_sub(placed);
    (open > 0).then(|| format!("{} not placed yet", counted(open, "shard")))
}

fn replica_halted(facts: &Facts<'_>) -> Option<String> {
    const SAY: Phrase = Phrase::new("replica", "has halted", "have halted");
    let snapshot = facts.snapshot;
    SAY.about(snapshot.reports.values().flatten().filter_map(|r| {
        r.halted_because()?;
        let why = snapshot.halted(&r.shard, &r.broker)?;
        Some((format!("{} on {}", r.shard, r.broker), format!(" ({why})")))
    }))
}

fn disk_full(facts: &Facts<'_>) -> Option<String> {
    const SAY: Phrase = Phrase::new("broker", "has a full disk", "have a full disk");
    let policy = &facts.snapshot.policy;
    let (mark, now_ms) = (policy.disk_full_percent, facts.snapshot.as_of_ms);
    SAY.about(facts.snapshot.brokers.iter().filter_map(|(id, broker)| {
        let used = full_disk(broker, now_ms, policy)?;
        let note = format!(" ({used:.1} % used, the mark is {mark} %): it gets no copies");
        Some((id.to_string(), note))
    }))
}

fn mass_loss(facts: &Facts<'_>) -> Option<String> {
    let held = facts.plan.decisions.iter().find_map(|d| match &d.decision {
        Decision::Wait(w) if w.on == WaitingOn::MassLoss => Some(w.detail.clone()),
        _ => None,
    })?;
    Some(format!("many brokers were lost at once, repair copies are held: {held}"))
}

fn broker_down(facts: &Facts<'_>) -> Option<String> {
    const SAY: Phrase = Phrase::new("broker", "has been down", "are down");
    SAY.about(brokers(facts, Lifecycle::Down))
}

fn broker_draining(facts: &Facts<'_>) -> Option<String> {
    const SAY: Phrase = Phrase::new("broker", "has been draining", "are draining");
    SAY.about(brokers(facts, Lifecycle::Draining))
}

fn shards_under_replicated(facts: &Facts<'_>) -> Option<String> {
    let (short, missing) = (facts.balance.under_replicated, facts.balance.replicas_missing);
    (short > 0).then(|| {
        let (short, missing) = (counted(short, "shard"), counted(missing, "missing replica"));
        format!("{short} below the replication factor, {missing}")
    })
}

fn records_unreadable(facts: &Facts<'_>) -> Option<String> {
    const SAY: Phrase = Phrase::new("record", "cannot be read", "cannot be read");
    let faults = facts.records.unreadable().into_iter();
    SAY.about(faults.map(|(_, fault)| (fault.key.clone(), format!(" ({})", fault.detail))))
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
    let since = age(facts.snapshot.as_of_ms.saturating_sub(pause.at_ms));
    Some(format!("placement was paused by {} {since} ago: {}", pause.by, pause.reason))
}

fn copies_paused(facts: &Facts<'_>) -> Option<String> {
    let now_ms = facts.snapshot.as_of_ms;
    let on = facts.records.copy_pauses.iter().map(|p| &p.value).filter(|p| p.is_on(now_ms));
    let named: Vec<String> = on
        .map(|p| {
            let since = age(now_ms.saturating_sub(p.at_ms));
            format!("{} by {} {since} ago: {}", p.scope, p.by, p.reason)
        })
        .collect();
    (!named.is_empty()).then(|| format!("copies are paused: {}", named.join("; ")))
}

fn moves_held(facts: &Facts<'_>) -> Option<String> {
    let held = facts.snapshot.policy.moves_max_concurrent == 0;
    held.then(|| "moves_max_concurrent is 0: no move starts".to_owned())
}

fn moves_given_up(facts: &Facts<'_>) -> Option<String> {
    const SAY: Phrase = Phrase::new("move", "was given up", "were given up");
    let traces = facts
        .snapshot
        .assignments
        .values()
        .filter(|a| !a.is_moving() && a.move_.as_ref().is_some_and(|m| m.give_ups > 0));
    SAY.about(traces.map(|a| (format!("of {}", a.shard), String::new())))
}

fn no_place(facts: &Facts<'_>) -> Option<String> {
    const SAY: Phrase = Phrase::new("shard", "lacks a legal place", "lack a legal place");
    let refused = facts.plan.decisions.iter().filter_map(|d| match &d.decision {
        Decision::Refuse(r) if r.because != RefusedBecause::NoCaughtUpReplica => {
            Some((d.shard.to_string(), format!(" ({})", r.detail)))
        }
        _ => None,
    });
    SAY.about(refused)
}

fn zones_crowded(facts: &Facts<'_>) -> Option<String> {
    let crowded = facts.balance.crowded;
    let span = if crowded == 1 { "spans" } else { "span" };
    let shards = counted(crowded, "shard");
    (crowded > 0).then(|| format!("{shards} {span} fewer zones than could be had"))
}

fn load_unknown(facts: &Facts<'_>) -> Option<String> {
    const SAY: Phrase =
        Phrase::new("broker", "has no fresh load report", "have no fresh load report");
    let (now_ms, limit_ms) = (facts.snapshot.as_of_ms, facts.snapshot.policy.load_stale_after_ms);
    let silent = facts.snapshot.brokers.iter().filter(|(_, b)| {
        let fresh =
            b.load.as_ref().is_some_and(|l| now_ms.saturating_sub(l.reported_at_ms) <= limit_ms);
        // A broker that came just now has not had the time to report.
        b.is_target() && !fresh && now_ms.saturating_sub(b.since_ms) > limit_ms
    });
    SAY.about(silent.map(|(id, _)| plain(id)))
}
