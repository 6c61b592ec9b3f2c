//! Why things are where they are, for people and for programs: the same text everywhere.

mod broker;
mod remedy;
mod shard;

use evenkeel_model::Millis;

pub use broker::{BrokerExplanation, NamingDecision, NamingShard, RoleCounts, explain_broker};
pub use shard::{Candidate, Explanation, explain};

/// A span of time in two units.
fn span(ms: Millis) -> String {
    let seconds = ms.max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// How long ago something was.
fn ago(now: Millis, since: Millis) -> String {
    span(now.saturating_sub(since))
}
