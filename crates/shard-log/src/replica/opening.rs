//! Opening a generation: promises, the most advanced log, the start record.

use std::collections::BTreeMap;

use evenkeel_model::BrokerId;

use super::{Replica, Stance};
use crate::log::LogError;
use crate::message::{Action, Answer, Request};
use crate::quorum::open_quorum;
use crate::record::{Position, Term};

/// Shortest and longest wait between tries that failed, milliseconds. A member of a new set may
/// hear of its assignment a moment later than the leader.
const FIRST_RETRY_MS: u64 = 20;
const RETRY_MS: u64 = 200;

/// A leader before its start record.
pub(super) struct Opening {
    pub(super) term: Term,
    promises: BTreeMap<BrokerId, Promised>,
    others: BTreeMap<BrokerId, Asked>,
    /// An open quorum of each is needed: the voters, and those before the set shrank.
    sets: Vec<Vec<BrokerId>>,
    fetch: Option<Fetch>,
    /// No earlier than this is the start record tried again, after the disk was full.
    retry_at: u64,
}

struct Promised {
    position: Position,
    trusted: bool,
}

#[derive(Default)]
struct Asked {
    /// The request under way and when it was sent.
    sent: Option<(u64, u64)>,
    not_before: u64,
    tries: u32,
}

/// Reading what the most advanced log has beyond this one.
struct Fetch {
    source: BrokerId,
    goal: Position,
    from: u64,
}

impl Opening {
    pub(super) fn new(term: Term, me: &BrokerId, sets: [Vec<BrokerId>; 2]) -> Self {
        let others = sets.iter().flatten().filter(|b| *b != me);
        Self {
            term,
            promises: BTreeMap::new(),
            others: others.map(|b| (b.clone(), Asked::default())).collect(),
            sets: sets.into_iter().filter(|set| !set.is_empty()).collect(),
            fetch: None,
            retry_at: 0,
        }
    }

    pub(super) fn granted(&mut self, by: BrokerId, position: Position, trusted: bool) {
        self.promises.insert(by, Promised { position, trusted });
    }

    /// Enough of each set promised: an open quorum of logs that were known to be whole, or all.
    fn is_promised(&self) -> bool {
        self.sets.iter().all(|set| {
            let promised = || set.iter().filter_map(|b| self.promises.get(b));
            let trusted = promised().filter(|p| p.trusted).count();
            trusted >= open_quorum(set.len()) || promised().count() == set.len()
        })
    }

    /// The most advanced log among those that promised.
    fn best(&self) -> Option<(&BrokerId, Position)> {
        let furthest = self.promises.iter().max_by_key(|(_, p)| p.position);
        furthest.map(|(broker, p)| (broker, p.position))
    }

    /// What is read next from the source, if it is this one.
    pub(super) fn fetch_from(&mut self, source: &BrokerId, offset: u64) {
        if let Some(fetch) = self.fetch.as_mut().filter(|f| f.source == *source) {
            fetch.from = offset;
        }
    }

    /// The source has not what it promised: what it had was lost, and so was its promise.
    fn drop_source(&mut self, source: &BrokerId) {
        self.promises.remove(source);
        self.fetch = None;
    }

    pub(super) fn wake_at(&self, timeout: u64) -> Option<u64> {
        let asked = self.others.iter().filter_map(|(broker, asked)| match asked.sent {
            Some((_, at)) => Some(at + timeout),
            None if self.is_to_be_asked(broker) => Some(asked.not_before),
            None => None,
        });
        asked.chain((self.is_promised() && self.retry_at > 0).then_some(self.retry_at)).min()
    }

    fn is_to_be_asked(&self, broker: &BrokerId) -> bool {
        let is_source = self.fetch.as_ref().is_some_and(|f| f.source == *broker);
        is_source || !self.promises.contains_key(broker)
    }
}

impl Replica {
    /// Asks who must be asked, and opens when nothing is missing.
    pub(super) fn advance_opening(&mut self) -> Result<(), LogError> {
        let position = self.log.position();
        let (now, timeout) = (self.now, self.config.answer_timeout_ms);
        let Stance::Opening(opening) = &mut self.stance else { return Ok(()) };
        for asked in opening.others.values_mut() {
            if asked.sent.is_some_and(|(_, at)| now >= at + timeout) {
                asked.sent = None;
            }
        }
        if let Some(own) = opening.promises.get_mut(&self.me) {
            own.position = position;
        }
        if opening.is_promised()
            && let Some((source, goal)) = opening.best()
        {
            if goal <= position {
                return self.finish_opening();
            }
            if opening.fetch.as_ref().is_none_or(|f| f.source != *source) {
                let source = source.clone();
                opening.fetch = Some(Fetch { source, goal, from: position.end });
            }
        } else {
            opening.fetch = None;
        }
        self.ask_while_opening();
        Ok(())
    }

