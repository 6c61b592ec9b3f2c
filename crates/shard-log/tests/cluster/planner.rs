//! A tiny planner that writes assignments by the rules of the real one: it promotes only replicas
//! reported caught up, seats only joiners so reported, cuts over only what is drained.

use std::collections::BTreeMap;

use evenkeel_model::{Assignment, BrokerId, ShardReport, ShardState};

use super::choices::Choices;

pub(crate) const LAG_BOUND: u64 = 8;

pub(crate) struct Planner {
    pub(crate) current: Assignment,
    pub(crate) reports: BTreeMap<BrokerId, ShardReport>,
    pub(crate) factor: usize,
    pub(crate) writes: Vec<String>,
}

impl Planner {
    fn report(&self, broker: &BrokerId) -> Option<&ShardReport> {
        self.reports.get(broker).filter(|r| r.generation == self.current.generation)
    }

    fn is_caught_up(&self, broker: &BrokerId) -> bool {
        self.report(broker).is_some_and(|r| r.caught_up)
    }

    fn is_near(&self, broker: &BrokerId) -> bool {
        let near = |r: &ShardReport| r.caught_up || r.lag_records.is_some_and(|l| l <= LAG_BOUND);
        self.report(broker).is_some_and(near)
    }

    fn leader_is(&self, phase: &str) -> bool {
        let leader = self.current.leader.as_ref();
        let phase_of = |b| self.report(b).and_then(|r| r.phase);
        leader.and_then(phase_of).is_some_and(|p| p.as_str() == phase)
    }

    fn leader_drained(&self) -> bool {
        let leader = self.current.leader.as_ref();
        leader.and_then(|b| self.report(b)).is_some_and(|r| r.drained)
    }

    fn write(&mut self, step: &str, mut next: Assignment) {
        next.generation += 1;
        self.writes.push(format!(
            "{} {step}: leader {} followers {:?} successor {:?} joining {:?} leaving {:?} {:?}",
            next.generation,
            next.leader.as_ref().map_or("-", |b| b.as_str()),
            next.followers.iter().map(BrokerId::as_str).collect::<Vec<_>>(),
            next.successor.as_ref().map(BrokerId::as_str),
            next.joining.as_ref().map(BrokerId::as_str),
            next.leaving.as_ref().map(BrokerId::as_str),
            next.state,
        ));
        self.current = next;
    }

    /// One write, if the rules allow one of the kind chosen.
    pub(crate) fn step(&mut self, choices: &mut Choices, brokers: &[BrokerId], up: &[BrokerId]) {
        let leader_up = self.current.leader.as_ref().is_some_and(|l| up.contains(l));
        // A lost leader is replaced; sometimes one is only believed to be lost.
        if !leader_up || choices.percent(2) {
            return self.promote(choices, up);
        }
        let now = self.current.clone();
        if now.state == ShardState::Draining {
            return self.while_fenced(choices, up);
        }
        if let Some(joiner) = &now.joining {
            return self.while_joining(choices, joiner.clone());
        }
        if let Some(successor) = &now.successor {
            let mut next = now.clone();
            if self.is_near(successor) {
                next.state = ShardState::Draining;
                return self.write("fence", next);
            }
            if choices.percent(3) {
                next.successor = None;
                return self.write("abandon", next);
            }
            return;
        }
        self.start(choices, brokers, up);
    }

