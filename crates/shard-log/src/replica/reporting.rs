//! Reports: what the planner should know of this replica, told when it changes.

use evenkeel_model::{Phase, Role, ShardReport};

use super::{Replica, Stance};
use crate::message::Action;

impl Replica {
    /// What this replica has to say of itself now; nothing while it holds no assignment.
    pub fn current_report(&self) -> Option<ShardReport> {
        let held = self.memo.held.as_ref()?;
        let role = held.role_of(&self.me)?;
        let phase = self.phase_as(role);
        let is_level = self.is_level();
        let within = self.lag.is_none_or(|lag| lag <= self.config.lag_bound_records);
        let follows = matches!(phase, Phase::Following | Phase::Copying);
        let learns = matches!(role, Role::Successor | Role::Joining);
        let compared = !learns || self.memo.copied_from.is_none();
        let tells_lag = follows && compared && (is_level || role == Role::Successor);
        let is_drained = phase == Phase::Drained;
        Some(ShardReport {
            broker: self.me.clone(),
            shard: self.shard.clone(),
            generation: held.generation,
            phase: Some(phase),
            caught_up: follows && compared && is_level && within,
            lag_records: if tells_lag { self.lag } else { None },
            drained: is_drained,
            halted: self.halted.clone(),
            log_end: Some(self.log.end()),
            declined: false,
        })
    }

    /// What this replica is doing, for those who want to use it now: a leader that carries on into
    /// the next generation serves, although it reports so only when its start is committed.
    pub fn phase(&self) -> Option<Phase> {
        let phase = self.phase_as(self.role()?);
        let serves = self.halted.is_none() && self.serving_term().is_some();
        Some(if serves { Phase::Serving } else { phase })
    }

    /// Whether its leader of the held generation said that it holds everything committed.
    pub fn is_level(&self) -> bool {
        self.memo.level_at != 0 && self.memo.level_at == self.generation()
    }

    /// Whether a leader said so, of the held generation or of a later one that this replica has not
    /// heard of otherwise: from then on what is here counts, and a copy has no business with it.
    pub fn is_fed(&self) -> bool {
        self.memo.level_at != 0 && self.memo.level_at >= self.generation()
    }

    /// What this replica reports that it is doing.
    fn phase_as(&self, role: Role) -> Phase {
        if self.halted.is_some() {
            return Phase::Halted;
        }
        match (role, &self.stance) {
            (Role::Leader, Stance::Leading(leading)) if self.is_fenced() => {
                if leading.drained {
                    Phase::Drained
                } else {
                    Phase::Fencing
                }
            }
            (Role::Leader, Stance::Leading(leading)) if leading.serves => Phase::Serving,
            (Role::Leader, _) => Phase::Opening,
            (Role::Follower, _) => Phase::Following,
            (Role::Successor | Role::Joining, _) => Phase::Copying,
        }
    }

    /// Tells the report if it says something new.
    pub(super) fn report(&mut self) {
        let Some(report) = self.current_report() else { return };
        // A leader that carries on is about to commit its start; until then there is no news.
        if report.phase == Some(Phase::Opening)
            && matches!(&self.stance, Stance::Leading(l) if l.accepts)
        {
            return;
        }
        if let Some((told, at)) = &self.reported {
            let bound = self.config.lag_bound_records;
            let near = |r: &ShardReport| r.lag_records.map(|lag| lag <= bound);
            let same = told.generation == report.generation
                && told.phase == report.phase
                && told.caught_up == report.caught_up
                && told.drained == report.drained
                && told.halted == report.halted
                && near(told) == near(&report);
            let progress = report.phase == Some(Phase::Copying)
                && told.log_end != report.log_end
                && self.now >= at + self.config.progress_ms;
            if same && !progress {
                return;
            }
        }
        self.reported = Some((report.clone(), self.now));
        self.actions.push(Action::Report(report));
    }

    /// When a learner's progress may be told next.
    pub(super) fn progress_due_at(&self) -> Option<u64> {
        let (told, at) = self.reported.as_ref()?;
        let moved = told.phase == Some(Phase::Copying) && told.log_end != Some(self.log.end());
        moved.then_some(at + self.config.progress_ms)
    }
}
