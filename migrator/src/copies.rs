//! One copy as it runs: what was ordered, granted and verified.

use std::collections::VecDeque;
use std::time::Duration;

use evenkeel_model::{BrokerId, CopyRecord, Millis, RECORD_VERSION};
use evenkeel_proto::migrations::CopyProgress;

use crate::jobs::Job;

/// So much is always worth granting: the tail of a copy and its first bytes.
const LEAST_WANTED: u64 = 256 * 1024;

/// A copy that does not use what it is granted is granted so many times its rate: it may grow.
const GROWTH: f64 = 1.5;

/// A destination that says it is level and is not reported caught up for this long is asked again.
const LEVEL_KEPT: Duration = Duration::from_secs(10);

/// Weight of the newest sample in the smoothed rate.
const SMOOTHING: f64 = 0.3;

/// Pauses after failures: doubling, from one second to half a minute.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_secs(30);

/// What a copy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It was not ordered yet.
    Queued,
    /// It has a slot.
    Running,
    /// It lost its slot and resumes where it was.
    Paused,
    /// The destination is level; the leader's own stream ships what comes.
    Level,
    /// The last try failed; another follows.
    Failed,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 5] =
        [Self::Queued, Self::Running, Self::Paused, Self::Level, Self::Failed];

    /// The word used in metrics and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Level => "level",
            Self::Failed => "failed",
        }
    }
}

/// An order that an agent was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    /// At which generation.
    pub generation: u64,
    /// From where.
    pub source: BrokerId,
    /// In which session.
    pub session: u64,
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
    /// The order that its agent has.
    pub ordered: Option<Ordered>,
    /// When it first had a slot.
    pub started: Option<Duration>,
    /// Bytes verified at the destination.
    pub done: u64,
    /// Bytes still to copy, as the destination said last.
    pub remaining: Option<u64>,
    /// Smoothed, bytes per second.
    pub rate: f64,
    /// What stops it from being faster.
    pub limited_by: String,
    /// The source that failed last, and when another try may be made.
    pub failed: Option<(Option<BrokerId>, Duration)>,
    failures: u32,
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
    measured: Option<(Duration, u64)>,
    written: Option<(Duration, State, Option<BrokerId>, u64)>,
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
            ordered: None,
            started: None,
            done: 0,
            remaining: None,
            rate: 0.0,
            limited_by: String::new(),
            failed: None,
            failures: 0,
            level_since: None,
            source_since: now,
            counted_before: 0,
            counted: 0,
            last_grant: 0,
            backed_up: false,
            outstanding: VecDeque::new(),
            measured: None,
            written: None,
        }
    }

    /// Bytes still to copy: as the destination said, else the size that the leader said.
    pub fn remaining(&self) -> Option<u64> {
        self.remaining.or_else(|| self.job.size_bytes.map(|size| size.saturating_sub(self.done)))
    }

    /// Bytes in all, as far as known; never less than what is done.
    pub fn total(&self) -> u64 {
        self.done + self.remaining().unwrap_or(0)
    }

    /// Whether it may have a slot now.
    pub fn wants_slot(&self, now: Duration) -> bool {
        self.state != State::Level && self.failed.as_ref().is_none_or(|(_, at)| now >= *at)
    }

    /// Follows the assignment. What failed for an older generation may be tried again.
    pub fn follow(&mut self, job: Job) {
        if job.generation != self.job.generation && self.state == State::Failed {
            self.state = State::Queued;
            self.failed = None;
        }
        self.job = job;
    }

    /// Takes the agent's word. Answers how many more bytes it has verified.
    pub fn progressed(&mut self, now: Duration, progress: &CopyProgress) -> u64 {
        if progress.bytes_verified < self.counted {
            // It counts from the start of its present try; what came before is kept.
            self.counted_before += self.counted;
            self.counted = 0;
        }
        let more = progress.bytes_verified - self.counted;
        self.counted = progress.bytes_verified;
        self.done = self.counted_before + self.counted;
        self.remaining = Some(progress.bytes_remaining);
        self.measure(now);
        self.backed_up = progress.state == "running" && progress.credit_left > self.last_grant;
        if more > 0 {
            self.failures = 0;
            self.failed = None;
        }
        match progress.state.as_str() {
            "level" => {
                self.state = State::Level;
                self.level_since.get_or_insert(now);
                self.limited_by = "the leader's own stream ships the rest".to_owned();
            }
            // An agent tells the end of a try twice.
            "failed" if self.state != State::Failed => self.failed(now, &progress.detail),
            "failed" => {}
            _ if matches!(self.state, State::Level | State::Failed) => {
                self.state = State::Queued;
                self.level_since = None;
            }
            _ => {}
        }
        more
    }

    fn measure(&mut self, now: Duration) {
        let Some((at, done)) = self.measured else {
            self.measured = Some((now, self.done));
            return;
        };
        let span = now.saturating_sub(at);
        if span >= Duration::from_millis(200) {
            let sample = self.done.saturating_sub(done) as f64 / span.as_secs_f64();
            self.rate += SMOOTHING * (sample - self.rate);
            self.measured = Some((now, self.done));
        }
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
        self.failed = Some((self.source.take(), now + pause));
        self.ordered = None;
        self.state = State::Failed;
        self.outstanding.clear();
        self.limited_by = match detail {
            "" => "the last try failed".to_owned(),
            detail => format!("the last try failed: {detail}"),
        };
    }

    /// Bytes that it can use until the next round, beyond those it was granted already.
    pub fn wants(&self, round: Duration) -> u64 {
        let usable = if self.backed_up {
            ((self.rate * GROWTH * round.as_secs_f64()) as u64).max(LEAST_WANTED)
        } else {
            u64::MAX
        };
        let left = self.remaining().map_or(u64::MAX, |left| left.max(LEAST_WANTED));
        let held: u64 = self.outstanding.iter().map(|(_, bytes)| bytes).sum();
        usable.min(left.saturating_sub(held))
    }

    /// Notes a grant.
    pub fn granted(&mut self, bytes: u64, expires: Duration) {
        self.outstanding.push_back((expires, bytes));
        self.last_grant = bytes;
    }

    /// Drops expired grants.
    pub fn expire(&mut self, now: Duration) {
        while self.outstanding.front().is_some_and(|(expires, _)| *expires <= now) {
            self.outstanding.pop_front();
        }
    }

    /// The record to write, if it is time: at once when its state or source changes, else when its
    /// numbers have changed and the last write is `every` ago.
    pub fn due_record(
        &mut self,
        now: Duration,
        wall_ms: Millis,
        every: Duration,
    ) -> Option<CopyRecord> {
        let due = match &self.written {
            None => true,
            Some((at, state, source, done)) => {
                *state != self.state
                    || *source != self.source
                    || (*done != self.done && now.saturating_sub(*at) >= every)
            }
        };
        if !due {
            return None;
        }
        self.written = Some((now, self.state, self.source.clone(), self.done));
        Some(CopyRecord {
            v: RECORD_VERSION,
            shard: self.job.shard.clone(),
            generation: self.job.generation,
            class: self.job.class,
            source: self.source.clone(),
            destination: self.job.destination.clone(),
            bytes_done: self.done,
            bytes_total: self.total(),
            bytes_per_second: self.rate as u64,
            at_ms: wall_ms,
        })
    }

    /// Whether a record of it was written.
    pub fn is_written(&self) -> bool {
        self.written.is_some()
    }

    /// The write failed, or the lease that it was made under is gone: write again.
    pub fn forget_written(&mut self) {
        self.written = None;
    }
}