    fn start(&mut self, choices: &mut Choices, brokers: &[BrokerId], up: &[BrokerId]) {
        let now = self.current.clone();
        let free: Vec<BrokerId> = brokers
            .iter()
            .filter(|b| now.role_of(b).is_none() && up.contains(b))
            .cloned()
            .collect();
        let mut next = now.clone();
        let lost: Vec<BrokerId> =
            now.followers.iter().filter(|b| !up.contains(b)).cloned().collect();
        // Repair may start before the shard serves: it may be what it needs to serve.
        if 1 + now.followers.len() < self.factor {
            next.joining = choices.pick(&free);
        } else if let Some(lost) = choices.pick(&lost) {
            next.joining = choices.pick(&free);
            next.leaving = Some(lost);
        } else if !self.leader_is("serving") {
            return;
        } else if choices.percent(50) {
            next.joining = choices.pick(&free);
            next.leaving = choices.pick(&now.followers);
            if next.leaving.is_none() {
                next.joining = None;
                next.successor = choices.pick(&free);
            }
        } else if choices.percent(50) && !now.followers.is_empty() {
            next.successor = choices.pick(&now.followers);
        } else {
            next.successor = choices.pick(&free);
        }
        if next.joining.is_some() || next.successor.is_some() {
            self.write("stage", next);
        }
    }

    fn while_joining(&mut self, choices: &mut Choices, joiner: BrokerId) {
        let mut next = self.current.clone();
        (next.joining, next.leaving) = (None, None);
        if self.is_caught_up(&joiner) {
            next.followers.retain(|b| Some(b) != self.current.leaving.as_ref());
            next.followers.push(joiner);
            self.write("seat", next);
        } else if choices.percent(3) {
            self.write("abandon", next);
        }
    }

    fn while_fenced(&mut self, choices: &mut Choices, up: &[BrokerId]) {
        let now = self.current.clone();
        let mut next = now.clone();
        next.successor = None;
        match &now.successor {
            Some(successor)
                if self.leader_drained() && up.contains(successor) && !choices.percent(15) =>
            {
                let old = now.leader.clone();
                next.followers.retain(|b| b != successor);
                let keep_old = choices.percent(50);
                if keep_old {
                    // The old leader stays in place of a follower, or the set grows by none.
                    if next.followers.len() + 1 >= self.factor && !now.followers.contains(successor)
                    {
                        next.followers.pop();
                    }
                    next.followers.extend(old.filter(|_| self.factor > 1));
                }
                next.leader = Some(successor.clone());
                next.state = ShardState::Assigning;
                self.write("cut_over", next);
            }
            Some(successor)
                if self.leader_drained() && (!up.contains(successor) || choices.percent(50)) =>
            {
                self.cut_over_elsewhere(choices, up);
            }
            Some(_) if choices.percent(5) => self.write("abandon fenced", next),
            None if self.leader_drained() || choices.percent(15) => {
                next.state = ShardState::Assigning;
                self.write("retake", next);
            }
            Some(_) if choices.percent(3) => {
                next.state = ShardState::Assigning;
                self.write("timed_out", next);
            }
            _ => {}
        }
    }

    fn heir(&self, choices: &mut Choices, up: &[BrokerId]) -> Option<BrokerId> {
        let able = |b: &&BrokerId| up.contains(b) && self.is_caught_up(b);
        let able: Vec<BrokerId> = self.current.followers.iter().filter(able).cloned().collect();
        choices.pick(&able)
    }

    /// The destination is lost after the drain: another caught-up replica leads.
    fn cut_over_elsewhere(&mut self, choices: &mut Choices, up: &[BrokerId]) {
        let Some(heir) = self.heir(choices, up) else { return };
        let mut next = self.current.clone();
        next.followers.retain(|b| *b != heir);
        if choices.percent(50) {
            next.followers.extend(self.current.leader.clone());
        }
        next.leader = Some(heir);
        next.state = ShardState::Assigning;
        next.successor = None;
        self.write("cut_over elsewhere", next);
    }

    fn promote(&mut self, choices: &mut Choices, up: &[BrokerId]) {
        let now = self.current.clone();
        let Some(heir) = self.heir(choices, up) else { return };
        let mut next = now.clone();
        next.followers.retain(|b| *b != heir);
        next.followers.extend(now.leader);
        next.leader = Some(heir);
        next.state = ShardState::Assigning;
        (next.successor, next.joining, next.leaving) = (None, None, None);
        self.write("promote", next);
    }
}
