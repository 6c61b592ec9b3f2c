//! Answering other replicas: promises, appends, fetches.

use evenkeel_model::{BrokerId, Role};

use super::{Replica, Stance};
use crate::log::{LogError, ReadLimit};
use crate::message::{Action, Answer, Append, Request};
use crate::record::{Position, Record, Term};

/// An append that is answered once its records are durable.
pub(super) struct PendingAck {
    reply: u64,
    term: Term,
    matched: u64,
    level: u64,
    counted: bool,
}

impl Replica {
    pub(super) fn asked(&mut self, reply: u64, request: Request) -> Result<(), LogError> {
        if self.halted.is_some() {
            // No answer that could be taken for a promise or a durable record.
            let answer = match request {
                Request::Promise { .. } => self.promise_answer(false),
                Request::Append(_) => self.refused_append("the replica halted"),
                Request::Fetch { .. } => self.refused_fetch(),
            };
            self.actions.push(Action::Reply { reply, answer });
            return Ok(());
        }
        match request {
            Request::Promise { term, leader } => self.promise(reply, term, &leader),
            Request::Append(append) => self.append(reply, append),
            Request::Fetch { term, from, prev_term, max_bytes } => {
                let answer = self.fetch(term, from, prev_term, max_bytes)?;
                self.actions.push(Action::Reply { reply, answer });
                Ok(())
            }
        }
    }

    /// Whether the leader of `term` may be obeyed: nothing newer is known, and a generation has one
    /// leader.
    fn may_obey(&self, term: Term, leader: &BrokerId) -> bool {
        let promised = self.memo.promised;
        let same_leader = self.memo.promised_to.as_deref() == Some(leader.as_str());
        // The same leader may not have heard of the assignment held here, and is about to go on.
        let leads_on = self.memo.held.as_ref().is_some_and(|a| a.leader.as_ref() == Some(leader));
        term >= promised
            && (term.generation >= self.generation() || leads_on)
            && (term.generation > promised.generation || same_leader)
            && *leader != self.me
    }

    /// What is known here that outdates an asker.
    fn known_term(&self) -> Term {
        self.memo.promised.max(Term::new(self.generation(), 0))
    }

    /// Obeys the leader of `term` from here on.
    fn obey(&mut self, term: Term, leader: &BrokerId) -> Result<(), LogError> {
        if term > self.memo.promised {
            self.step_down();
            self.refuse_acks("a newer term was promised");
            let leader = leader.to_string();
            self.save_memo(|memo| {
                memo.promised = term;
                memo.promised_to = Some(leader);
            })?;
        }
        Ok(())
    }

    fn promise(&mut self, reply: u64, term: Term, leader: &BrokerId) -> Result<(), LogError> {
        let granted = self.may_obey(term, leader);
        if granted {
            self.obey(term, leader)?;
        }
        let answer = self.promise_answer(granted);
        self.actions.push(Action::Reply { reply, answer });
        Ok(())
    }

    fn promise_answer(&self, granted: bool) -> Answer {
        let (promised, position) = (self.known_term(), self.log.position());
        Answer::Promise { granted, promised, position, trusted: self.memo.trusted }
    }

    fn refused_append(&self, detail: &str) -> Answer {
        Answer::Append {
            accepted: false,
            promised: self.known_term(),
            matched: 0,
            end: self.log.end(),
            level: false,
            retry_from: None,
            detail: detail.to_owned(),
        }
    }

