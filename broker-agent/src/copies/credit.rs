//! A destination's ledger of granted bytes.
//!
//! A grant that is not extended to the source before it expires is gone; what was extended stays
//! with the source, at most one window. So a dead migrator leaves no flow behind.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Granted, extended and received bytes of one copy.
#[derive(Debug, Default)]
pub struct CreditLedger {
    grants: VecDeque<Grant>,
    extended: u64,
    received: u64,
}

#[derive(Debug, Clone, Copy)]
struct Grant {
    bytes: u64,
    expires: Instant,
}

impl CreditLedger {
    /// Another call to the source begins: what the last one held is gone.
    pub fn restart(&mut self) {
        self.extended = 0;
        self.received = 0;
    }

    /// The migrator grants bytes for a time.
    pub fn grant(&mut self, now: Instant, bytes: u64, lifetime: Duration) {
        if bytes > 0 {
            self.grants.push_back(Grant { bytes, expires: now + lifetime });
        }
    }

    /// Drops what has expired; how many bytes that was.
    pub fn expire(&mut self, now: Instant) -> u64 {
        let gone = self.grants.iter().filter(|g| g.expires <= now).map(|g| g.bytes).sum();
        self.grants.retain(|g| g.expires > now);
        gone
    }

    /// When the next grant expires.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.grants.iter().map(|g| g.expires).min()
    }

    /// Granted bytes that are not with the source yet.
    pub fn unused(&self) -> u64 {
        self.grants.iter().map(|g| g.bytes).sum()
    }

    /// Bytes that may be extended to the source now, if at most `window` may be there at once.
    pub fn extendable(&self, window: u64) -> u64 {
        // The last chunk may go beyond the credit; that debt is paid first.
        let room = (window + self.received).saturating_sub(self.extended);
        room.min(self.unused())
    }

    /// Extends so many bytes, of the grants that expire soonest and no more than there are. Returns
    /// the cumulative credit to tell the source.
    pub fn extend(&mut self, bytes: u64) -> u64 {
        let mut left = bytes.min(self.unused());
        self.extended += left;
        while left > 0 {
            let Some(grant) = self.grants.front_mut() else { break };
            let taken = left.min(grant.bytes);
            grant.bytes -= taken;
            left -= taken;
            if grant.bytes == 0 {
                self.grants.pop_front();
            }
        }
        self.extended
    }

    /// A chunk of so many bytes arrived.
    pub fn received(&mut self, bytes: u64) {
        self.received += bytes;
    }

    /// Whether the source holds credit that it has not used.
    pub fn is_flowing(&self) -> bool {
        self.extended > self.received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(500);

    #[tokio::test(start_paused = true)]
    async fn credit_is_extended_within_the_window_and_rises_only() {
        let now = Instant::now();
        let mut ledger = CreditLedger::default();
        assert_eq!(ledger.extendable(100), 0);
        ledger.grant(now, 150, ROUND);
        assert_eq!(ledger.extendable(100), 100);
        assert_eq!(ledger.extend(100), 100);
        assert_eq!((ledger.extendable(100), ledger.unused()), (0, 50));
        ledger.received(60);
        assert!(ledger.is_flowing());
        assert_eq!(ledger.extendable(100), 50);
        assert_eq!(ledger.extend(500), 150, "no more than was granted");
        assert_eq!(ledger.unused(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_grant_is_gone() {
        let now = Instant::now();
        let mut ledger = CreditLedger::default();
        ledger.grant(now, 30, ROUND);
        ledger.grant(now, 40, 2 * ROUND);
        assert_eq!(ledger.next_expiry(), Some(now + ROUND));
        assert_eq!(ledger.expire(now + ROUND), 30);
        assert_eq!(ledger.extendable(100), 40);
        assert_eq!(ledger.expire(now + 2 * ROUND), 40);
        assert_eq!((ledger.extendable(100), ledger.next_expiry()), (0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_debt_of_a_chunk_beyond_the_credit_is_paid_first() {
        let now = Instant::now();
        let mut ledger = CreditLedger::default();
        ledger.grant(now, 10, ROUND);
        assert_eq!(ledger.extend(10), 10);
        ledger.received(64);
        assert!(!ledger.is_flowing());
        ledger.grant(now, 500, ROUND);
        // Up to a window beyond what was received.
        assert_eq!(ledger.extendable(100), 154);
        assert_eq!(ledger.extend(154), 164);
    }
}
