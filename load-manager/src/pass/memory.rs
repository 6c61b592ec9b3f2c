//! What one leadership keeps in mind from pass to pass.

use std::time::Duration;

use evenkeel_model::Millis;
use tokio::time::Instant;

use crate::exposure::Exposure;
use crate::lifecycle::Lifecycles;
use crate::step::Prepared;

/// The gauges are set at most this often.
const GAUGES_EVERY: Duration = Duration::from_millis(250);

/// What one leadership remembers between passes; nothing that a successor would need.
pub(crate) struct Memory {
    pub(super) lifecycles: Lifecycles,
    /// Writes whose outcome is not known, to be recognised when the view shows them.
    pub(super) doubtful: Vec<Prepared>,
    gauges_at: Option<Instant>,
    pub(super) exposure: Exposure,
}

impl Memory {
    /// At an election.
    pub(crate) fn new(grace_ms: Millis) -> Self {
        Self {
            lifecycles: Lifecycles::new(grace_ms),
            doubtful: Vec::new(),
            gauges_at: None,
            exposure: Exposure::default(),
        }
    }

    /// Passes can follow each other closely; nobody reads the gauges that often.
    pub(super) fn gauges_due(&mut self, now: Instant) -> bool {
        let due = self.gauges_at.is_none_or(|at| now - at >= GAUGES_EVERY);
        if due {
            self.gauges_at = Some(now);
        }
        due
    }
}
