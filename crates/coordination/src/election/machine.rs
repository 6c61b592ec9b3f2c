//! The election's rules, without I/O: events in, actions out, and when to call again.

use std::time::Duration;

use tokio::time::Instant;

use super::Leadership;
use crate::{Entry, LeaseId, Revision, Token};

/// A leader that was stuck waits this many times its limit before it is a candidate again.
const STUCK_WAITS: u32 = 4;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// The session's lease, or that it has none.
    Session(Option<LeaseId>),
    /// The attempt put the key, at this revision.
    Won {
        lease: LeaseId,
        revision: Revision,
    },
    /// The attempt found the key, or found it and lost it again.
    Taken {
        by: Option<Entry>,
    },
    AttemptFailed {
        retry_after: Duration,
    },
    /// The watch shows the key as it was at this revision.
    Watched {
        entry: Option<Entry>,
        revision: Revision,
    },
    /// A read has returned the key as it is, at this revision.
    Read {
        entry: Option<Entry>,
        revision: Revision,
    },
    ReadFailed,
    /// The key was deleted, or will go with its lease.
    Released,
    /// The work loop was last seen going on at this time.
    Progress {
        at: Instant,
    },
    /// The owner takes part no longer.
    Resign,
}

/// What to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Put the key if it does not exist. Replaces whatever call is under way.
    Attempt {
        lease: LeaseId,
    },
    /// Read the key.
    Read,
    /// Delete the key if it is still ours. Replaces whatever call is under way.
    Release(Token),
    Publish(Leadership),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) actions: Vec<Action>,
    pub(super) wake_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Attempt,
    Read,
    Release,
}

/// What is known of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Unknown,
    Absent,
    Held(Entry),
}

#[derive(Debug)]
pub(super) struct Machine {
    key_name: String,
    poll_every: Duration,
    progress_timeout: Option<Duration>,
    lease: Option<LeaseId>,
    key: Key,
    /// What the watch shows is stale below this.
    known_at: Revision,
    leading: Option<Token>,
    call: Option<Call>,
    attempt_at: Instant,
    read_at: Instant,
    progress: Instant,
    /// Gave up for want of progress seen until then, and waits.
    stuck: Option<Stuck>,
    resigned: bool,
    published: Leadership,
}

#[derive(Debug, Clone, Copy)]
struct Stuck {
    since: Instant,
    until: Instant,
}

impl Machine {
    pub(super) fn new(
        now: Instant,
        key: String,
        poll_every: Duration,
        progress_timeout: Option<Duration>,
    ) -> Self {
        Self {
            key_name: key,
            poll_every,
            progress_timeout,
            lease: None,
            key: Key::Unknown,
            known_at: 0,
            leading: None,
            call: None,
            attempt_at: now,
            read_at: now + poll_every,
            progress: now,
            stuck: None,
            resigned: false,
            published: Leadership::Unknown,
        }
    }

    /// Resigned, and nothing is left to do.
    pub(super) fn is_closed(&self) -> bool {
        self.resigned && self.leading.is_none() && matches!(self.call, None | Some(Call::Read))
    }

    /// Harmless when called early, late or twice. A wake-up is a [`Event::Progress`].
    pub(super) fn on_event(&mut self, now: Instant, event: Event) -> Output {
        match event {
            Event::Session(lease) => self.session(lease),
            Event::Won { lease, revision } => self.won(now, lease, revision),
            Event::Taken { by } => self.taken(now, by),
            Event::AttemptFailed { retry_after } => {
                self.call = None;
                self.attempt_at = now + retry_after;
            }
            Event::Watched { entry, revision } => {
                if revision >= self.known_at {
                    self.known_at = revision;
                    self.saw(now, entry);
                }
            }
            Event::Read { entry, revision } => {
                self.call = None;
                // Even if it is lower: then the store was replaced.
                self.known_at = revision;
                self.saw(now, entry);
            }
            Event::ReadFailed | Event::Released => self.call = None,
            Event::Progress { at } => self.progress = self.progress.max(at),
            Event::Resign => self.resigned = true,
        }
        let mut actions = Vec::new();
        self.advance(now, &mut actions);
        self.output(actions)
    }

    fn session(&mut self, lease: Option<LeaseId>) {
        if self.lease != lease {
            self.lease = lease;
            // The key goes with the lease it was put on.
            if self.leading.take().is_some() {
                self.key = Key::Unknown;
            }
        }
    }

