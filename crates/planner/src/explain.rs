//! Why things are where they are, for people and for programs: the same text everywhere.

mod broker;
mod remedy;
mod shard;

use evenkeel_model::Millis;

pub use broker::{BrokerExplanation, NamingDecision, NamingShard, RoleCounts, explain_broker};
pub use shard::{Candidate, Explanation, explain};

/// A span of time for people, in two units.
pub fn span(ms: Millis) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_the_most() {
        let of = [59_999, 61_000, 7_260_000, 90_000_000].map(span);
        assert_eq!(of, ["59s", "1m01s", "2h01m", "1d01h"]);
        assert_eq!(span(-5), "0s");
    }
}
