//! Who takes over, and where leaders and followers of draining brokers go, from the written rule.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use evenkeel_model::{Assignment, BrokerId, Lifecycle, Phase, ShardKey, ShardReport};

use super::{WrittenRule, get};

/// What it takes for a broker to lead: no bytes, a copy, or a follower that has still to catch up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Takes {
    Nothing,
    Copy,
    Patience,
}

/// What is done about a follower that halted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mend {
    /// Another broker gets a copy.
    Copy(BrokerId),
    /// It leaves the set, to be copied anew where it is.
    Drop,
    /// Nobody can take a copy, and it may not leave.
    Nothing,
}

/// What becomes of a fenced shard whose leader drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It goes to this broker.
    Led(BrokerId),
    /// Its leader serves again.
    Back,
    /// It waits for its destination.
    Waits,
}

impl WrittenRule<'_> {
    /// What becomes of `a`, fenced and drained.
    pub(crate) fn hand_over(&mut self, a: &Assignment) -> Outcome {
        let to = a.successor.as_ref().unwrap();
        let view = &self.s.brokers[to];
        if view.lifecycle == Lifecycle::Down || self.has_halted(a, to) {
            // Counted as led by its destination until now.
            let given = Assignment { leader: Some(to.clone()), ..a.clone() };
            return self.promote(&given).map_or(Outcome::Back, Outcome::Led);
        }
        let fenced = a.move_.as_ref().and_then(|m| m.fenced_at_ms);
        let said = self.report(a, to);
        let began_anew = fenced.is_some_and(|at| at < view.since_ms);
        let denies = said.map_or(began_anew, |r| !r.caught_up);
        if denies || !view.is_serving() || (view.lifecycle == Lifecycle::Live && !view.registered) {
            return Outcome::Waits;
        }
        Outcome::Led(to.clone())
    }

    /// Whether the last that a broker said of the shard is that its replica halted.
    pub(crate) fn has_halted(&self, a: &Assignment, b: &BrokerId) -> bool {
        let of_shard = self.s.reports.get(&a.shard).into_iter().flatten();
        let mut said: Vec<&ShardReport> = of_shard.filter(|r| r.broker == *b).collect();
        said.sort_by_key(|r| r.generation);
        said.last().is_some_and(|r| r.halted.is_some() || r.phase == Some(Phase::Halted))
    }

    /// What is done about `halted`, a follower of `a`, and the counts that follow from it.
    pub(crate) fn mend(&mut self, a: &Assignment, halted: &BrokerId) -> Mend {
        if let Some(to) = self.replace_follower(a, halted) {
            return Mend::Copy(to);
        }
        let view = &self.s.brokers[halted];
        let held = get(&self.held, halted);
        let fits = self.eligible(&a.shard.stream).contains(&halted)
            && view.max_shards.is_none_or(|cap| held <= u64::from(cap));
        let serves = |b: &BrokerId| {
            self.report(a, b).is_some_and(|r| r.phase == Some(Phase::Serving))
                && !self.has_halted(a, b)
        };
        let leader = a.leader.as_ref().unwrap();
        let there = |b: &BrokerId| self.s.brokers[b].is_serving();
        let level = |b: &&BrokerId| there(b) && self.holds_everything(a, b);
        let good =
            usize::from(there(leader) && serves(leader)) + a.followers.iter().filter(level).count();
        let all = a.followers.len() + 1;
        if !fits || !serves(leader) || 2 * good <= all {
            return Mend::Nothing;
        }
        *self.held.get_mut(halted).unwrap() -= 1;
        Mend::Drop
    }

    fn report(&self, a: &Assignment, b: &BrokerId) -> Option<&ShardReport> {
        let reports = self.s.reports.get(&a.shard)?;
        reports.iter().find(|r| r.broker == *b && r.generation == a.generation)
    }

    fn holds_everything(&self, a: &Assignment, b: &BrokerId) -> bool {
        self.report(a, b).is_some_and(|r| r.caught_up) && !self.has_halted(a, b)
    }

    /// The follower that takes over from a lost leader, and the counts that follow from it.
    pub(crate) fn promote(&mut self, a: &Assignment) -> Option<BrokerId> {
        let level = |b: &&BrokerId| self.holds_everything(a, b);
        let of = |lifecycle: Lifecycle| {
            let fits = |b: &&BrokerId| {
                let view = self.s.brokers.get(*b);
                view.is_some_and(|v| v.lifecycle == lifecycle && v.registered)
            };
            a.followers.iter().filter(level).filter(fits).collect::<Vec<&BrokerId>>()
        };
        let live = of(Lifecycle::Live);
        let candidates = if live.is_empty() { of(Lifecycle::Draining) } else { live };
        let end = |b: &BrokerId| self.report(a, b).and_then(|r| r.log_end).unwrap_or(0);
        let rank = |b: &&BrokerId| (!self.is_under_both(&a.shard, b), Reverse(end(b)));
        let best = candidates.iter().map(&rank).min()?;
        let equals: Vec<&BrokerId> = candidates.into_iter().filter(|b| rank(b) == best).collect();
        let chosen = self.choose(&a.shard, &equals)?;
        self.leads_instead(a, &chosen);
        Some(chosen)
    }

    /// The leader of `a` is, or will be, `to`.
    fn leads_instead(&mut self, a: &Assignment, to: &BrokerId) {
        let of_stream = |b: &BrokerId| (a.shard.stream.clone(), b.clone());
        if let Some(old) = &a.leader {
            *self.led.get_mut(old).unwrap() -= 1;
            *self.of_stream.get_mut(&of_stream(old)).unwrap() -= 1;
        }
        *self.led.entry(to.clone()).or_default() += 1;
        *self.of_stream.entry(of_stream(to)).or_default() += 1;
        self.loads.given(to);
    }

    fn takes(&self, a: &Assignment, b: &BrokerId) -> Option<Takes> {
        if !a.followers.contains(b) {
            return self.has_room(b).then_some(Takes::Copy);
        }
        let report = self.report(a, b);
        if self.has_halted(a, b) {
            return None;
        }
        let bound = self.s.policy.move_fence_max_lag_records;
        let near = |r: &ShardReport| r.caught_up && r.lag_records.is_none_or(|lag| lag <= bound);
        Some(if report.is_some_and(near) { Takes::Nothing } else { Takes::Patience })
    }

    fn zones<'b>(&self, brokers: impl Iterator<Item = &'b BrokerId>) -> usize {
        brokers.filter_map(|b| self.s.brokers[b].zone.as_ref()).collect::<BTreeSet<_>>().len()
    }

    /// Zones that the set spans once `to` leads: one member goes if the set is full and `to` is new
    /// to it, and copies that leave anyway do not count.
    fn zones_after(&self, a: &Assignment, to: &BrokerId) -> usize {
        if a.followers.contains(to) {
            return self.zones(a.voters());
        }
        let stays = |b: &&BrokerId| self.s.brokers[*b].lifecycle == Lifecycle::Live;
        let after = |without: Option<&BrokerId>| {
            let kept = a.voters().filter(|b| Some(*b) != without).filter(stays);
            self.zones(kept.chain([to]))
        };
        let factor = self.s.streams[&a.shard.stream].replication_factor as usize;
        if a.voters().count() < factor {
            return after(None);
        }
        a.voters().map(|b| after(Some(b))).max().unwrap_or(0)
    }

    /// Where the leader of `a` goes when its broker drains.
    pub(crate) fn drain_leader(&mut self, a: &Assignment) -> Option<BrokerId> {
        let eligible = self.eligible(&a.shard.stream).into_iter();
        let legal = eligible.filter_map(|b| self.takes(a, b).map(|takes| (b, takes)));
        let mut legal: Vec<(&BrokerId, Takes)> = legal.collect();
        if legal.iter().any(|(_, takes)| *takes != Takes::Patience) {
            legal.retain(|(_, takes)| *takes != Takes::Patience);
        }
        let rank = |(b, takes): &(&BrokerId, Takes)| {
            (Reverse(self.zones_after(a, b)), self.fills(&a.shard, b), *takes)
        };
        let best = legal.iter().map(rank).min()?;
        let equals: Vec<&BrokerId> =
            legal.iter().filter(|d| rank(d) == best).map(|(b, _)| *b).collect();
        let chosen = self.choose(&a.shard, &equals)?;
        if best.2 == Takes::Copy {
            *self.held.entry(chosen.clone()).or_default() += 1;
            self.copies_between(a.leader.as_ref(), &chosen);
        }
        self.leads_instead(a, &chosen);
        Some(chosen)
    }

    fn copies_between(&mut self, source: Option<&BrokerId>, destination: &BrokerId) {
        for b in source.into_iter().chain([destination]) {
            *self.copies.entry(b.clone()).or_default() += 1;
        }
    }

    /// Where a follower's copy is made anew when it leaves: most zones, fewest copies under way,
    /// fewest roles, hash.
    pub(crate) fn replace_follower(
        &mut self,
        a: &Assignment,
        leaving: &BrokerId,
    ) -> Option<BrokerId> {
        let gone = |b: &BrokerId| self.s.brokers[b].lifecycle == Lifecycle::Down;
        let kept: Vec<&BrokerId> = a.voters().filter(|b| *b != leaving && !gone(b)).collect();
        let eligible = self.eligible(&a.shard.stream).into_iter();
        let legal = eligible.filter(|b| a.voters().all(|v| v != *b) && self.has_room(b));
        let order = |b: &&BrokerId| {
            let zones = self.zones(kept.iter().copied().chain([*b]));
            let roles = get(&self.held, b);
            (Reverse(zones), get(&self.copies, b), roles, self.hash(&a.shard, b), (*b).clone())
        };
        let chosen = legal.min_by_key(order)?.clone();
        *self.held.entry(chosen.clone()).or_default() += 1;
        self.copies_between(a.leader.as_ref(), &chosen);
        Some(chosen)
    }

    fn is_under_both(&self, shard: &ShardKey, b: &BrokerId) -> bool {
        let bars = self.bars(shard, b);
        bars.led < bars.ceiling && bars.leads < bars.share
    }

    /// 0 under the floor, 1 under the ceiling, 2 at or above it.
    fn fills(&self, shard: &ShardKey, b: &BrokerId) -> u8 {
        let bars = self.bars(shard, b);
        if bars.led < bars.floor {
            0
        } else if bars.led < bars.ceiling {
            1
        } else {
            2
        }
    }
}
