//! Acting on an assignment.

use std::collections::BTreeSet;

use evenkeel_model::{Assignment, BrokerId, Role, ShardState};

use super::opening::Opening;
use super::{Replica, Stance};
use crate::log::LogError;
use crate::message::Action;
use crate::record::Term;

/// First opening of a generation by a replica whose log is not known to be whole.
const FORGETFUL_OPENING: u32 = 1 << 16;

impl Replica {
    /// Acts on an assignment unless it is older than the one held, differs at its generation, or names
    /// a leader that may not be it.
    pub(super) fn assigned(&mut self, assignment: Assignment) -> Result<(), LogError> {
        if let Some(held) = &self.memo.held {
            let (given, known) = (assignment.generation, held.generation);
            if given < known {
                let note = format!("refused assignment {given}: older than {known}, which is held");
                self.actions.push(Action::Note(note));
                return Ok(());
            }
            if given == known && *held != assignment {
                let note = format!("refused assignment {given}: another one of it is held");
                self.actions.push(Action::Note(note));
                return Ok(());
            }
        }
        let role = assignment.role_of(&self.me);
        if role == Some(Role::Leader) && !self.may_lead(assignment.generation) {
            return Ok(());
        }
        let same = self.generation() == assignment.generation;
        if same && (self.is_active() || role != Some(Role::Leader)) {
            return Ok(());
        }
        let level_at = self.level_carried_to(&assignment);
        let born_trusted = self.memo.held.is_none()
            && assignment.generation == 1
            && matches!(role, Some(Role::Leader | Role::Follower));
        let larger_before = self.larger_before(&assignment);
        let goes_on = self.goes_on_in(&assignment);
        if !goes_on {
            self.step_down();
        }
        self.lag = None;
        let generation = assignment.generation;
        let next = assignment.clone();
        let opens =
            role == Some(Role::Leader) && !goes_on && self.memo.promised.generation < generation;
        let me = self.me.to_string();
        if opens {
            self.refuse_acks("a newer term was promised");
        }
        if let Err(e) = self.save_memo(|memo| {
            memo.held = Some(next);
            memo.level_at = level_at;
            memo.trusted |= born_trusted;
            memo.larger_before = larger_before;
            // With the promise to itself in the same write: each waits for the disk.
            if goes_on {
                memo.promised = Term::new(generation, 1);
            } else if opens {
                memo.promised = first_opening(generation, memo.trusted);
                memo.promised_to = Some(me);
            }
        }) {
            self.step_down();
            self.unsaved = Some(assignment);
            return Err(e);
        }
        let begun = match role {
            Some(Role::Leader) if goes_on => self.go_on(),
            Some(Role::Leader) if opens => {
                self.ask_for_promises();
                Ok(())
            }
            Some(Role::Leader) => self.begin_opening(),
            _ => Ok(()),
        };
        if begun.as_ref().is_err_and(LogError::is_passing) {
            // It is noted as held: told again, it opens.
            self.step_down();
            self.unsaved = Some(assignment);
        }
        begun
    }

    /// A replica that halted accepts no generation that it cannot lead: as long as it has not, it can
    /// decline it.
    fn may_lead(&self, generation: u64) -> bool {
        self.halted.is_none() && self.memo.declined != generation
    }

    /// The generation that it last declined to lead, 0 if none.
    pub fn declined(&self) -> u64 {
        self.memo.declined
    }

    fn is_active(&self) -> bool {
        !matches!(self.stance, Stance::Following)
    }

    /// A leader that is named again in the very next generation has no one between to ask: it
    /// carries on, so that a step of a move fails no publish.
    fn goes_on_in(&self, next: &Assignment) -> bool {
        let Stance::Leading(leading) = &self.stance else { return false };
        next.leader.as_ref() == Some(&self.me)
            && next.generation == leading.term.generation + 1
            && self.memo.promised == leading.term
    }

