//! Copies that could go on and do not.

use std::time::Duration;

use super::{Action, Engine, cancel};
use crate::metrics;

impl Engine {
    /// A copy that had credit and no byte for too long is stopped where it is and tried from another
    /// source. There is no other limit of time on a copy.
    pub(super) fn stop_stalled(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let limit = self.settings.stall;
        for (shard, copy) in &mut self.copies {
            let idle = copy.idle(now);
            if limit.is_zero() || idle < limit {
                continue;
            }
            let from = copy.source.as_ref().map(ToString::to_string).unwrap_or_default();
            let detail = format!("stalled: no byte verified for {} s from {from}", idle.as_secs());
            tracing::warn!(%shard, destination = %copy.job.destination, detail, "copy stalled");
            metrics::stalled(copy.job.class);
            if let Some(ordered) = &copy.ordered {
                // The same source may be tried again, and the agent starts no copy that it runs.
                let message = cancel(shard, ordered.generation);
                actions.push(Action::Send { session: ordered.session, message });
            }
            copy.failed(now, &detail);
        }
    }
}
