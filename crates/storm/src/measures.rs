//! What is looked at once a second.

use serde::Serialize;

use crate::clients::Tally;
use crate::exposure::Exposure;

/// One second of the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Second {
    /// Its end, seconds from the start.
    pub at_s: f64,
    /// Of all requests, as nodes measure it.
    pub p99_ms: f64,
    /// Of the slowest node's requests.
    pub worst_p99_ms: f64,
    /// Bytes copied.
    pub copied: f64,
    /// Bytes of maintenance that was done, and that still waits.
    pub maintained: f64,
    /// Maintenance that waits, bytes.
    pub maintenance_backlog: f64,
    /// Shards with fewer live replicas than they should have.
    pub short: usize,
    /// Those of them with one left.
    pub one_left: usize,
    /// Those of them with none left.
    pub none_left: usize,
    /// Mean and least share of the link over nodes that are up.
    pub share: f64,
    /// The least of them.
    pub share_min: f64,
    /// The longest request queue of a node.
    pub queue: f64,
    /// Operations that clients began.
    pub operations: f64,
    /// Requests that they made for them, retries included.
    pub attempts: f64,
    /// Operations that were answered in time.
    pub answered: f64,
    /// Requests that timed out.
    pub timed_out: f64,
    /// Requests that were refused at once.
    pub shed: f64,
    /// Nodes whose share is at the floor with latency over its target.
    pub at_floor: usize,
}

impl Second {
    pub(crate) fn exposed(&mut self, exposure: Exposure) {
        self.short = exposure.short;
        self.one_left = exposure.one;
        self.none_left = exposure.none;
    }

    pub(crate) fn asked(&mut self, tally: &Tally) {
        self.operations = tally.operations;
        self.attempts = tally.attempts;
        self.answered = tally.answered;
        self.timed_out = tally.timed_out;
        self.shed = tally.shed;
    }
}

/// A run, second by second.
pub type Series = Vec<Second>;