    fn ask_while_opening(&mut self) {
        let now = self.now;
        let Stance::Opening(opening) = &mut self.stance else { return };
        let term = opening.term;
        let mut requests = Vec::new();
        for (broker, asked) in &mut opening.others {
            if asked.sent.is_some() || now < asked.not_before {
                continue;
            }
            let fetch = opening.fetch.as_ref().filter(|f| f.source == *broker);
            if let Some(fetch) = fetch {
                let from = fetch.from;
                let prev_term = self.log.term_before(from).unwrap_or_default();
                let max_bytes = self.config.append_bytes;
                requests
                    .push((broker.clone(), Request::Fetch { term, from, prev_term, max_bytes }));
            } else if !opening.promises.contains_key(broker) {
                let leader = self.me.clone();
                requests.push((broker.clone(), Request::Promise { term, leader }));
            }
        }
        for (to, request) in requests {
            let id = self.fresh_id();
            if let Stance::Opening(opening) = &mut self.stance
                && let Some(asked) = opening.others.get_mut(&to)
            {
                asked.sent = Some((id, now));
                asked.not_before = now + (FIRST_RETRY_MS << asked.tries.min(10)).min(RETRY_MS);
                asked.tries += 1;
            }
            self.actions.push(Action::Send { to, id, request });
        }
    }

    pub(super) fn opening_answered(
        &mut self,
        from: &BrokerId,
        id: u64,
        answer: Option<Answer>,
    ) -> Result<(), LogError> {
        let Stance::Opening(opening) = &mut self.stance else { return Ok(()) };
        let Some(asked) = opening.others.get_mut(from) else { return Ok(()) };
        if asked.sent.is_none_or(|(sent, _)| sent != id) {
            return Ok(());
        }
        asked.sent = None;
        let term = opening.term;
        match answer {
            None => {
                // Its log may be the one that is needed; until it answers, others may do.
                opening.promises.remove(from);
                Ok(())
            }
            Some(Answer::Promise { granted: true, position, trusted, .. }) => {
                opening.granted(from.clone(), position, trusted);
                Ok(())
            }
            Some(Answer::Promise { promised, .. }) => self.outdated(promised),
            Some(Answer::Fetch { promised, .. }) if promised != term => {
                opening.promises.remove(from);
                self.outdated(promised)
            }
            Some(Answer::Fetch { begins: Some(begins), .. }) => self.fetched_start(from, begins),
            Some(Answer::Fetch { records, retry_from, .. }) => {
                asked.not_before = 0;
                self.fetched(from, records, retry_from)
            }
            Some(Answer::Append { .. }) => Ok(()),
        }
    }

    /// Another replica promised `promised`: a later generation ends this opening; a later opening
    /// of this one, which was forgotten here, is gone beyond.
    fn outdated(&mut self, promised: Term) -> Result<(), LogError> {
        let Stance::Opening(opening) = &self.stance else { return Ok(()) };
        let term = opening.term;
        if promised.generation > term.generation {
            let note = format!("stopped opening: another replica promised {promised}");
            self.actions.push(Action::Note(note));
            self.stance = Stance::Following;
        } else if promised.generation == term.generation && promised > term {
            return self.open_as(Term::new(term.generation, promised.opening + 1));
        }
        Ok(())
    }

    fn fetched(
        &mut self,
        from: &BrokerId,
        records: Vec<crate::record::Record>,
        retry_from: Option<u64>,
    ) -> Result<(), LogError> {
        let start = self.log.start();
        let Stance::Opening(opening) = &mut self.stance else { return Ok(()) };
        let Some(fetch) = opening.fetch.as_mut().filter(|f| f.source == *from) else {
            return Ok(());
        };
        if let Some(earlier) = retry_from {
            // What is before the own start is committed, and the same everywhere.
            if fetch.from == start && start > 0 {
                opening.drop_source(from);
            } else {
                fetch.from = earlier.min(fetch.from.saturating_sub(1)).max(start);
            }
            return Ok(());
        }
        let starts_right = records.first().is_some_and(|r| r.offset == fetch.from);
        if !starts_right {
            opening.drop_source(from);
            return Ok(());
        }
        let at = fetch.from;
        if at < self.log.end() {
            if at < self.committed {
                let detail = format!("another log differs before offset {at}, which is committed");
                self.halt(detail);
                return Ok(());
            }
            self.log.truncate_from(at)?;
        }
        match self.log.append(&records) {
            Err(e) if e.is_passing() => {
                self.actions.push(Action::Note(e.to_string()));
                return Ok(());
            }
            other => other?,
        }
        if let Stance::Opening(Opening { fetch: Some(fetch), .. }) = &mut self.stance {
            fetch.from = self.log.end();
            if self.log.end() < fetch.goal.end {
                return Ok(());
            }
        }
        if let Stance::Opening(opening) = &mut self.stance {
            opening.fetch = None;
        }
        Ok(())
    }

    /// The log is the most advanced of an open quorum: append the start record and lead.
    fn finish_opening(&mut self) -> Result<(), LogError> {
        let now = self.now;
        let Stance::Opening(opening) = &mut self.stance else { return Ok(()) };
        if now < opening.retry_at {
            return Ok(());
        }
        opening.retry_at = now + RETRY_MS;
        let term = opening.term;
        self.lead(term)
    }
}
