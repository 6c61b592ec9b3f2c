//! Leading: shipping records, counting who holds them, committing, draining.

use std::collections::BTreeMap;

use bytes::Bytes;
use evenkeel_model::{Assignment, BrokerId, Role};

use super::peers::{News, Peer, Told};
use super::{Replica, Stance};
use crate::log::{LogError, ReadLimit};
use crate::message::{Action, Answer, Append, Request};
use crate::quorum::held_by_quorum;
use crate::record::{Record, RecordKind, Term};

/// A leader whose start record is in its log.
pub(super) struct Leading {
    pub(super) term: Term,
    /// Offset of the start record; before the log's end except where it drained earlier.
    start: u64,
    pub(super) peers: BTreeMap<BrokerId, Peer>,
    /// Proposals under way, by the end that must be committed for them and their id, with their
    /// offsets.
    pub(super) proposals: BTreeMap<(u64, u64), Vec<u64>>,
    /// Takes proposals unless fenced: the start record is committed, or leadership went on.
    pub(super) accepts: bool,
    /// The start record is committed.
    pub(super) serves: bool,
    pub(super) drained: bool,
}

impl Leading {
    /// Logs that match up to here hold everything committed.
    fn level(&self, committed: u64) -> u64 {
        committed.max(self.start)
    }
}

impl Replica {
    /// Appends the start record of `term` and leads. A leader that goes on keeps its proposals and
    /// takes more.
    pub(super) fn lead(&mut self, term: Term) -> Result<(), LogError> {
        let record = Record {
            term,
            offset: self.log.end(),
            timestamp_ms: 0,
            producer: 0,
            sequence: 0,
            kind: RecordKind::GenerationStart,
            payload: Bytes::new(),
        };
        match self.log.append(std::slice::from_ref(&record)) {
            Err(e @ LogError::DiskFull { .. }) => {
                self.actions.push(Action::Note(format!("cannot open yet: {e}")));
                return Ok(());
            }
            other => other?,
        }
        let start = record.offset + 1;
        let mut leading = Leading {
            term,
            start,
            peers: BTreeMap::new(),
            proposals: BTreeMap::new(),
            accepts: false,
            serves: false,
            drained: false,
        };
        let mut known = BTreeMap::new();
        if let Stance::Leading(earlier) = &mut self.stance {
            leading.proposals = std::mem::take(&mut earlier.proposals);
            known = std::mem::take(&mut earlier.peers);
            leading.accepts = earlier.accepts;
        }
        for (broker, role) in self.others() {
            let peer = match known.remove(&broker) {
                Some(mut peer) => {
                    peer.renew(role);
                    peer
                }
                None => Peer::new(role, record.offset),
            };
            leading.peers.insert(broker, peer);
        }
        self.stance = Stance::Leading(leading);
        Ok(())
    }

    /// Leads on in the next generation, whose first term it has promised to itself.
    pub(super) fn go_on(&mut self) -> Result<(), LogError> {
        let term = self.memo.promised;
        self.lead(term)?;
        if let Stance::Leading(leading) = &self.stance
            && leading.term != term
        {
            // There was no room for the start record: open in full once there is.
            self.step_down();
            return self.begin_opening();
        }
        Ok(())
    }

    /// After a restart of a leader that had drained: everything is committed and nothing more is
    /// appended in this generation.
    pub(super) fn resume_drained(&mut self, term: Term) -> Result<(), LogError> {
        let end = self.log.end();
        self.committed = end;
        let peers = self.others().into_iter().map(|(b, role)| (b, Peer::new(role, end))).collect();
        self.stance = Stance::Leading(Leading {
            term,
            start: end,
            peers,
            proposals: BTreeMap::new(),
            accepts: false,
            serves: true,
            drained: true,
        });
        Ok(())
    }

    /// Every other member with its role.
    fn others(&self) -> Vec<(BrokerId, Role)> {
        let members = self.memo.held.as_ref().map(Assignment::members).unwrap_or_default();
        members.into_iter().filter(|(b, _)| **b != self.me).map(|(b, r)| (b.clone(), r)).collect()
    }

