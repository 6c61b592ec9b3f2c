//! Why a shard is where it is, and what it waits for.

use std::fmt::Write as _;

use evenkeel_model::{
    Assignment, BrokerId, BrokerView, Lifecycle, Millis, ShardKey, ShardReport, Snapshot,
};
use serde::Serialize;

use super::remedy::{Remedies, Remedy};
use super::{ago, span};
use crate::decision::ShardDecision;
use crate::disk::Disk;
use crate::pass::{Pass, Switches};
use crate::phases::rebalance::filters;
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
    /// The same with numbers, and what its replica says.
    pub detail: Option<String>,
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
    /// Since when it waits, if it waits and the snapshot tells.
    pub waiting_since_ms: Option<Millis>,
    /// What would have to change, if it waits or is refused something.
    pub remedy: Option<String>,
    /// What load rebalancing makes of it, if that is on and the shard is placed.
    pub load_rebalancing: Option<String>,
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
    let remedy = decision.as_ref().and_then(|d| Remedies::new(snapshot).of(shard, &d.decision));
    let about = About { snapshot, pass, at, assignment: snapshot.assignments.get(shard), shard };
    let mut candidates: Vec<Candidate> = snapshot
        .brokers
        .iter()
        .filter_map(|(id, view)| {
            Some(about.candidate(about.pass.world.broker_named(id)?, id, view))
        })
        .collect();
    candidates.sort_by(|a, b| {
        let excluded = (a.excluded.is_some(), a.tier).cmp(&(b.excluded.is_some(), b.tier));
        excluded.then(a.score.total_cmp(&b.score)).then_with(|| b.rendezvous.cmp(&a.rendezvous))
    });
    let load_rebalancing = filters::verdict(&about.pass, at);
    let text =
        about.text(decision.as_ref(), remedy.as_ref(), load_rebalancing.as_ref(), &candidates);
    Some(Explanation {
        shard: shard.clone(),
        assignment: about.assignment.cloned(),
        decision,
        waiting_since_ms: remedy.as_ref().and_then(|r| r.since_ms),
        remedy: remedy.map(|r| r.change),
        load_rebalancing,
        candidates,
        text,
    })
}

struct About<'a> {
    snapshot: &'a Snapshot,
    pass: Pass<'a>,
    at: Ord32,
    assignment: Option<&'a Assignment>,
    shard: &'a ShardKey,
}

