//! What still names a broker, and what each of those shards waits for.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use evenkeel_model::{BrokerId, BrokerView, Lifecycle, Millis, Role, ShardKey, Snapshot};
use serde::Serialize;

use super::ago;
use super::remedy::Remedies;
use crate::decision::{Decision, ShardDecision};
use crate::disk::{Disk, disk, used};
use crate::plan::plan;

/// Shards that the text lists; programs are given all of them.
const LISTED: usize = 20;

/// Shards that name a broker, by what it is to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RoleCounts {
    /// It leads them.
    pub leader: u32,
    /// It follows them.
    pub follower: u32,
    /// It is to lead them after the move in flight.
    pub successor: u32,
    /// It is being copied to.
    pub joining: u32,
}

/// What the next pass decides for a shard, in three parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamingDecision {
    /// `write`, `wait` or `refuse`.
    pub kind: &'static str,
    /// The step, the waiting word or the refusal word.
    pub word: &'static str,
    /// The sentence that goes with it.
    pub detail: String,
}

/// A shard that names the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamingShard {
    /// The shard.
    pub shard: ShardKey,
    /// What the broker is to it.
    pub role: Role,
    /// What is decided for it, if anything.
    pub decision: Option<NamingDecision>,
    /// Since when it waits, if it waits and the snapshot tells.
    pub waiting_since_ms: Option<Millis>,
    /// What would have to change, if it waits or is refused something.
    pub remedy: Option<String>,
}

/// The answer to "what does this broker still hold, and why".
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BrokerExplanation {
    /// The broker.
    pub broker: BrokerId,
    /// What it may be used for.
    pub lifecycle: Lifecycle,
    /// Since when.
    pub since_ms: Millis,
    /// Whether its registration is there.
    pub registered: bool,
    /// Whether it was told to stop and is expected back.
    pub stopping: bool,
    /// Whether it may be given shards.
    pub target: bool,
    /// Its zone.
    pub zone: Option<String>,
    /// Shards that it leads.
    pub leaders: u32,
    /// Shards that name it, by role.
    pub named_by: RoleCounts,
    /// Whether no shard names it in any role.
    pub safe_to_stop: bool,
    /// Those shards, in order.
    pub shards: Vec<NamingShard>,
    /// The same for people.
    pub text: String,
}

/// Explains one broker; none if the snapshot does not list it.
pub fn explain_broker(snapshot: &Snapshot, broker: &BrokerId) -> Option<BrokerExplanation> {
    let view = snapshot.brokers.get(broker)?;
    let plan = plan(snapshot);
    let remedies = Remedies::new(snapshot);
    let decisions: BTreeMap<&ShardKey, &ShardDecision> =
        plan.decisions.iter().map(|d| (&d.shard, d)).collect();
    let mut named_by = RoleCounts::default();
    let mut shards = Vec::new();
    for (shard, assignment) in &snapshot.assignments {
        let Some(role) = assignment.role_of(broker) else { continue };
        match role {
            Role::Leader => named_by.leader += 1,
            Role::Follower => named_by.follower += 1,
            Role::Successor => named_by.successor += 1,
            Role::Joining => named_by.joining += 1,
        }
        let decision = decisions.get(shard).map(|d| &d.decision);
        let remedy = decision.and_then(|d| remedies.of(shard, d));
        shards.push(NamingShard {
            shard: shard.clone(),
            role,
            decision: decision.map(NamingDecision::of),
            waiting_since_ms: remedy.as_ref().and_then(|r| r.since_ms),
            remedy: remedy.map(|r| r.change),
        });
    }
    let mut explanation = BrokerExplanation {
        broker: broker.clone(),
        lifecycle: view.lifecycle,
        since_ms: view.since_ms,
        registered: view.registered,
        stopping: view.stopping,
        target: view.is_target(),
        zone: view.zone.clone(),
        leaders: named_by.leader,
        named_by,
        safe_to_stop: shards.is_empty(),
        shards,
        text: String::new(),
    };
    explanation.text = text(snapshot, view, &explanation);
    Some(explanation)
}

impl NamingDecision {
    fn of(decision: &Decision) -> Self {
        let (kind, word, detail) = match decision {
            Decision::Write(w) => ("write", w.step.as_str(), &w.detail),
            Decision::Wait(w) => ("wait", w.on.as_str(), &w.detail),
            Decision::Refuse(r) => ("refuse", r.because.as_str(), &r.detail),
        };
        Self { kind, word, detail: detail.clone() }
    }
}

