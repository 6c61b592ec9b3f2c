//! How long copies take: what no schedule can beat, and what one after another would take.

use std::collections::BTreeMap;

use evenkeel_model::broker::DEFAULT_NETWORK_BYTES_PER_SECOND;
use evenkeel_model::{BrokerId, Millis, Snapshot};
use serde::Serialize;

use super::{Movement, START_SHARE, Terms};
use crate::decision::Step;

/// How long it takes. Bytes of unknown size are not in it; nor is what agents, fences and passes
/// take, which is seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Duration {
    /// Bytes per second into and out of each broker; null: each its link times `link_share`.
    pub rate_bytes_per_second: Option<u64>,
    /// The share of each link, where the rate is not given.
    pub link_share: Option<f64>,
    /// No schedule is faster: the largest of the bounds below, and the delays.
    pub at_least_seconds: f64,
    /// One copy after another, and the delays: no schedule that keeps busy is slower.
    pub one_by_one_seconds: f64,
    /// What bounds it: `nothing`, `slots`, `sending`, `receiving` or `broker_slots`.
    pub limited_by: &'static str,
    /// The broker, of the last three.
    pub limited_at: Option<BrokerId>,
    /// Waits that only time ends, such as `restore_after_ms`.
    pub delays_seconds: f64,
}

impl Duration {
    /// Of the copies in `steps`, with the limits and links of `at_rest`.
    pub(super) fn of(
        steps: &[Movement],
        at_rest: &Snapshot,
        delays_ms: Millis,
        terms: Terms,
    ) -> Self {
        let rates = Rates { snapshot: at_rest, terms };
        let policy = &at_rest.policy;
        let mut busy: BTreeMap<(&'static str, &BrokerId), f64> = BTreeMap::new();
        let (mut all, mut moves) = (0.0, 0.0);
        for step in steps {
            let (Some(bytes), Some(source), Some(to)) = (step.bytes, &step.source, &step.write.to)
            else {
                continue;
            };
            let bytes = bytes as f64;
            let (sends, receives) = (bytes / rates.of(source), bytes / rates.of(to));
            let alone = sends.max(receives);
            all += alone;
            if step.write.step != Step::Restore {
                moves += alone;
            }
            *busy.entry(("sending", source)).or_default() += sends;
            *busy.entry(("receiving", to)).or_default() += receives;
            if let Some(max) = policy.moves_max_per_node {
                for broker in [source, to] {
                    let share = alone / f64::from(max.max(1));
                    *busy.entry(("broker_slots", broker)).or_default() += share;
                }
            }
        }
        // Restores of last copies have slots of their own beside those of moves.
        let slots = f64::from(policy.moves_max_concurrent.max(1));
        let both = slots + f64::from(policy.repairs_max_concurrent);
        let by_slots = (moves / slots).max(all / both);
        let mut worst = (if by_slots > 0.0 { "slots" } else { "nothing" }, None, by_slots);
        for ((word, broker), seconds) in busy {
            if seconds > worst.2 {
                worst = (word, Some(broker.clone()), seconds);
            }
        }
        let delays_seconds = delays_ms as f64 / 1000.0;
        Self {
            rate_bytes_per_second: terms.rate_bytes_per_second,
            link_share: terms.rate_bytes_per_second.is_none().then_some(START_SHARE),
            at_least_seconds: worst.2 + delays_seconds,
            one_by_one_seconds: all + delays_seconds,
            limited_by: worst.0,
            limited_at: worst.1,
            delays_seconds,
        }
    }
}

struct Rates<'a> {
    snapshot: &'a Snapshot,
    terms: Terms,
}

impl Rates<'_> {
    /// Bytes per second of copies into or out of a broker.
    fn of(&self, broker: &BrokerId) -> f64 {
        if let Some(rate) = self.terms.rate_bytes_per_second {
            return rate.max(1) as f64;
        }
        let view = self.snapshot.brokers.get(broker);
        let link = view.and_then(|b| b.network_bytes_per_second);
        let link = link.unwrap_or(DEFAULT_NETWORK_BYTES_PER_SECOND);
        (link as f64 * START_SHARE).max(1.0)
    }
}
