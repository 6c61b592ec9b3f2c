//! Where the log begins: decided by the leader, followed by every replica once it is committed.
//!
//! What is before a start is committed, so it is the same on every replica of the set: nobody needs
//! to compare it. A log that ends before its leader's begins starts anew there, and counts for
//! nothing before.

use evenkeel_model::BrokerId;

use super::{NO_ROOM_RETRY_MS, Replica, Stance};
use crate::log::{LogError, start_payload};
use crate::message::{Action, Append};
use crate::record::{Position, Record, RecordKind};

impl Replica {
    /// As leader, asks all replicas to begin at `offset`; nothing if that is not possible now.
    pub(super) fn give_up_before(
        &mut self,
        offset: u64,
        timestamp_ms: i64,
    ) -> Result<(), LogError> {
        let Ok(term) = self.proposal_term(1) else { return Ok(()) };
        if offset <= self.log.asked_start() || offset > self.committed {
            return Ok(());
        }
        let record = Record {
            term,
            offset: self.log.end(),
            timestamp_ms,
            producer: 0,
            sequence: 0,
            kind: RecordKind::LogStart,
            payload: start_payload(offset),
        };
        self.log.append(std::slice::from_ref(&record))
    }

    /// Begins where committed records say. Without room for that everything else goes on.
    pub(super) fn follow_start(&mut self) -> Result<(), LogError> {
        if self.start_retry_at.is_some_and(|at| self.now < at) {
            return Ok(());
        }
        let before = self.log.start();
        match self.log.follow_start(self.committed) {
            Err(e) if e.is_passing() => {
                if self.start_retry_at.is_none() {
                    self.actions
                        .push(Action::Note(format!("the log's start cannot move yet: {e}")));
                }
                self.start_retry_at = Some(self.now + NO_ROOM_RETRY_MS);
                return Ok(());
            }
            followed => followed?,
        }
        self.start_retry_at = None;
        let start = self.log.start();
        if start > before {
            let note = format!("the log begins at {start} from here on");
            self.actions.push(Action::Note(note));
        }
        Ok(())
    }

    /// Makes an append begin no earlier than this log does: what it leaves out is here, or was here
    /// and was given up. `Err` says why it cannot be so.
    pub(super) fn begin_at_own_start(&self, append: &mut Append) -> Result<(), &'static str> {
        let own = self.log.beginning();
        if append.prev_end >= own.end {
            return Ok(());
        }
        if append.leader_end < own.end {
            return Err("the leader's log ends before this one begins");
        }
        let known = append.records.partition_point(|r| r.offset < own.end);
        append.records.drain(..known);
        (append.prev_end, append.prev_term) = (own.end, own.term);
        Ok(())
    }

    /// Begins anew at `position`, where a log begins that holds everything committed and that this
    /// one does not meet.
    pub(super) fn restart_log(&mut self, position: Position) -> Result<(), LogError> {
        let at = position.end;
        if at < self.log.start() || at < self.committed {
            return Err(LogError::Differs { offset: at.saturating_sub(1) });
        }
        self.refuse_acks("the log begins anew");
        let end = self.log.end();
        self.log.restart_at(position)?;
        self.committed = self.committed.max(at);
        let note = format!("the log ended at {end} and begins anew at {at}");
        self.actions.push(Action::Note(note));
        Ok(())
    }

    /// A source begins behind what was asked of it: this log is to begin there too.
    pub(super) fn fetched_start(
        &mut self,
        from: &BrokerId,
        begins: Position,
    ) -> Result<(), LogError> {
        if begins.end > self.log.start() {
            self.restart_log(begins)?;
        }
        let end = self.log.end();
        if let Stance::Opening(opening) = &mut self.stance {
            opening.fetch_from(from, end);
        }
        Ok(())
    }
}
