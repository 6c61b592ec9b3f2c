//! What a leader knows of each other member, and when it next has something to say to it.

use evenkeel_model::Role;

use super::ReplicaConfig;

/// Wait before a member that lacks nothing is asked again whether it is level.
const LEVEL_RETRY_MS: u64 = 20;

/// One other member.
pub(super) struct Peer {
    pub(super) role: Role,
    /// Where the next append begins.
    pub(super) next: u64,
    /// Its log is the leader's up to here, durably.
    pub(super) matched: u64,
    /// `next` is a guess: send nothing but a probe.
    pub(super) probing: bool,
    /// The request under way: its id, when it was sent, what it tells.
    pub(super) sent: Option<Sent>,
    last_sent: u64,
    not_before: u64,
    failures: u32,
    /// What the last accepted append told it.
    pub(super) told: Told,
    /// It said that it is level, and will remember.
    pub(super) level: bool,
    /// An end that it told and where `next` was put to see whether its log is the same up to there,
    /// and one for which it was not.
    ahead: Option<u64>,
    vain: Option<u64>,
}

pub(super) struct Sent {
    pub(super) id: u64,
    pub(super) at: u64,
    pub(super) told: Told,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Told {
    pub(super) committed: u64,
    pub(super) counted: bool,
}

/// What the leader has to say at the moment.
pub(super) struct News {
    pub(super) end: u64,
    pub(super) committed: u64,
    pub(super) counted: bool,
    /// The learner is far behind and is fed by a copy instead.
    pub(super) far: bool,
}

impl Peer {
    pub(super) fn new(role: Role, next: u64) -> Self {
        Self {
            role,
            next,
            matched: 0,
            probing: true,
            sent: None,
            last_sent: 0,
            not_before: 0,
            failures: 0,
            told: Told::default(),
            level: false,
            ahead: None,
            vain: None,
        }
    }

    /// A new term: what was told of the old one has to be told again.
    pub(super) fn renew(&mut self, role: Role) {
        self.role = role;
        self.sent = None;
        self.told = Told::default();
        self.level = false;
        self.not_before = 0;
        if !self.probing {
            self.next = self.matched;
        }
    }

    pub(super) fn is_voter(&self) -> bool {
        matches!(self.role, Role::Leader | Role::Follower)
    }

    /// When an append is due, if nothing changes before.
    pub(super) fn due_at(&self, news: &News, config: &ReplicaConfig) -> u64 {
        if let Some(sent) = &self.sent {
            return sent.at + config.answer_timeout_ms;
        }
        let told = Told { committed: news.committed, counted: news.counted };
        let wanted = if self.probing {
            0
        } else if news.far {
            self.last_sent + config.learner_probe_ms
        } else if self.next < news.end || self.told.counted != told.counted {
            0
        } else if !self.level {
            self.last_sent + LEVEL_RETRY_MS
        } else if self.told.committed < told.committed {
            self.last_sent + config.heartbeat_ms
        } else {
            self.last_sent + config.idle_probe_ms
        };
        wanted.max(self.not_before)
    }

    pub(super) fn note_sent(&mut self, id: u64, now: u64, told: Told) {
        self.sent = Some(Sent { id, at: now, told });
        self.last_sent = now;
    }

    /// No answer, or none that helps: wait longer each time, then look again where it stands.
    pub(super) fn failed(&mut self, now: u64, (first, longest): (u64, u64)) {
        self.sent = None;
        if self.matched > 0 {
            self.next = self.matched;
        }
        self.probing = true;
        let wait = first.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures += 1;
        self.not_before = now + wait;
    }

    pub(super) fn accepted(&mut self, matched: u64, level: bool) {
        if let Some(sent) = self.sent.take() {
            self.told = sent.told;
        }
        self.failures = 0;
        self.probing = false;
        self.matched = self.matched.max(matched);
        self.next = self.next.max(self.matched);
        self.ahead = None;
        self.level = level;
        self.not_before = 0;
    }

    /// A copy moved it on: look whether what it has is the same, unless that was in vain.
    pub(super) fn look_ahead(&mut self, end: u64) {
        if end > self.matched && self.vain != Some(end) {
            self.next = end;
            self.probing = true;
            self.ahead = Some(end);
        }
    }

    /// Its log differs before `next`; it may have lost records that it once had.
    pub(super) fn mismatched(&mut self, retry_from: u64) {
        self.sent = None;
        self.vain = self.ahead.take().or(self.vain);
        self.probing = true;
        self.next = retry_from.min(self.next.saturating_sub(1));
        self.matched = self.matched.min(self.next);
        self.level = false;
    }
}