    /// Whether commits need the set with the joiner too.
    fn is_joint(&self) -> bool {
        self.memo.joint_at == self.generation() && self.generation() > 0
    }

    fn counts(&self, role: Role) -> bool {
        role != Role::Joining || self.is_joint()
    }

    /// Offset up to which the voters, and the voters after the seat, hold the log.
    fn held_by_voters(&self, leading: &Leading) -> u64 {
        let Some(held) = &self.memo.held else { return 0 };
        let end_of = |broker: &BrokerId| {
            if *broker == self.me {
                return self.log.synced_end();
            }
            leading.peers.get(broker).map_or(0, |p| p.matched)
        };
        let now = held_by_quorum(held.voters().map(end_of).collect());
        if !self.is_joint() || !self.config.joint_counting {
            return now;
        }
        let stays = held.voters().filter(|b| held.leaving.as_ref() != Some(*b));
        let after = held_by_quorum(stays.chain(&held.joining).map(end_of).collect());
        now.min(after)
    }

    /// Commits what a quorum holds, counts a joiner that has become level, and notes a drain.
    pub(super) fn advance_commit(&mut self) -> Result<(), LogError> {
        let Stance::Leading(leading) = &self.stance else { return Ok(()) };
        let held = self.held_by_voters(leading);
        if held >= leading.start && held > self.committed {
            self.committed = held;
        }
        let (starts_serving, level) =
            (!leading.serves && held >= leading.start, leading.level(self.committed));
        let joins = !self.is_joint()
            && leading.peers.values().any(|p| p.role == Role::Joining && p.matched >= level);
        if starts_serving {
            let generation = leading.term.generation;
            self.save_memo(|memo| {
                memo.trusted = true;
                memo.level_at = generation;
                memo.larger_before.clear();
            })?;
        }
        if joins {
            let generation = self.generation();
            self.save_memo(|memo| memo.joint_at = generation)?;
        }
        let committed = self.committed;
        let Stance::Leading(leading) = &mut self.stance else { return Ok(()) };
        if starts_serving {
            leading.serves = true;
            leading.accepts = true;
        }
        while let Some(entry) = leading.proposals.first_entry()
            && entry.key().0 <= committed
        {
            let ((_, id), offsets) = entry.remove_entry();
            self.actions.push(Action::Committed { id, offsets });
        }
        self.note_drain()
    }

    /// Fenced, everything durable and committed, and the destination level: nothing is missing.
    fn note_drain(&mut self) -> Result<(), LogError> {
        let Stance::Leading(leading) = &self.stance else { return Ok(()) };
        let end = self.log.end();
        let all_there = self.committed == end && self.log.synced_end() == end;
        if leading.drained || !leading.serves || !self.is_fenced() || !all_there {
            return Ok(());
        }
        let successor = self.memo.held.as_ref().and_then(|a| a.successor.as_ref());
        let is_level = successor.is_none_or(|successor| {
            *successor == self.me
                || leading.peers.get(successor).is_some_and(|p| p.matched == end && p.level)
        });
        if is_level {
            let generation = leading.term.generation;
            self.save_memo(|memo| (memo.drained_at, memo.drained_end) = (generation, end))?;
            if let Stance::Leading(leading) = &mut self.stance {
                leading.drained = true;
            }
        }
        Ok(())
    }

    fn news(&self, peer: &Peer) -> News {
        let end = self.log.end();
        let counted = self.counts(peer.role);
        // Only what a copy can bring counts as far; once commits wait for it, nothing does.
        let gap = self.copyable_end().saturating_sub(peer.matched);
        let unbounded = match peer.role {
            Role::Leader | Role::Follower => true,
            Role::Successor => self.is_fenced(),
            Role::Joining => counted,
        };
        let far = !unbounded && gap > self.config.lag_bound_records;
        News { end, committed: self.committed, counted, far }
    }

