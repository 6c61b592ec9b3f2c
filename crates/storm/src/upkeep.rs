//! Work that a node puts off while it copies: compaction, index rebuilds, cold caches.

use evenkeel_throttle::{Beside, Ramp, Sample, TargetError};

use crate::scenario::Controls;

/// A node that has copied nothing for so long copies no more.
const COPYING_MS: f64 = 1_000.0;

/// One node's.
#[derive(Debug, Clone)]
pub(crate) struct Upkeep {
    backlog: f64,
    ramp: Ramp,
    /// Bytes of this second, and what the ramp allowed.
    second: (f64, f64),
    last_copy_ms: Option<f64>,
}

impl Upkeep {
    pub(crate) fn new(controls: &Controls) -> Result<Self, TargetError> {
        let ramp = Ramp::new(controls.target_ms)?;
        Ok(Self { backlog: 0.0, ramp, second: (0.0, 0.0), last_copy_ms: None })
    }

    /// Bytes were copied into or out of the node: so much work is put off.
    pub(crate) fn put_off(&mut self, now_ms: f64, copied: u64, controls: &Controls) {
        if copied > 0 {
            self.backlog += copied as f64 * controls.maintenance;
            self.last_copy_ms = Some(now_ms);
        }
    }

    /// Bytes that wait.
    pub(crate) fn backlog(&self) -> f64 {
        self.backlog
    }

    fn copied_within(&self, now_ms: f64, span_ms: f64) -> bool {
        self.last_copy_ms.is_some_and(|at| now_ms - at <= span_ms)
    }

    /// Once a second: the ramp looks at what the law looked at, and at the law's share. Every copy
    /// here is taken for a repair.
    pub(crate) fn observe(&mut self, now_ms: f64, sample: &Sample, share: f64) {
        let (done, allowed) = std::mem::take(&mut self.second);
        let used = if allowed > 0.0 { (done / allowed).min(1.0) } else { 0.0 };
        let repairing = self.copied_within(now_ms, COPYING_MS);
        let copies = repairing.then_some(sample.used);
        self.ramp.observe(sample, &Beside { share, repairing, copies, used });
    }

    /// What it does in one step, bytes. Without the ramp it waits for the last copy, and then
    /// takes what it can get.
    pub(crate) fn work(&mut self, now_ms: f64, link_step: f64, controls: &Controls) -> f64 {
        let share = if controls.maintenance_ramp {
            self.ramp.share()
        } else if self.copied_within(now_ms, controls.maintenance_wait_ms.max(COPYING_MS)) {
            0.0
        } else {
            controls.maintenance_share
        };
        let allowed = link_step * share;
        let done = allowed.min(self.backlog);
        self.backlog -= done;
        self.second.0 += done;
        self.second.1 += allowed;
        done
    }

    /// The process is gone, and with it what it had to do.
    pub(crate) fn clear(&mut self) {
        self.backlog = 0.0;
        self.last_copy_ms = None;
    }
}
