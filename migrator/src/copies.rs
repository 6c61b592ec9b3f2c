//! One copy as it runs: what was ordered, granted and verified.

mod pace;
mod progress;
mod record;
mod state;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use evenkeel_model::{BrokerId, CopyClass};

use crate::jobs::Job;
pub use pace::{Pace, Span};
use record::Written;
pub use state::State;

/// So much is always worth granting: the tail of a copy and its first bytes.
const LEAST_WANTED: u64 = 256 * 1024;

/// While nothing is left the data is compared; one chunk finds out whether something came meanwhile.
const CHUNK: u64 = 64 * 1024;

/// A copy that does not use what it is granted is granted so many times its rate: it may grow.
const GROWTH: f64 = 1.5;

/// A destination that says it is level and is not reported caught up for this long is asked again.
const LEVEL_KEPT: Duration = Duration::from_secs(10);

/// A drain that was given nothing for so long has a part of both ends kept for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Without a byte for so long a copy is not almost done, however little is left.
const LIVELY: Duration = Duration::from_secs(5);

/// Pauses after failures: doubling, from one second to half a minute.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_secs(30);

/// An order that an agent was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    /// At which generation.
    pub generation: u64,
    /// From where.
    pub source: BrokerId,
    /// In which session.
    pub session: u64,
    /// Of which class.
    pub class: CopyClass,
}

/// One copy.
#[derive(Debug, Clone, PartialEq)]
pub struct Copy {
    /// What the assignment asks for.
    pub job: Job,
    /// Rises with each copy that comes in.
    pub arrival: u64,
    /// When it came in.
    pub since: Duration,
    /// What it does.
    pub state: State,
    /// The chosen source.
    pub source: Option<BrokerId>,
    /// Sources that are nearly as good, while it does not run.
    pub other_sources: Vec<BrokerId>,
    /// The one that it would be through from first, if it was passed over, and why it was.
    pub passed_over: Option<(BrokerId, &'static str)>,
    /// The order that its agent has.
    pub ordered: Option<Ordered>,
    /// When it first had a slot.
    pub started: Option<Duration>,
    /// Bytes verified at the destination.
    pub done: u64,
    /// Bytes still to copy, as the destination said last.
    pub remaining: Option<u64>,
    /// How fast it is.
    pub pace: Pace,
    /// What stops it from being faster.
    pub limited_by: String,
    /// The source that failed last, and when another try may be made.
    pub failed: Option<(Option<BrokerId>, Duration)>,
    /// How often each source failed since the last byte came.
    pub failures_of: BTreeMap<BrokerId, u32>,
    /// When it last got on, or had no chance to.
    got_on: Duration,
    /// Failed tries since the last byte.
    pub failures: u32,
    /// What the last of them said.
    pub last_failure: String,
    /// When the last byte came, or the copy itself.
    pub last_byte: Duration,
    /// Since when it could have had a byte and had none.
    idle_since: Option<Duration>,
    /// Since when it has waited for a slot or for a byte.
    waiting_since: Duration,
    /// When its destination last spoke of it.
    heard: Option<Duration>,
    /// It was there before this leadership: its destination may have a part of it.
    pub inherited: bool,
    /// It waited too long once; that holds until it ends.
    overdue: bool,
    /// It stands still because others go first or an operator holds it.
    pub waits: bool,
    /// Its place among those that wait for a slot, from 1; 0 if it does not.
    pub place: u32,
    level_since: Option<Duration>,
    /// When the source was chosen.
    pub source_since: Duration,
    /// Verified before the destination began to count anew.
    counted_before: u64,
    counted: u64,
    last_grant: u64,
    /// It holds more credit than a round's grant: something else holds it up.
    backed_up: bool,
    /// Grants that have not expired.
    outstanding: VecDeque<(Duration, u64)>,
    written: Option<Written>,
    /// The record is to be written whatever was written when.
    write_now: bool,
}

impl Copy {
    /// A copy that waits.
    pub fn new(job: Job, arrival: u64, now: Duration) -> Self {
        Self {
            job,
            arrival,
            since: now,
            state: State::Queued,
            source: None,
            other_sources: Vec::new(),
            passed_over: None,
            ordered: None,
            started: None,
            done: 0,
            remaining: None,
            pace: Pace::default(),
            limited_by: String::new(),
            failed: None,
            failures_of: BTreeMap::new(),
            got_on: now,
            failures: 0,
            last_failure: String::new(),
            last_byte: now,
            idle_since: None,
            waiting_since: now,
            heard: None,
            inherited: false,
            overdue: false,
            waits: true,
            place: 0,
            level_since: None,
            source_since: now,
            counted_before: 0,
            counted: 0,
            last_grant: 0,
            backed_up: false,
            outstanding: VecDeque::new(),
            written: None,
            write_now: false,
        }
    }

    /// Bytes still to copy: as the destination said, else the size that the leader said.
    pub fn remaining(&self) -> Option<u64> {
        self.remaining.or_else(|| self.job.size_bytes.map(|size| size.saturating_sub(self.done)))
    }

    /// Bytes in all; never less than what is done.
    pub fn total(&self) -> Option<u64> {
        self.remaining().map(|left| self.done.saturating_add(left))
    }

