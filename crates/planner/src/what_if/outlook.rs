//! The cluster in a few numbers, and what stands in the way at the end.

use std::collections::BTreeMap;

use evenkeel_model::{ShardKey, Snapshot};
use serde::Serialize;

use crate::balance::balance;
use crate::decision::Decision;
use crate::plan::Plan;
use crate::stats::BalanceStatus;
use crate::world::{Ord32, World};
use crate::zones::span_now;

/// The cluster in a few numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlook {
    /// Brokers that may be given shards.
    pub active_brokers: u32,
    /// Fewest shards that an active broker leads.
    pub leaders_min: u32,
    /// Most.
    pub leaders_max: u32,
    /// Fewest shards that an active broker holds in any role.
    pub replicas_min: u32,
    /// Most.
    pub replicas_max: u32,
    /// Streams with a broker more than one leader ahead of another.
    pub uneven_streams: u32,
    /// Coefficient of variation of the load scores, percent.
    pub cv_percent: f64,
    /// What that says.
    pub status: BalanceStatus,
    /// Shards with fewer copies on serving brokers than their replication factor.
    pub under_replicated: u32,
    /// The copies that those lack.
    pub replicas_missing: u32,
    /// Shards by the number of zones that they span; none if no broker has a zone.
    pub zones_spanned: BTreeMap<usize, u32>,
    /// Shards that span fewer zones than they could.
    pub crowded: u32,
    /// Shards whose replication factor exceeds the zones there are.
    pub zone_limited: u32,
}

impl Outlook {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let b = balance(snapshot);
        let leaders = || b.brokers.iter().map(|one| one.leaders);
        let replicas = || b.brokers.iter().map(|one| one.replicas);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let mut zones_spanned = BTreeMap::new();
        for (_, zones) in spans(snapshot) {
            *zones_spanned.entry(zones).or_insert(0) += 1;
        }
        Self {
            active_brokers: count(b.brokers.len()),
            leaders_min: leaders().min().unwrap_or(0),
            leaders_max: leaders().max().unwrap_or(0),
            replicas_min: replicas().min().unwrap_or(0),
            replicas_max: replicas().max().unwrap_or(0),
            uneven_streams: count(b.streams.iter().filter(|s| !s.level).count()),
            cv_percent: b.cv_percent,
            status: b.status,
            under_replicated: b.under_replicated,
            replicas_missing: b.replicas_missing,
            zones_spanned,
            crowded: b.crowded,
            zone_limited: b.zone_limited,
        }
    }
}

/// Zones that each placed shard spans, copies on serving brokers counted.
fn spans(snapshot: &Snapshot) -> Vec<(ShardKey, usize)> {
    let world = World::new(snapshot, &snapshot.policy);
    if world.zones == 0 {
        return Vec::new();
    }
    let placed = snapshot.assignments.keys();
    let span = |shard: &ShardKey| {
        let at: Ord32 = world.shard_named(shard)?;
        Some((shard.clone(), span_now(&world, &world.shape(at))))
    };
    placed.filter_map(span).collect()
}

/// Shards that span fewer zones in `after`.
pub(super) fn narrowed(before: &Snapshot, after: &Snapshot) -> u32 {
    let after: BTreeMap<ShardKey, usize> = spans(after).into_iter().collect();
    let fewer = |(shard, zones): &(ShardKey, usize)| after.get(shard).is_some_and(|z| z < zones);
    u32::try_from(spans(before).iter().filter(|s| fewer(s)).count()).unwrap_or(u32::MAX)
}

/// Shards that wait for the same, or are refused the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unresolved {
    /// `wait` or `refuse`.
    pub kind: &'static str,
    /// The waiting or the refusal word.
    pub word: &'static str,
    /// How many shards.
    pub shards: u32,
    /// The first of them.
    pub first: ShardKey,
    /// What is said of it.
    pub detail: String,
}

impl Unresolved {
    pub(super) fn of(plan: &Plan) -> Vec<Self> {
        let mut found: BTreeMap<(&str, &str), Self> = BTreeMap::new();
        for decision in &plan.decisions {
            let (kind, word, detail) = match &decision.decision {
                Decision::Write(_) => continue,
                Decision::Wait(w) => ("wait", w.on.as_str(), &w.detail),
                Decision::Refuse(r) => ("refuse", r.because.as_str(), &r.detail),
            };
            let one = found.entry((kind, word)).or_insert_with(|| Self {
                kind,
                word,
                shards: 0,
                first: decision.shard.clone(),
                detail: detail.clone(),
            });
            one.shards += 1;
        }
        found.into_values().collect()
    }
}