    fn append(&mut self, reply: u64, mut append: Append) -> Result<(), LogError> {
        if !self.may_obey(append.term, &append.leader) {
            let answer = self.refused_append("a newer generation is known here");
            self.actions.push(Action::Reply { reply, answer });
            return Ok(());
        }
        self.obey(append.term, &append.leader)?;
        if let Err(detail) = self.begin_at_own_start(&mut append) {
            let answer = self.refused_append(detail);
            self.actions.push(Action::Reply { reply, answer });
            return Ok(());
        }
        let mismatch = self.mismatch(append.prev_end, append.prev_term);
        if mismatch.is_some() && append.from_start {
            let begins = Position { term: append.prev_term, end: append.prev_end };
            match self.restart_log(begins) {
                Err(e) if e.is_passing() => {
                    let answer = self.refused_append(&e.to_string());
                    self.actions.push(Action::Reply { reply, answer });
                    return Ok(());
                }
                other => other?,
            }
        } else if let Some(retry_from) = mismatch {
            let mut answer = self.refused_append("the logs differ before the records");
            if let Answer::Append { retry_from: hint, .. } = &mut answer {
                *hint = Some(retry_from);
            }
            self.actions.push(Action::Reply { reply, answer });
            return Ok(());
        }
        let matched = append.prev_end + append.records.len() as u64;
        if let Err(e) = self.store(&append.records) {
            if !e.is_passing() {
                return Err(e);
            }
            let answer = self.refused_append(&e.to_string());
            self.actions.push(Action::Reply { reply, answer });
            return Ok(());
        }
        self.committed = self.committed.max(append.committed.min(matched));
        self.lag = Some(append.leader_end.saturating_sub(matched));
        let Append { term, level, counted, .. } = append;
        self.acks.push(PendingAck { reply, term, matched, level, counted });
        Ok(())
    }

    /// Where to try again if the record before `prev_end` is not of `prev_term`.
    fn mismatch(&self, prev_end: u64, prev_term: Term) -> Option<u64> {
        match self.log.term_before(prev_end) {
            None => Some(self.log.end()),
            Some(term) if term == prev_term => None,
            Some(_) => Some(self.log.run_start(prev_end - 1).max(self.log.start())),
        }
    }

    /// Stores the leader's records: those that are there already are skipped, those that differ
    /// give way.
    fn store(&mut self, records: &[Record]) -> Result<(), LogError> {
        let start = self.log.start();
        let records = &records[records.partition_point(|r| r.offset < start)..];
        let known = records.iter().take_while(|r| self.log.term_at(r.offset) == Some(r.term));
        let new = &records[known.count()..];
        let Some(first) = new.first() else { return Ok(()) };
        if first.offset < self.log.end() {
            if first.offset < self.committed {
                return Err(LogError::Differs { offset: first.offset });
            }
            self.refuse_acks("the records gave way to a newer term's");
            self.log.truncate_from(first.offset)?;
        }
        self.log.append(new)
    }

    /// Answers the appends whose records have become durable.
    pub(super) fn answer_synced(&mut self) -> Result<(), LogError> {
        let synced = self.log.synced_end();
        let ready: Vec<PendingAck> = self.acks.extract_if(.., |a| a.matched <= synced).collect();
        for ack in ready {
            let generation = ack.term.generation;
            let is_level = ack.counted && ack.matched >= ack.level;
            if is_level {
                let is_current = generation >= self.generation();
                self.save_memo(|memo| {
                    memo.trusted = true;
                    memo.level_at = memo.level_at.max(generation);
                    if is_current {
                        memo.larger_before.clear();
                    }
                })?;
            }
            let answer = Answer::Append {
                accepted: true,
                promised: self.memo.promised,
                matched: ack.matched,
                end: self.log.end(),
                level: is_level,
                retry_from: None,
                detail: String::new(),
            };
            self.actions.push(Action::Reply { reply: ack.reply, answer });
        }
        Ok(())
    }

    /// Appends not yet answered are not going to be: their records may be gone, or their leader
    /// must not count them any more.
    pub(super) fn refuse_acks(&mut self, detail: &str) {
        for ack in std::mem::take(&mut self.acks) {
            let answer = self.refused_append(detail);
            self.actions.push(Action::Reply { reply: ack.reply, answer });
        }
    }

