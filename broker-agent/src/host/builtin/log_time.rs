//! The time by which a shard's records grow old.
//!
//! It is the clock of this broker, which may be wrong. So it begins with the newest record from
//! before this broker led the shard, and reaches a clock that is ahead of that slowly: by a wrong
//! one nothing is given up that is not soon old anyway.

use std::collections::BTreeMap;

use evenkeel_model::{Millis, ShardKey};
use tokio::time::Instant;

/// How many times faster than the real time it goes at most.
const FASTER: Millis = 2;

/// The times of the shards held here, and when they were looked at.
#[derive(Debug, Default)]
pub(super) struct LogTimes(BTreeMap<ShardKey, (Millis, Instant)>);

impl LogTimes {
    /// Takes note of the newest record, 0 for none, of a shard that others lead.
    pub(super) fn follow(&mut self, shard: &ShardKey, newest_ms: Millis, now: Instant) {
        self.0.insert(shard.clone(), (newest_ms, now));
    }

    /// The time of a shard led here, at most that of the clock. `opened_ms` is the newest record's
    /// when it was opened, 0 for none.
    pub(super) fn lead(
        &mut self,
        shard: &ShardKey,
        opened_ms: Millis,
        clock_ms: Millis,
        now: Instant,
    ) -> Millis {
        let (reached, at) = self.0.entry(shard.clone()).or_insert((opened_ms, now));
        if *reached == 0 {
            *reached = clock_ms;
        }
        let passed = Millis::try_from(now.duration_since(*at).as_millis()).unwrap_or(Millis::MAX);
        let time = clock_ms.min(reached.saturating_add(passed.saturating_mul(FASTER)));
        (*reached, *at) = (time.max(*reached), now);
        time
    }

    /// Forgets all shards but these.
    pub(super) fn keep(&mut self, is_held: impl Fn(&ShardKey) -> bool) {
        self.0.retain(|shard, _| is_held(shard));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: Millis = 3_600_000;

    #[tokio::test(start_paused = true)]
    async fn a_right_clock_is_followed_and_one_that_is_ahead_slowly() {
        let shard: ShardKey = "stream/d/s/0".parse().unwrap();
        let mut times = LogTimes::default();
        let start = Instant::now();
        let after = |hours: u64| start + Duration::from_secs(hours * 3600);
        let right = |hours: Millis| 1_700_000_000_000 + hours * HOUR;
        let newest = right(0);
        assert_eq!(times.lead(&shard, newest, right(0), after(0)), right(0));
        assert_eq!(times.lead(&shard, newest, right(1), after(1)), right(1));
        // A year ahead: twice the real time.
        assert_eq!(times.lead(&shard, newest, right(8762), after(2)), right(3));
        assert_eq!(times.lead(&shard, newest, right(8764), after(4)), right(7));
        assert_eq!(times.lead(&shard, newest, right(5), after(5)), right(5), "it was mended");
        // What was followed begins with its newest record, and an empty log with the clock.
        times.follow(&shard, right(2), after(9));
        assert_eq!(times.lead(&shard, newest, right(12), after(12)), right(8));
        times.keep(|_| false);
        assert_eq!(times.lead(&shard, 0, right(13), after(13)), right(13));
    }
}