fn text(snapshot: &Snapshot, view: &BrokerView, e: &BrokerExplanation) -> String {
    let mut text = String::new();
    let zone = view.zone.as_ref().map_or(String::new(), |z| format!(" in zone {z}"));
    let shards = match (view.is_target(), view.lifecycle) {
        (true, _) => "may be given shards",
        (false, Lifecycle::Live) => "is given none while its registration is gone",
        (false, _) if view.stopping => "restarts: it hands its leaders over and keeps its copies",
        (false, Lifecycle::Draining) => "gives everything away",
        (false, _) => "is given no shards",
    };
    let since = ago(snapshot.as_of_ms, view.since_ms);
    let (broker, lifecycle) = (&e.broker, view.lifecycle.as_str());
    writeln!(text, "{broker}{zone} has been {lifecycle} for {since} and {shards}.").ok();
    if disk(view, snapshot.as_of_ms, &snapshot.policy) == Disk::Full {
        let used = used(view, snapshot.as_of_ms, &snapshot.policy).unwrap_or_default();
        writeln!(
            text,
            "Its disk is {used:.1} % full and the mark is {} %: it gets no copies, and what a \
             follower can lead leaves.",
            snapshot.policy.disk_full_percent
        )
        .ok();
    }
    let by = e.named_by;
    writeln!(
        text,
        "It leads {}, follows {}, is to take over {} and is being copied {}.",
        by.leader, by.follower, by.successor, by.joining
    )
    .ok();
    if e.safe_to_stop {
        let safe = match view.is_target() {
            true => {
                "No shard names it; it may be given some at any time: drain it before it stops."
            }
            false => "No shard names it: it is safe to stop and to remove.",
        };
        writeln!(text, "{safe}").ok();
        return text;
    }
    let named = e.shards.len();
    let name_it =
        if named == 1 { "1 shard names it".to_owned() } else { format!("{named} shards name it") };
    writeln!(text, "It is not safe to stop: {name_it}.").ok();
    blockers(&mut text, snapshot, view, e);
    for one in e.shards.iter().take(LISTED) {
        let (shard, role) = (&one.shard, one.role.as_str());
        match &one.decision {
            None => writeln!(text, "  {shard}: {role}; nothing is decided for it"),
            Some(d) if d.detail.is_empty() => {
                writeln!(text, "  {shard}: {role}; {} {}", d.kind, d.word)
            }
            Some(d) => writeln!(text, "  {shard}: {role}; {} {}: {}", d.kind, d.word, d.detail),
        }
        .ok();
    }
    if named > LISTED {
        writeln!(text, "  and {} more", named - LISTED).ok();
    }
    text
}

/// What stands in the way, the most frequent first.
fn blockers(text: &mut String, snapshot: &Snapshot, view: &BrokerView, e: &BrokerExplanation) {
    let mut groups: BTreeMap<(&str, &str), Vec<&NamingShard>> = BTreeMap::new();
    for one in &e.shards {
        let key = one.decision.as_ref().map_or(("none", ""), |d| (d.kind, d.word));
        groups.entry(key).or_default().push(one);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(key, shards)| (std::cmp::Reverse(shards.len()), *key));
    for ((kind, word), shards) in groups {
        let count = shards.len();
        let remedy = shards.iter().find_map(|s| s.remedy.as_ref());
        let ends = remedy.map_or(String::new(), |r| format!("; that ends when {r}"));
        match kind {
            "write" => writeln!(text, "{count}: the next pass writes {word}."),
            "wait" => {
                let since = shards.iter().filter_map(|s| s.waiting_since_ms).min();
                let since = since
                    .map_or(String::new(), |at| format!(" (for {})", ago(snapshot.as_of_ms, at)));
                writeln!(text, "{count}: wait for {word}{since}{ends}.")
            }
            "refuse" => writeln!(text, "{count}: refused, {word}{ends}."),
            _ if view.lifecycle == Lifecycle::Draining && !view.stopping => {
                writeln!(text, "{count}: their turn has not come.")
            }
            _ if view.lifecycle == Lifecycle::Live => {
                writeln!(text, "{count}: at rest here; a drain would move them.")
            }
            _ => writeln!(text, "{count}: nothing is decided for them."),
        }
        .ok();
    }
}