impl About<'_> {
    fn candidate(&self, broker: Ord32, id: &BrokerId, view: &BrokerView) -> Candidate {
        let world = &self.pass.world;
        let stream = world.shard(self.at).stream;
        let excluded = self.exclusion(broker, view);
        let tier = excluded.is_none().then(|| self.pass.rules().tier(stream, broker));
        Candidate {
            broker: id.clone(),
            tier: tier.map(|t| t.number()),
            tier_name: tier.map(|t| t.as_str()),
            excluded,
            detail: excluded.and_then(|word| self.detail(word, broker, id, view)),
            score: self.pass.scores.score(broker, &self.pass.tally),
            rendezvous: world.rendezvous(world.key_hash(self.at), broker),
            leads_of_stream: self.pass.tally.of_stream(stream, broker),
            leads: self.pass.tally.leaders[broker as usize],
        }
    }

    fn exclusion(&self, broker: Ord32, view: &BrokerView) -> Option<&'static str> {
        let world = &self.pass.world;
        let shape = world.shape(self.at);
        if broker == shape.leader {
            return Some("leads_it");
        }
        if shape.votes(broker) {
            return Some("follows_it");
        }
        if shape.names(broker) {
            return Some("being_copied_to");
        }
        if self.is_left(&world.brokers[broker as usize].id) {
            return Some("unloaded_from");
        }
        match world.standing(broker) {
            Standing::Target if world.group_of(self.at).targets.binary_search(&broker).is_err() => {
                Some("region_not_allowed")
            }
            Standing::Target if !self.pass.has_room(broker) => Some("full"),
            Standing::Target if world.disk(broker) == Disk::Full => Some("disk_full"),
            Standing::Target => None,
            Standing::Unregistered => Some("not_registered"),
            Standing::Draining => Some("draining"),
            Standing::Leaving => Some("left"),
            Standing::Lost if view.lifecycle == Lifecycle::Left => Some("left"),
            Standing::Lost => Some("down"),
        }
    }

    /// Whether the shard's marker says that it leaves the broker and is not to come back.
    fn is_left(&self, broker: &BrokerId) -> bool {
        let marker = self.snapshot.unassigned.get(self.shard).filter(|_| self.assignment.is_none());
        marker.is_some_and(|m| m.from_broker.as_ref() == Some(broker))
    }

    /// What excludes a broker, with its numbers.
    fn detail(&self, word: &str, at: Ord32, id: &BrokerId, view: &BrokerView) -> Option<String> {
        let since = ago(self.snapshot.as_of_ms, view.since_ms);
        let lifecycle = view.lifecycle.as_str();
        Some(match word {
            "full" => format!(
                "it holds {} shards and its max_shards is {}",
                self.pass.tally.held[at as usize],
                view.max_shards.unwrap_or_default()
            ),
            "disk_full" => format!(
                "{} and the mark is {} %: it gets no copy, and new shards only",
                self.pass.world.disk_words(at),
                self.snapshot.policy.disk_full_percent
            ),
            "region_not_allowed" => format!(
                "it is in {} and the stream belongs to {}",
                region(view.region.as_deref()),
                region(self.pass.world.stream_of(self.at).stream.region.as_deref())
            ),
            "unloaded_from" => "its marker says that it leaves it".to_owned(),
            "not_registered" => "its registration is gone".to_owned(),
            "draining" if view.stopping => format!("it was told to stop {since} ago"),
            "draining" | "down" | "left" => format!("it has been {lifecycle} for {since}"),
            "leads_it" if view.lifecycle != Lifecycle::Live => {
                format!("it has been {lifecycle} for {since}")
            }
            "leads_it" => return None,
            _ => {
                let says = self.report(id);
                match view.lifecycle {
                    Lifecycle::Live => says,
                    _ => format!("{says}; it has been {lifecycle} for {since}"),
                }
            }
        })
    }

    /// How far a replica is, in its own words.
    fn report(&self, broker: &BrokerId) -> String {
        let Some(a) = self.assignment else { return "it has not reported".to_owned() };
        if let Some(why) = self.snapshot.halted(self.shard, broker) {
            return format!("it halted: {why}");
        }
        match self.snapshot.report(self.shard, broker, a.generation) {
            None => format!("it has not reported at generation {}", a.generation),
            Some(ShardReport { lag_records: Some(lag), .. }) if *lag > 0 => {
                format!("it is {lag} records behind")
            }
            Some(r) if r.caught_up => "it is caught up".to_owned(),
            Some(_) => "it is not caught up".to_owned(),
        }
    }

    fn text(
        &self,
        decision: Option<&ShardDecision>,
        remedy: Option<&Remedy>,
        load_rebalancing: Option<&String>,
        candidates: &[Candidate],
    ) -> String {
        let mut text = self.holders();
        self.reasons(&mut text);
        self.shares(&mut text);
        match decision {
            None => writeln!(text, "The next pass has nothing to do for it."),
            Some(decision) => writeln!(text, "Next pass: {decision}."),
        }
        .ok();
        if let Some(remedy) = remedy {
            if let Some(since) = remedy.since_ms {
                let now = self.snapshot.as_of_ms;
                writeln!(text, "It has been so for {}.", ago(now, since)).ok();
            }
            writeln!(text, "That ends when {}.", remedy.change).ok();
        }
        if let Some(verdict) = load_rebalancing {
            writeln!(text, "{verdict}").ok();
        }
        for c in candidates {
            let what = match (c.excluded, c.tier_name, c.tier) {
                (Some(word), ..) => word.replace('_', " "),
                (None, Some(name), Some(number)) => format!("tier {number}, {name}"),
                (None, ..) => "a candidate".to_owned(),
            };
            let detail = c.detail.as_ref().map_or(String::new(), |d| format!(" ({d})"));
            writeln!(
                text,
                "  {}: {what}{detail}; leads {} of the stream and {} in all; score {:.3}",
                c.broker, c.leads_of_stream, c.leads, c.score
            )
            .ok();
        }
        text
    }

    fn holders(&self) -> String {
        let key = self.shard;
        let Some(a) = self.assignment else {
            return format!("{key} has no leader yet.\n");
        };
        let followers: Vec<&str> = a.followers.iter().map(BrokerId::as_str).collect();
        let leader = a.leader.as_ref().map_or("nobody", BrokerId::as_str);
        let followers = if followers.is_empty() { "nobody".into() } else { followers.join(", ") };
        let state = a.state.as_str();
        let generation = a.generation;
        format!(
            "{key} is led by {leader} and followed by {followers}, generation {generation}, {state}.\n"
        )
    }

    /// What the records say of how it came to be so.
    fn reasons(&self, text: &mut String) {
        let now = self.snapshot.as_of_ms;
        let name = |b: &Option<BrokerId>| b.as_ref().map_or("nobody".into(), ToString::to_string);
        let Some(a) = self.assignment else {
            if let Some(marker) = self.snapshot.unassigned.get(self.shard) {
                write!(text, "Its marker says {}", marker.reason.as_str()).ok();
                if let Some(from) = &marker.from_broker {
                    write!(text, ": it leaves {from}").ok();
                }
                if let Some(to) = &marker.to_broker {
                    write!(text, ", to {to} if that may be").ok();
                }
                writeln!(text, ".").ok();
            }
            return;
        };
        if let Some(m) = &a.move_ {
            let what = if a.is_moving() { "is under way" } else { "was given up" };
            let to = name(&a.successor.clone().or_else(|| a.joining.clone()));
            let to = if a.is_moving() { format!(" to {to}") } else { String::new() };
            let began = ago(now, m.started_at_ms);
            let reason = m.reason.as_str();
            write!(text, "A move{to} ({reason}) {what}, begun {began} ago").ok();
            if let Some(fenced) = m.fenced_at_ms {
                write!(text, ", fenced {} ago", ago(now, fenced)).ok();
            }
            if let Some(next) = m.next_try_ms.filter(|at| *at > now) {
                write!(text, ", the next try in {}", span(next.saturating_sub(now))).ok();
            }
            writeln!(text, ".").ok();
        }
        let last = self.snapshot.history.iter().rfind(|h| h.shard == *self.shard);
        if let Some(h) = last {
            let outcome = h.outcome.as_str().replace('_', " ");
            let (from, to, when) = (name(&h.from), name(&h.to), ago(now, h.at_ms));
            let reason = h.reason.as_str();
            writeln!(
                text,
                "Its last move, from {from} to {to} ({reason}), was {outcome} {when} ago."
            )
            .ok();
        }
        self.leader_reason(text, a);
    }

    /// What the leader would be to the shard if it were placed now.
    fn leader_reason(&self, text: &mut String, a: &Assignment) {
        let now = self.snapshot.as_of_ms;
        let Some(leader) = &a.leader else {
            writeln!(text, "Its leader was lost.").ok();
            return;
        };
        let Some(view) = self.snapshot.brokers.get(leader) else {
            writeln!(text, "Its leader {leader} is gone from the list of brokers.").ok();
            return;
        };
        if view.lifecycle != Lifecycle::Live {
            let (lifecycle, since) = (view.lifecycle.as_str(), ago(now, view.since_ms));
            writeln!(text, "Its leader {leader} has been {lifecycle} for {since}.").ok();
            return;
        }
        let world = &self.pass.world;
        let shape = world.shape(self.at);
        let stream = world.shard(self.at).stream;
        if shape.eventual_leader() != shape.leader || !world.is_placed(self.at) {
            return;
        }
        let tier = self.pass.rules().tier_without(stream, shape.leader);
        let (number, name) = (tier.number(), tier.as_str());
        writeln!(text, "Were it placed now, {leader} would be in tier {number}: {name}.").ok();
    }

    fn shares(&self, text: &mut String) {
        let world = &self.pass.world;
        let m = world.group_of(self.at).targets.len();
        let n = world.stream_of(self.at).stream.shards as usize;
        let Some(floor) = n.checked_div(m) else { return };
        if world.policy.capacity_weighted {
            let parts = "each has its part by weight";
            writeln!(text, "Its stream has {n} shards on {m} eligible brokers; {parts}.").ok();
            return;
        }
        let (ceiling, share) = (n.div_ceil(m), world.facts.shards.len().div_ceil(m));
        writeln!(
            text,
            "Its stream has {n} shards on {m} eligible brokers: floor {floor}, ceiling {ceiling}; \
             the cluster share is {share}.",
        )
        .ok();
    }
}

fn region(name: Option<&str>) -> String {
    name.map_or("no region".to_owned(), |name| format!("region {name}"))
}