    /// Bytes at the destination; none after a take-over until it has told.
    pub fn held(&self) -> Option<u64> {
        (!self.inherited || self.heard.is_some()).then_some(self.done)
    }

    /// Whether it may have a slot now.
    pub fn wants_slot(&self, now: Duration) -> bool {
        let waits_elsewhere = matches!(self.state, State::Level | State::Held);
        !waits_elsewhere && self.failed.as_ref().is_none_or(|(_, at)| now >= *at)
    }

    /// Notes a drain that has waited too long for a slot or for bytes. Once noted it keeps its part
    /// until it ends, or it would starve minute by minute. Under a pause, after a failure and while
    /// it is compared it waits for neither.
    pub fn note_wait(&mut self, now: Duration) {
        let compared = self.remaining == Some(0) && self.has_credit();
        if compared || !self.wants_slot(now) {
            self.waiting_since = now;
        }
        self.overdue |= now.saturating_sub(self.waiting_since) >= PATIENCE;
    }

    /// Whether a part of both ends is kept for it.
    pub fn is_reserved(&self) -> bool {
        self.overdue && self.job.class == CopyClass::Drain
    }

    /// Whether what is left is the last twentieth or what a second carries, whichever is less.
    pub fn is_almost_done(&self, now: Duration) -> bool {
        let lively = now.saturating_sub(self.last_byte) < LIVELY;
        self.state == State::Running
            && lively
            && self.remaining().is_some_and(|left| {
                left <= (self.done.saturating_add(left)) / 20 && left as f64 <= self.pace.rate()
            })
    }

    /// For how long it could have had bytes and had none. A copy of which nothing is left is being
    /// verified, and that takes as long as it takes.
    pub fn idle(&self, now: Duration) -> Duration {
        match self.idle_since {
            Some(since) if self.state == State::Running && self.remaining != Some(0) => {
                now.saturating_sub(since)
            }
            _ => Duration::ZERO,
        }
    }

    /// It has no slot, or nothing to spend: standing still is no fault of its own.
    pub fn excuse(&mut self) {
        self.idle_since = None;
    }

    /// Follows the assignment. What failed for an older generation may be tried again.
    pub fn follow(&mut self, job: Job) {
        if job.generation != self.job.generation && self.state == State::Failed {
            self.state = State::Queued;
            self.failed = None;
            self.failures_of.clear();
        }
        self.job = job;
    }

    /// A destination that is level is left to the leader's own stream; if that does not bring it
    /// the rest, it is asked again.
    pub fn recheck(&mut self, now: Duration) {
        if self.level_since.is_some_and(|since| now >= since + LEVEL_KEPT) {
            self.level_since = None;
            self.state = State::Queued;
            self.ordered = None;
        }
    }

    /// The try failed: another source, later.
    pub fn failed(&mut self, now: Duration, detail: &str) {
        let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(5)).min(RETRY_LAST);
        self.failures = self.failures.saturating_add(1);
        if let Some(source) = &self.source {
            *self.failures_of.entry(source.clone()).or_insert(0) += 1;
        }
        self.failed = Some((self.source.take(), now + pause));
        self.ordered = None;
        self.state = State::Failed;
        self.outstanding.clear();
        self.idle_since = None;
        self.last_failure = detail.to_owned();
        self.limited_by = match detail {
            "" => "the last try failed".to_owned(),
            detail => format!("the last try failed: {detail}"),
        };
    }

    /// Chooses the source; the destination goes on from where it is.
    pub fn read_from(&mut self, now: Duration, source: BrokerId) {
        if self.source.as_ref() != Some(&source) {
            self.source = Some(source);
            self.source_since = now;
            self.passed_over = None;
        }
    }

    /// Chooses another source than its own, which is passed over for the sake of other copies.
    pub fn read_instead(&mut self, now: Duration, source: BrokerId, why: &'static str) {
        let first = self.source.clone().filter(|first| *first != source);
        self.read_from(now, source);
        self.passed_over = first.map(|first| (first, why)).or(self.passed_over.take());
    }

    /// Bytes that it can use until the next round, beyond those it was granted already.
    pub fn wants(&self, round: Duration) -> u64 {
        let usable = if self.backed_up {
            ((self.pace.rate() * GROWTH * round.as_secs_f64()) as u64).max(LEAST_WANTED)
        } else {
            u64::MAX
        };
        let left = match self.remaining() {
            None => u64::MAX,
            Some(0) => CHUNK,
            Some(left) => left.max(LEAST_WANTED),
        };
        let held: u64 = self.outstanding.iter().map(|(_, bytes)| bytes).sum();
        usable.min(left.saturating_sub(held))
    }

    /// Whether it has credit that has not expired.
    pub fn has_credit(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Notes a grant.
    pub fn granted(&mut self, now: Duration, bytes: u64, expires: Duration) {
        self.outstanding.push_back((expires, bytes));
        self.idle_since.get_or_insert(now);
        self.last_grant = bytes;
    }

    /// Drops expired grants.
    pub fn expire(&mut self, now: Duration) {
        while self.outstanding.front().is_some_and(|(expires, _)| *expires <= now) {
            self.outstanding.pop_front();
        }
    }
}
