//! Why a shard is where it is, and what it waits for.

use std::fmt::Write as _;

use evenkeel_model::{Assignment, BrokerId, Lifecycle, ShardKey, Snapshot};
use serde::Serialize;

use crate::decision::ShardDecision;
use crate::pass::{Pass, Switches};
use crate::plan::plan;
use crate::world::{Ord32, Standing};

/// One broker as a candidate to lead the shard.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The broker.
    pub broker: BrokerId,
    /// Its tier, 1 the best; none if it is excluded.
    pub tier: Option<u8>,
    /// What the tier means.
    pub tier_name: Option<&'static str>,
    /// What excludes it.
    pub excluded: Option<&'static str>,
    /// Its load score.
    pub score: f64,
    /// Its rendezvous score for this shard.
    pub rendezvous: u64,
    /// Leaders of this stream there, moves in flight taken as finished.
    pub leads_of_stream: u32,
    /// Leaders there in all.
    pub leads: u32,
}

/// The answer to "why is this shard where it is".
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The shard.
    pub shard: ShardKey,
    /// Who holds it.
    pub assignment: Option<Assignment>,
    /// What the next pass decides for it, if anything.
    pub decision: Option<ShardDecision>,
    /// All brokers, the best candidate first.
    pub candidates: Vec<Candidate>,
    /// The same for people.
    pub text: String,
}

/// Explains one shard; none if the snapshot has no such shard.
pub fn explain(snapshot: &Snapshot, shard: &ShardKey) -> Option<Explanation> {
    let pass = Pass::new(snapshot, &snapshot.policy, Switches { stream_tiers: true });
    let at = pass.world.shard_named(shard)?;
    let decision = plan(snapshot).decisions.into_iter().find(|d| d.shard == *shard);
    let mut candidates: Vec<Candidate> = (0..pass.world.brokers.len() as Ord32)
        .filter(|b| pass.world.brokers[*b as usize].view.is_some())
        .map(|b| candidate(&pass, at, b))
        .collect();
    candidates.sort_by(|a, b| {
        let excluded = (a.excluded.is_some(), a.tier).cmp(&(b.excluded.is_some(), b.tier));
        excluded.then(a.score.total_cmp(&b.score)).then_with(|| b.rendezvous.cmp(&a.rendezvous))
    });
    let assignment = pass.world.assignment(at).cloned();
    let mut explanation =
        Explanation { shard: shard.clone(), assignment, decision, candidates, text: String::new() };
    explanation.text = text(&pass, at, &explanation);
    Some(explanation)
}

fn candidate(pass: &Pass<'_>, shard: Ord32, broker: Ord32) -> Candidate {
    let world = &pass.world;
    let stream = world.shard(shard).stream;
    let excluded = exclusion(pass, shard, broker);
    let tier = excluded.is_none().then(|| pass.rules().tier(stream, broker));
    Candidate {
        broker: world.brokers[broker as usize].id.clone(),
        tier: tier.map(|t| t.number()),
        tier_name: tier.map(|t| t.as_str()),
        excluded,
        score: pass.scores.score(broker, &pass.tally),
        rendezvous: world.rendezvous(world.key_hash(shard), broker),
        leads_of_stream: pass.tally.of_stream(stream, broker),
        leads: pass.tally.leaders[broker as usize],
    }
}

fn exclusion(pass: &Pass<'_>, shard: Ord32, broker: Ord32) -> Option<&'static str> {
    let world = &pass.world;
    let shape = world.shape(shard);
    if broker == shape.leader {
        return Some("leads_it");
    }
    if shape.votes(broker) {
        return Some("follows_it");
    }
    if shape.names(broker) {
        return Some("being_copied_to");
    }
    match world.standing(broker) {
        Standing::Target if !world.group_of(shard).targets.contains(&broker) => {
            Some("region_not_allowed")
        }
        Standing::Target if !pass.has_room(broker) => Some("full"),
        Standing::Target => None,
        Standing::Unregistered => Some("not_registered"),
        Standing::Draining => Some("draining"),
        Standing::Leaving => Some("left"),
        Standing::Lost => {
            let view = world.brokers[broker as usize].view;
            let left = view.is_some_and(|v| v.lifecycle == Lifecycle::Left);
            Some(if left { "left" } else { "down" })
        }
    }
}

fn text(pass: &Pass<'_>, shard: Ord32, explanation: &Explanation) -> String {
    let world = &pass.world;
    let facts = world.stream_of(shard);
    let group = world.group_of(shard);
    let m = group.targets.len();
    let n = facts.stream.shards as usize;
    let mut text = String::new();
    let key = &explanation.shard;
    match &explanation.assignment {
        None => writeln!(text, "{key} has no leader yet."),
        Some(a) => {
            let followers: Vec<&str> = a.followers.iter().map(BrokerId::as_str).collect();
            let leader = a.leader.as_ref().map_or("nobody", BrokerId::as_str);
            let followers =
                if followers.is_empty() { "nobody".into() } else { followers.join(", ") };
            writeln!(
                text,
                "{key} is led by {leader} and followed by {followers}, generation {}.",
                a.generation
            )
        }
    }
    .ok();
    if let Some(floor) = n.checked_div(m) {
        let (ceiling, share) = (n.div_ceil(m), world.facts.shards.len().div_ceil(m));
        writeln!(
            text,
            "Its stream has {n} shards on {m} eligible brokers: floor {floor}, ceiling {ceiling}; \
             the cluster share is {share}.",
        )
        .ok();
    }
    match &explanation.decision {
        None => writeln!(text, "The next pass has nothing to do for it."),
        Some(decision) => writeln!(text, "Next pass: {decision}."),
    }
    .ok();
    for c in &explanation.candidates {
        let what = match (c.excluded, c.tier_name) {
            (Some(word), _) => word.replace('_', " "),
            (None, tier) => tier.unwrap_or_default().to_owned(),
        };
        writeln!(
            text,
            "  {}: {what}; leads {} of the stream and {} in all; score {:.3}",
            c.broker, c.leads_of_stream, c.leads, c.score
        )
        .ok();
    }
    text
}