    fn won(&mut self, now: Instant, lease: LeaseId, revision: Revision) {
        self.call = None;
        self.known_at = self.known_at.max(revision);
        if self.lease == Some(lease) {
            self.lead(now, revision);
        } else {
            self.key = Key::Unknown;
        }
    }

    fn taken(&mut self, now: Instant, by: Option<Entry>) {
        self.call = None;
        match by {
            // Our own attempt was made although its answer was lost.
            Some(entry) if entry.lease.is_some() && entry.lease == self.lease => {
                self.known_at = self.known_at.max(entry.mod_revision);
                self.lead(now, entry.create_revision);
            }
            other => self.saw(now, other),
        }
    }

    fn lead(&mut self, now: Instant, create_revision: Revision) {
        self.leading = Some(Token { key: self.key_name.clone(), create_revision });
        self.key = Key::Unknown;
        self.progress = now;
        self.read_at = now + self.poll_every;
    }

    fn saw(&mut self, now: Instant, entry: Option<Entry>) {
        self.read_at = now + self.poll_every;
        let created = entry.as_ref().map(|entry| entry.create_revision);
        if self.leading.as_ref().is_some_and(|token| Some(token.create_revision) != created) {
            self.leading = None;
        }
        let key = entry.map_or(Key::Absent, Key::Held);
        if key == Key::Absent && self.key != Key::Absent {
            self.attempt_at = now;
        }
        self.key = key;
    }

    fn advance(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let mut release = None;
        if self.resigned {
            release = self.leading.take();
        }
        release = release.or_else(|| self.give_up_if_stuck(now));
        if let Some(stuck) = self.stuck
            && (now >= stuck.until || self.progress > stuck.since)
        {
            self.stuck = None;
        }
        if release.is_some() {
            self.key = Key::Unknown;
        }
        self.publish(actions);
        if let Some(token) = release {
            self.call = Some(Call::Release);
            actions.push(Action::Release(token));
            return;
        }
        if let Some(lease) = self.lease
            && self.may_attempt(now)
        {
            self.call = Some(Call::Attempt);
            actions.push(Action::Attempt { lease });
        } else if self.call.is_none() && !self.resigned && now >= self.read_at {
            self.call = Some(Call::Read);
            self.read_at = now + self.poll_every;
            actions.push(Action::Read);
        }
    }

    /// Keep-alives can outlive the work they stand for; then another must be able to lead.
    fn give_up_if_stuck(&mut self, now: Instant) -> Option<Token> {
        let limit = self.progress_timeout?;
        if self.leading.is_none() || now < self.progress + limit {
            return None;
        }
        self.stuck = Some(Stuck { since: self.progress, until: now + limit * STUCK_WAITS });
        self.leading.take()
    }

    fn may_attempt(&self, now: Instant) -> bool {
        let free = match &self.key {
            Key::Unknown | Key::Absent => true,
            Key::Held(entry) => entry.lease.is_some() && entry.lease == self.lease,
        };
        free && self.is_candidate()
            && now >= self.attempt_at
            && !matches!(self.call, Some(Call::Attempt | Call::Release))
    }

    fn is_candidate(&self) -> bool {
        !self.resigned && self.stuck.is_none() && self.lease.is_some() && self.leading.is_none()
    }

    fn publish(&mut self, actions: &mut Vec<Action>) {
        let now = match (&self.leading, &self.key) {
            (Some(token), _) => Leadership::Leading(token.clone()),
            (None, Key::Held(entry)) => Leadership::Following { leader: Some(entry.clone()) },
            (None, Key::Absent) => Leadership::Following { leader: None },
            (None, Key::Unknown) => Leadership::Unknown,
        };
        if now != self.published {
            self.published = now.clone();
            actions.push(Action::Publish(now));
        }
    }

    fn output(&self, actions: Vec<Action>) -> Output {
        if self.resigned {
            return Output { actions, wake_at: None };
        }
        let mut times = Vec::new();
        if self.call.is_none() {
            times.push(self.read_at);
        }
        let waits = !matches!(self.call, Some(Call::Attempt | Call::Release));
        if self.is_candidate() && waits && !matches!(self.key, Key::Held(_)) {
            times.push(self.attempt_at);
        }
        if self.leading.is_some() {
            times.extend(self.progress_timeout.map(|limit| self.progress + limit));
        }
        times.extend(self.stuck.map(|stuck| stuck.until));
        Output { actions, wake_at: times.into_iter().min() }
    }
}
