//! Where each copy is read from: whoever would have it through first.
//!
//! Copies are walked in the order of service, each with what those before it leave at both ends.

mod balance;

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_model::{BrokerId, ShardKey};
use evenkeel_proto::migrations::SourceCandidate;

use self::balance::Free;
use super::Engine;
use crate::copies::{Copy, State};
use crate::jobs::Job;
use crate::nodes::Node;
use crate::queue;

/// A copy that runs keeps its source at least so long; one that is given nothing, because others go
/// first there, so long.
const KEPT: Duration = Duration::from_secs(5);
const STARVED_KEPT: Duration = Duration::from_secs(1);

/// Another source has to save at least so much, or making the change costs more than it saves.
const LEAST_SAVED: Nanos = 1_000_000_000;

/// Bytes that a copy is reckoned with: at least, and while its size is not known.
const LEAST_EXPECTED: u64 = 64 << 10;
const UNKNOWN: u64 = 64 << 20;

/// The leader is reckoned so many percent slower than it is: its link also ships the log and its
/// disk answers requests. Its share tells of that only once requests are slow, so what is as good
/// as equal is not worth it; but a free leader is not spared for a follower that is held back.
const LEADER_PERCENT: u128 = 110;

/// Time until something is through, nanoseconds.
type Nanos = u128;

const NANOS: Nanos = 1_000_000_000;

/// What a candidate is to the shard, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Follower,
    Leader,
    /// It does not have everything itself.
    Behind,
}

/// How good a candidate is, the best first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Failed tries since the last byte came.
    failures: u32,
    behind: bool,
    /// Until the copy would be through, over both ends.
    finish: Nanos,
    /// Until the source would be: where the destination decides, the source with less to do.
    out: Nanos,
    role: Role,
    source: BrokerId,
}

impl Rank {
    /// Nothing that is faster makes up for a worse one.
    fn tier(&self) -> (u32, bool) {
        (self.failures, self.behind)
    }

    /// Whether a copy that runs from the other should go over to this one.
    fn is_clearly_before(&self, other: &Self) -> bool {
        let saved = other.finish.saturating_sub(self.finish);
        let twice = self.finish.saturating_mul(2) <= other.finish;
        self.tier() <= other.tier() && twice && saved >= LEAST_SAVED
    }
}

/// What both ends of every node have to do for the copies walked so far.
struct Lanes<'a>(BTreeMap<&'a BrokerId, Lane>);

#[derive(Debug, Clone, Copy)]
struct Lane {
    rate: u64,
    out: Nanos,
    into: Nanos,
}

impl<'a> Lanes<'a> {
    fn new(nodes: &'a BTreeMap<BrokerId, Node>, now: Duration) -> Self {
        let lane = |node: &Node| Lane { rate: node.bytes_per_second(now), out: 0, into: 0 };
        Self(nodes.iter().map(|(id, node)| (id, lane(node))).collect())
    }

    /// Until one end has sent or taken so many bytes more.
    fn through(&self, broker: &BrokerId, bytes: u64, end: fn(&Lane) -> Nanos) -> Nanos {
        let unknown = Lane { rate: 0, out: 0, into: 0 };
        let lane = self.0.get(broker).unwrap_or(&unknown);
        end(lane) + Nanos::from(bytes) * NANOS / Nanos::from(lane.rate.max(1))
    }

    fn rank(&self, copy: &Copy, source: &BrokerId) -> Rank {
        let bytes = expected(copy);
        let role = role(&copy.job, source);
        let reckoned = |nanos: Nanos| match role {
            Role::Leader => nanos * LEADER_PERCENT / 100,
            _ => nanos,
        };
        let out = self.through(source, bytes, |lane| lane.out);
        let into = self.through(&copy.job.destination, bytes, |lane| lane.into);
        Rank {
            failures: copy.failures_of.get(source).copied().unwrap_or(0),
            behind: role == Role::Behind,
            finish: reckoned(out.max(into)),
            out: reckoned(out),
            role,
            source: source.clone(),
        }
    }

    fn ranked(&self, copy: &Copy) -> Vec<Rank> {
        let mut ranked: Vec<Rank> =
            copy.job.sources.iter().map(|source| self.rank(copy, source)).collect();
        ranked.sort();
        ranked
    }

    /// A copy that may still go over to any source as good as its own.
    fn free(&self, copy: &Copy, chosen: &Rank, ranked: &[Rank]) -> Free {
        let as_good = ranked.iter().filter(|rank| rank.tier() == chosen.tier());
        let cost = |rank: &Rank| {
            let before = self.0.get(&rank.source).map_or(0, |lane| lane.out);
            (rank.source.clone(), rank.out.saturating_sub(before))
        };
        Free {
            shard: copy.job.shard.clone(),
            source: chosen.source.clone(),
            costs: as_good.map(cost).collect(),
        }
    }

    /// What each source has to send.
    fn out(&self) -> BTreeMap<BrokerId, Nanos> {
        self.0.iter().map(|(broker, lane)| ((*broker).clone(), lane.out)).collect()
    }

    /// Until the last destination has everything.
    fn longest_into(&self) -> Nanos {
        self.0.values().map(|lane| lane.into).max().unwrap_or(0)
    }