    fn fetch(
        &self,
        term: Term,
        from: u64,
        prev_term: Term,
        max_bytes: usize,
    ) -> Result<Answer, LogError> {
        if term != self.memo.promised {
            return Ok(self.refused_fetch());
        }
        if from < self.log.start() {
            let begins = Some(self.log.beginning());
            let records = Vec::new();
            return Ok(Answer::Fetch { records, retry_from: None, promised: term, begins });
        }
        let retry_from = self.mismatch(from, prev_term);
        let records = match retry_from {
            Some(_) => Vec::new(),
            None => self.log.read(from, ReadLimit::bytes(u64::MAX, max_bytes))?,
        };
        Ok(Answer::Fetch { records, retry_from, promised: term, begins: None })
    }

    fn refused_fetch(&self) -> Answer {
        let promised = self.known_term();
        Answer::Fetch { records: Vec::new(), retry_from: None, promised, begins: None }
    }

    /// Appends committed records that a copy brings to a learner. Records that it has are skipped,
    /// those that differ give way. The answer is the new end; it is durable after the next sync.
    pub fn copy_append(&mut self, now: u64, records: &[Record]) -> Result<u64, CopyRefusal> {
        self.now = self.now.max(now);
        self.check_learner()?;
        if let Some(first) = records.first() {
            if first.offset > self.log.end() {
                return Err(CopyRefusal::Gap { first: first.offset, end: self.log.end() });
            }
            if self.memo.copied_from.is_none_or(|from| first.offset < from) {
                self.save_memo(|memo| memo.copied_from = Some(first.offset))?;
            }
        }
        self.store(records)?;
        Ok(self.log.end())
    }

    /// Where the records begin that a copy brought and nobody compared with their source yet.
    pub fn copied_from(&self) -> Option<u64> {
        self.memo.copied_from.map(|from| from.max(self.log.start()))
    }

    /// What copies brought was compared with their source, as it is stored here.
    pub fn copy_verified(&mut self, now: u64) -> Result<u64, CopyRefusal> {
        self.now = self.now.max(now);
        self.save_memo(|memo| memo.copied_from = None)?;
        Ok(self.log.end())
    }

    /// Throws away a learner's records from `offset` on.
    pub fn copy_truncate(&mut self, now: u64, offset: u64) -> Result<u64, CopyRefusal> {
        self.now = self.now.max(now);
        self.check_learner()?;
        let offset = offset.max(self.log.start());
        if offset < self.log.end() {
            self.refuse_acks("the records were thrown away");
            self.log.truncate_from(offset)?;
            self.committed = self.committed.min(offset);
        }
        if self.memo.copied_from.is_some_and(|from| from >= offset) {
            self.save_memo(|memo| memo.copied_from = None)?;
        }
        Ok(self.log.end())
    }

    /// A copy may write only to a learner that no leader counts.
    fn check_learner(&self) -> Result<(), CopyRefusal> {
        if let Some(detail) = &self.halted {
            return Err(CopyRefusal::Halted(detail.clone()));
        }
        let is_learner = matches!(self.role(), Some(Role::Successor | Role::Joining));
        if !is_learner || self.is_fed() || self.leads() {
            return Err(CopyRefusal::NoLearner);
        }
        Ok(())
    }

    fn leads(&self) -> bool {
        !matches!(self.stance, Stance::Following)
    }
}

/// Why a copy's records were not taken.
#[derive(Debug, thiserror::Error)]
pub enum CopyRefusal {
    /// The replica votes, leads or is level already.
    #[error("this replica takes no copy: it is no learner, or is level already")]
    NoLearner,
    /// The replica cannot go on.
    #[error("the replica halted: {0}")]
    Halted(String),
    /// Records are missing before the first one.
    #[error("the copy begins at offset {first}, but the log ends at {end}")]
    Gap {
        /// Offset of the first record.
        first: u64,
        /// End of the log.
        end: u64,
    },
    /// The log cannot take them.
    #[error(transparent)]
    Log(#[from] LogError),
}
