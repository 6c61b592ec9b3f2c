//! What a broker is good for in one pass.

use evenkeel_model::{BrokerView, Lifecycle, Millis, Policy};

/// What a broker is good for in this pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Live and registered: serves, may be given shards, counts in shares.
    Target,
    /// Live, its registration gone for the moment: serves, is no target.
    Unregistered,
    /// Serves and is to be emptied.
    Draining,
    /// Said farewell, and may still serve on the lease it held.
    Leaving,
    /// Down, gone for good, or never heard of.
    Lost,
}

impl Standing {
    /// Whether it may still lead, so that nobody else may.
    pub(crate) fn may_lead(self) -> bool {
        self != Self::Lost
    }

    /// Whether a copy there is a live replica.
    pub(crate) fn holds(self) -> bool {
        matches!(self, Self::Target | Self::Unregistered | Self::Draining)
    }
}

/// What its lifecycle and its registration make of a broker now.
pub(crate) fn standing(view: &BrokerView, now: Millis, policy: &Policy) -> Standing {
    match view.lifecycle {
        Lifecycle::Live if view.registered => Standing::Target,
        Lifecycle::Live => Standing::Unregistered,
        Lifecycle::Draining => Standing::Draining,
        Lifecycle::Down => Standing::Lost,
        Lifecycle::Left => {
            // Its lease can be alive that long after it was last seen.
            let margin = policy.broker_expiry_ms.saturating_add(policy.broker_expiry_ms / 4);
            if now.saturating_sub(view.last_seen_ms) > margin {
                Standing::Lost
            } else {
                Standing::Leaving
            }
        }
    }
}