    /// Both ends have this copy to do as well.
    fn add(&mut self, copy: &Copy, source: &BrokerId) {
        let bytes = expected(copy);
        let out = self.through(source, bytes, |lane| lane.out);
        let into = self.through(&copy.job.destination, bytes, |lane| lane.into);
        if let Some(lane) = self.0.get_mut(source) {
            lane.out = out;
        }
        if let Some(lane) = self.0.get_mut(&copy.job.destination) {
            lane.into = into;
        }
    }
}

/// While sizes are not known the faster one is still the better one.
fn expected(copy: &Copy) -> u64 {
    copy.remaining().map_or(UNKNOWN, |left| left.max(LEAST_EXPECTED))
}

fn role(job: &Job, source: &BrokerId) -> Role {
    let level = job.sources.len().saturating_sub(job.behind);
    if job.leader.as_ref() == Some(source) {
        Role::Leader
    } else if job.sources[level..].contains(source) {
        Role::Behind
    } else {
        Role::Follower
    }
}

impl Engine {
    /// Chooses the source of every copy that could run. One that runs changes it only if another
    /// would be through clearly earlier, and not again soon; the destination goes on with what it
    /// has.
    pub(super) fn choose_sources(&mut self, now: Duration) {
        let order = self.in_order_of_service(now);
        let mut lanes = Lanes::new(&self.nodes, now);
        let (mut free, mut ranks) = (Vec::new(), Vec::new());
        for shard in order {
            let Some(copy) = self.copies.get_mut(&shard) else { continue };
            let ranked = lanes.ranked(copy);
            let Some(best) = ranked.first() else {
                (copy.source, copy.other_sources) = (None, Vec::new());
                continue;
            };
            let present = ranked.iter().find(|rank| Some(&rank.source) == copy.source.as_ref());
            let chosen = present.filter(|present| keeps(copy, present, best, now)).unwrap_or(best);
            let source = chosen.source.clone();
            copy.other_sources.clear();
            if !is_bound(copy, now) {
                free.push(lanes.free(copy, chosen, &ranked));
                ranks.push(ranked);
                copy.passed_over = None;
            }
            lanes.add(copy, &source);
            copy.read_from(now, source);
        }
        // Sources that are idle most of the time hold nothing up.
        let (mut busy, enough) = (lanes.out(), lanes.longest_into() / 2);
        balance::even_out(&mut free, &mut busy, enough);
        for (Free { shard, source, .. }, ranked) in free.into_iter().zip(&ranks) {
            if let Some(copy) = self.copies.get_mut(&shard) {
                copy.other_sources = others(ranked, &source);
                copy.read_instead(now, source, "which has more to send than others");
            }
        }
    }

    /// Copies that could have a slot, those that are served first before the others.
    fn in_order_of_service(&self, now: Duration) -> Vec<ShardKey> {
        let could = self.copies.iter().filter(|(_, copy)| {
            let node = self.nodes.get(&copy.job.destination);
            copy.wants_slot(now) && node.is_some_and(|node| node.session.is_some())
                || copy.source.is_none()
                || copy.source.as_ref().is_some_and(|source| !copy.job.sources.contains(source))
        });
        let mut order: Vec<(queue::Rank<'_>, &ShardKey)> =
            could.map(|(shard, copy)| (queue::rank_of(copy), shard)).collect();
        order.sort();
        order.into_iter().map(|(_, shard)| shard.clone()).collect()
    }

    /// Who a copy could be read from, in the order of preference.
    pub(super) fn candidates(&self, copy: &Copy, now: Duration) -> Vec<SourceCandidate> {
        let mut lanes = Lanes::new(&self.nodes, now);
        for shard in self.in_order_of_service(now) {
            let before = self.copies.get(&shard).filter(|_| shard != copy.job.shard);
            let Some(before) = before else { break };
            if let Some(source) = &before.source {
                lanes.add(before, source);
            }
        }
        let of = |rank: Rank| SourceCandidate {
            broker: rank.source.to_string(),
            role: match rank.role {
                Role::Follower => "follower",
                Role::Leader => "leader",
                Role::Behind => "behind",
            }
            .to_owned(),
            expected_seconds: u64::try_from(rank.finish / NANOS).unwrap_or(u64::MAX),
            failed: rank.failures > 0,
        };
        lanes.ranked(copy).into_iter().map(of).collect()
    }
}

/// What could take a source's place at once if all of its slots are taken, the best first.
fn others(ranked: &[Rank], source: &BrokerId) -> Vec<BrokerId> {
    let Some(chosen) = ranked.iter().find(|rank| rank.source == *source) else { return Vec::new() };
    let as_good = |rank: &&Rank| {
        rank.source != chosen.source
            && rank.tier() == chosen.tier()
            && !chosen.is_clearly_before(rank)
    };
    ranked.iter().filter(as_good).map(|rank| rank.source.clone()).collect()
}

/// Whether its agent reads it, or did a moment ago: without that nothing is changed but the plan.
fn is_bound(copy: &Copy, now: Duration) -> bool {
    let lately = now.saturating_sub(copy.source_since) < KEPT;
    copy.ordered.is_some() && (copy.state == State::Running || lately)
}

/// Whether a copy stays with its present source.
fn keeps(copy: &Copy, present: &Rank, best: &Rank, now: Duration) -> bool {
    if !is_bound(copy, now) {
        return present <= best;
    }
    let kept = if copy.waits { STARVED_KEPT } else { KEPT };
    let settled = now.saturating_sub(copy.source_since) >= kept;
    !(settled && best.is_clearly_before(present))
}
