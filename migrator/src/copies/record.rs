//! The stored record of a copy: what is written, and when it is time to.

use std::time::Duration;

use evenkeel_model::{BrokerId, CopyClass, CopyRecord, Millis, RECORD_VERSION};

use super::{Copy, LIVELY, State};

/// For agents to find the migrator that took over and to tell it how far their copies are.
const HEARING: Duration = Duration::from_secs(2);

/// What was written last, and when.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Written {
    at: Duration,
    state: State,
    class: CopyClass,
    source: Option<BrokerId>,
    numbers: (u64, bool),
}

impl Copy {
    /// The record to write, if it is time: at once when its state, class or source changes, else
    /// when its numbers have changed and the last write is `every` ago. A comparison changes no
    /// number and gets on as long as its destination speaks; each step of it has a limit there.
    pub fn due_record(
        &mut self,
        now: Duration,
        wall_ms: Millis,
        every: Duration,
    ) -> Option<CopyRecord> {
        let next = Written {
            at: now,
            state: self.state,
            class: self.job.class,
            source: self.source.clone(),
            numbers: (self.done, self.waits),
        };
        let compares = self.state == State::Running
            && self.remaining == Some(0)
            && self.heard.is_some_and(|at| now.saturating_sub(at) < LIVELY);
        if self.waits || compares {
            self.got_on = now;
        }
        let stood = now.saturating_sub(self.got_on).as_millis();
        // A take-over writes what it knows, and its agents need a moment to tell.
        let untold = self.inherited && self.heard.is_none() && now < self.since + HEARING;
        let now_due = std::mem::take(&mut self.write_now);
        let due = !untold
            && self.written.as_ref().is_none_or(|last| {
                let old = now.saturating_sub(last.at) >= every;
                let as_last = Written { at: last.at, ..next.clone() };
                let same = Written { numbers: last.numbers, ..as_last.clone() } == *last;
                now_due || !same || (compares || as_last != *last) && old
            });
        if !due {
            return None;
        }
        self.written = Some(next);
        Some(CopyRecord {
            v: RECORD_VERSION,
            shard: self.job.shard.clone(),
            generation: self.job.generation,
            class: self.job.class,
            source: self.source.clone(),
            destination: self.job.destination.clone(),
            bytes_done: self.done,
            bytes_total: self.total().unwrap_or(0),
            bytes_per_second: self.pace.rate() as u64,
            waits: self.waits,
            at_ms: wall_ms.saturating_sub(Millis::try_from(stood).unwrap_or(Millis::MAX)),
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