    /// Records before this offset may be copied from here: those that are committed, and as leader
    /// those that it opened with, which a shard may need copied before it can commit again.
    pub fn copyable_end(&self) -> u64 {
        match &self.stance {
            Stance::Leading(leading) => leading.level(self.committed),
            _ => self.committed,
        }
    }

    pub(super) fn leading_wake_at(&self) -> Option<u64> {
        let Stance::Leading(leading) = &self.stance else { return None };
        leading.peers.values().map(|p| p.due_at(&self.news(p), &self.config)).min()
    }

    /// Sends each member what is due; at most one append is under way to each.
    pub(super) fn send_appends(&mut self) -> Result<(), LogError> {
        let (now, backoff) = (self.now, self.config.backoff_ms);
        let Stance::Leading(leading) = &mut self.stance else { return Ok(()) };
        for peer in leading.peers.values_mut() {
            if peer.sent.as_ref().is_some_and(|s| now >= s.at + self.config.answer_timeout_ms) {
                peer.failed(now, backoff);
            }
        }
        let Stance::Leading(leading) = &self.stance else { return Ok(()) };
        let due: Vec<BrokerId> = leading
            .peers
            .iter()
            .filter(|(_, p)| p.sent.is_none() && p.due_at(&self.news(p), &self.config) <= now)
            .map(|(broker, _)| broker.clone())
            .collect();
        for broker in due {
            self.send_append(broker)?;
        }
        Ok(())
    }

    fn send_append(&mut self, to: BrokerId) -> Result<(), LogError> {
        let Stance::Leading(leading) = &self.stance else { return Ok(()) };
        let Some(peer) = leading.peers.get(&to) else { return Ok(()) };
        let news = self.news(peer);
        let start = self.log.start();
        let prev_end = peer.next.max(start).min(news.end);
        let records = if peer.probing || news.far {
            Vec::new()
        } else {
            self.log.read(prev_end, ReadLimit::bytes(u64::MAX, self.config.append_bytes))?
        };
        let append = Append {
            term: leading.term,
            leader: self.me.clone(),
            prev_end,
            prev_term: self.log.term_before(prev_end).unwrap_or_default(),
            records,
            committed: news.committed,
            leader_end: news.end,
            level: leading.level(news.committed),
            counted: news.counted,
            from_start: prev_end == start && start > 0,
        };
        let id = self.fresh_id();
        let now = self.now;
        if let Stance::Leading(leading) = &mut self.stance
            && let Some(peer) = leading.peers.get_mut(&to)
        {
            peer.note_sent(id, now, Told { committed: news.committed, counted: news.counted });
        }
        self.actions.push(Action::Send { to, id, request: Request::Append(append) });
        Ok(())
    }

    pub(super) fn leading_answered(
        &mut self,
        from: &BrokerId,
        id: u64,
        answer: Option<Answer>,
    ) -> Result<(), LogError> {
        let (now, backoff) = (self.now, self.config.backoff_ms);
        let (own_start, own_end) = (self.log.start(), self.log.end());
        let Stance::Leading(leading) = &mut self.stance else { return Ok(()) };
        let term = leading.term;
        let Some(peer) = leading.peers.get_mut(from) else { return Ok(()) };
        if peer.sent.as_ref().is_none_or(|s| s.id != id) {
            return Ok(());
        }
        let Some(Answer::Append { accepted, promised, matched, end, level, retry_from, .. }) =
            answer
        else {
            peer.failed(now, backoff);
            return Ok(());
        };
        if promised > term {
            let note = format!("leads no more: {from} promised {promised}");
            self.actions.push(Action::Note(note));
            self.step_down();
            return Ok(());
        }
        if accepted {
            peer.accepted(matched, level);
            if !peer.is_voter() {
                peer.look_ahead(end.min(own_end));
            }
        } else if let Some(retry_from) = retry_from
            // There is nothing before the start to look at.
            && (retry_from >= own_start || peer.next > own_start)
        {
            peer.mismatched(retry_from);
        } else {
            peer.failed(now, backoff);
        }
        Ok(())
    }
}