    /// Where this log was level, or the generation that inherits it: each open quorum of the old
    /// set has what is committed, and keeps it if at most one member changed, for one that was
    /// level. A set that shrinks must first commit in its own generation.
    fn level_carried_to(&self, next: &Assignment) -> u64 {
        let Some(held) = &self.memo.held else { return self.memo.level_at };
        if self.memo.level_at != held.generation || next.generation != held.generation + 1 {
            return self.memo.level_at;
        }
        let before: BTreeSet<&BrokerId> = held.voters().collect();
        let after: BTreeSet<&BrokerId> = next.voters().collect();
        let added: Vec<&BrokerId> = after.difference(&before).copied().collect();
        let added_was_level = added.iter().all(|broker| {
            held.joining.as_ref() == Some(*broker) || held.successor.as_ref() == Some(*broker)
        });
        if after.contains(&self.me)
            && after.len() >= before.len()
            && added.len() <= 1
            && added_was_level
        {
            return next.generation;
        }
        self.memo.level_at
    }

    /// The voters before a set shrinks. What a quorum of them committed need not be on a quorum of
    /// those that stay, unless the leader was the destination that drained with everything.
    ///
    /// Generations may be missed. No planner names a leader of which it knows nothing at the
    /// generation before: who is told to lead after some that it did not hear of led in those, too,
    /// and nothing was committed since the one that it holds.
    fn larger_before(&self, next: &Assignment) -> Vec<BrokerId> {
        let Some(held) = &self.memo.held else { return Vec::new() };
        let follows = held.generation + 1 == next.generation;
        if !follows && next.leader.as_ref() != Some(&self.me) {
            return Vec::new();
        }
        let shrinks = next.voters().count() < held.voters().count();
        if !self.memo.larger_before.is_empty() {
            return self.memo.larger_before.clone();
        }
        if !shrinks || held.successor.as_ref() == Some(&self.me) {
            return Vec::new();
        }
        held.voters().cloned().collect()
    }

    /// Starts to open the held generation, unless a newer one was promised already.
    pub(super) fn begin_opening(&mut self) -> Result<(), LogError> {
        let generation = self.generation();
        let promised = self.memo.promised;
        if promised.generation > generation {
            let note = format!("generation {generation} is not opened: {promised} was promised");
            self.actions.push(Action::Note(note));
            return Ok(());
        }
        if self.memo.drained_at == generation && promised.generation == generation {
            return self.resume_drained(promised);
        }
        if promised.generation == generation {
            return self.open_as(Term::new(generation, promised.opening + 1));
        }
        self.open_as(first_opening(generation, self.memo.trusted))
    }

    /// Promises `term` to itself, and asks the others.
    pub(super) fn open_as(&mut self, term: Term) -> Result<(), LogError> {
        let me = self.me.to_string();
        self.refuse_acks("a newer term was promised");
        self.save_memo(|memo| {
            memo.promised = term;
            memo.promised_to = Some(me);
        })?;
        self.ask_for_promises();
        Ok(())
    }

    /// Begins to open the term that it promised to itself.
    fn ask_for_promises(&mut self) {
        let position = self.log.position();
        let held = self.memo.held.as_ref();
        let voters = held.into_iter().flat_map(Assignment::voters).cloned().collect();
        let before = self.memo.larger_before.clone();
        let mut opening = Opening::new(self.memo.promised, &self.me, [voters, before]);
        opening.granted(self.me.clone(), position, self.memo.trusted);
        self.stance = Stance::Opening(opening);
    }

    /// Whether the held assignment fences its leader.
    pub(super) fn is_fenced(&self) -> bool {
        self.memo.held.as_ref().is_some_and(|a| a.state == ShardState::Draining)
    }
}

/// The first term in which a leader opens a generation that it promised to nobody yet.
fn first_opening(generation: u64, trusted: bool) -> Term {
    // On a disk that was replaced, earlier openings are forgotten and not to be repeated.
    Term::new(generation, if trusted { 1 } else { FORGETFUL_OPENING })
}
