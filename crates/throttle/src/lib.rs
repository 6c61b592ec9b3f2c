//! How much of its link a node gives to copies, and how many requests it takes in at once: closed
//! loops on that node's own request latency.
//!
//! Two laws of copies share their limits. [`Plain`] answers each sample at once; [`Steady`] looks at a
//! window, moves in proportion to the error and calms down when it oscillates. Both start at 20 %
//! of the link, never leave 5 % to 50 %, cut by at most × 0.7 and raise by at most × 1.05. [`Ramp`] is the
//! part of it that maintenance may take.
//!
//! **Invariant:** pure functions of samples: no I/O, no clock. A law never raises on no data.

mod concurrency;
mod plain;
mod ramp;
mod steady;

use serde::{Deserialize, Serialize};

pub use concurrency::{Concurrency, Crowd};
pub use plain::Plain;
pub use ramp::{Beside, Ramp, TRICKLE};
pub use steady::Steady;

/// Share of the link that a law starts with.
pub const START_SHARE: f64 = 0.2;
/// Copies never stop entirely: a repair that stalls for ever is worse than a slow one.
pub const MIN_SHARE: f64 = 0.05;
/// Requests always have at least half of the link.
pub const MAX_SHARE: f64 = 0.5;
/// Latency above the target times this is too high (strictly).
pub const HIGH: f64 = 1.2;
/// Latency below the target times this is low (strictly).
pub const LOW: f64 = 0.8;
/// The largest cut of one step.
pub const CUT: f64 = 0.7;
/// The largest raise of one step.
pub const RAISE: f64 = 1.05;

/// What the node saw in the last period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Milliseconds on a clock that never goes back.
    pub at_ms: u64,
    /// The p99 of the node's own requests; none without enough of them.
    pub p99_ms: Option<f64>,
    /// How many requests there were.
    pub requests: u64,
    /// The request queue over the length that is usual for it; none if it is not known.
    pub queue: Option<f64>,
    /// Copied bytes over allowed bytes, 0 to 1.
    pub used: f64,
}

/// What a law did with a sample, or what holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The latency is near its target.
    Holding,
    /// Latency is low: the share rose.
    Raising,
    /// Latency or the queue is too high: the share fell.
    Cutting,
    /// Latency is too high and the share cannot fall further: out of capacity.
    Floor,
    /// Latency is low and the share cannot rise further.
    Ceiling,
    /// No usable sample: the share stands.
    NoData,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Holding, Self::Raising, Self::Cutting, Self::Floor, Self::Ceiling, Self::NoData];

    /// The word used in metrics and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Holding => "holding",
            Self::Raising => "raising",
            Self::Cutting => "cutting",
            Self::Floor => "floor",
            Self::Ceiling => "ceiling",
            Self::NoData => "no_data",
        }
    }
}

/// Whether copies have the least share there is and requests are too slow all the same. The state
/// alone does not tell: a law at its floor mostly holds, while it collects samples for another cut.
pub fn is_spent(share: f64, p99_ms: Option<f64>, target_ms: f64) -> bool {
    // A share that was a logarithm is not exact.
    share <= MIN_SHARE * 1.001 && p99_ms.is_some_and(|p99| p99 > target_ms)
}

/// A target that latency cannot be held to.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("target_ms: '{0}' is not valid: expected a finite number above 0")]
pub struct TargetError(pub f64);

fn check_target(target_ms: f64) -> Result<f64, TargetError> {
    if target_ms.is_finite() && target_ms > 0.0 {
        Ok(target_ms)
    } else {
        Err(TargetError(target_ms))
    }
}

/// Which law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LawName {
    /// Answers each sample at once.
    Plain,
    /// Calm over windows; the default of a running cluster.
    #[default]
    Steady,
}

/// A law and its state.
#[derive(Debug, Clone, PartialEq)]
pub enum Law {
    /// Answers each sample at once.
    Plain(Plain),
    /// Calm over windows.
    Steady(Steady),
}

impl Law {
    /// Starts at [`START_SHARE`]. The target is the p99 in milliseconds that requests should keep,
    /// set from requests that touch many shards.
    pub fn new(name: LawName, target_ms: f64) -> Result<Self, TargetError> {
        Ok(match name {
            LawName::Plain => Self::Plain(Plain::new(target_ms)?),
            LawName::Steady => Self::Steady(Steady::new(target_ms)?),
        })
    }

    /// Takes one sample, once a second.
    pub fn observe(&mut self, sample: Sample) -> State {
        match self {
            Self::Plain(law) => law.observe(sample.p99_ms),
            Self::Steady(law) => law.observe(sample),
        }
    }

    /// The share of the link, from [`MIN_SHARE`] to [`MAX_SHARE`].
    pub fn share(&self) -> f64 {
        match self {
            Self::Plain(law) => law.share(),
            Self::Steady(law) => law.share(),
        }
    }

    /// Bytes per second that copies may take of a link of so many, in each direction.
    pub fn bytes_per_second(&self, link_bytes_per_second: u64) -> u64 {
        match self {
            Self::Plain(law) => law.bytes_per_second(link_bytes_per_second),
            Self::Steady(law) => law.bytes_per_second(link_bytes_per_second),
        }
    }
}

/// ⌊link × share⌋ in binary floating point.
fn rate(link_bytes_per_second: u64, share: f64) -> u64 {
    (link_bytes_per_second as f64 * share) as u64
}
