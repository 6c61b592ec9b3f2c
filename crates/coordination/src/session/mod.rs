//! One lease, kept alive, with a deadline until which it is provably alive.

mod driver;
mod machine;
#[cfg(test)]
mod machine_tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::{LeaseId, Store};

/// A lease that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// What keys are put on.
    pub id: LeaseId,
    /// Counts the leases of this session, from 1.
    pub epoch: u64,
}

/// Settings of a [`Session`].
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Metric label.
    pub name: &'static str,
    /// Time to live of the lease. etcd counts whole seconds and raises short ones to about 1.5
    /// times its election timeout; what it grants is what counts.
    pub ttl: Duration,
    /// Limit of one renewal. 1 s.
    pub renew_timeout: Duration,
}

impl SessionConfig {
    /// The defaults, with this time to live.
    pub fn new(name: &'static str, ttl: Duration) -> Self {
        Self { name, ttl, renew_timeout: Duration::from_secs(1) }
    }
}

/// A lease that is renewed for ever, and replaced when it is lost.
///
/// The lease is alive at etcd at least until `sent + granted TTL` of the last keep-alive that was
/// *answered*. The session counts on it only until a margin before that (0.5 s, or a tenth of
/// the TTL if that is more): by then it has published that the lease is lost, and only then does
/// it ask for another. The margin is for the holder to stop in; others may take over when etcd
/// drops the lease, never before `sent + TTL`.
///
/// The deadline is on the monotonic clock, which does not count a suspended machine. Guard writes
/// with a [`crate::Token`] as well.
///
/// Clones share the lease. When the last one is dropped the lease is no longer renewed, and runs
/// out; call [`Session::revoke`] to end it at once.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

struct Shared {
    held: watch::Receiver<Option<Lease>>,
    until: watch::Receiver<Option<Instant>>,
    close: mpsc::Sender<oneshot::Sender<()>>,
    driver: AbortHandle,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Session {
    /// Starts asking for a lease; must be called inside a runtime.
    pub fn start(store: Store, config: SessionConfig) -> Self {
        let (held_tx, held) = watch::channel(None);
        let (until_tx, until) = watch::channel(None);
        let (close, close_rx) = mpsc::channel(8);
        let driver = driver::Driver::new(store, config, held_tx, until_tx, close_rx);
        let driver = tokio::spawn(driver.run()).abort_handle();
        Self { shared: Arc::new(Shared { held, until, close, driver }) }
    }

    /// The lease as it changes: `None` before the first, and from the deadline of a lost one
    /// until the next is granted.
    pub fn watch(&self) -> watch::Receiver<Option<Lease>> {
        self.shared.held.clone()
    }

    /// The lease, if it is alive now.
    pub fn lease(&self) -> Option<Lease> {
        if self.is_alive() { *self.shared.held.borrow() } else { None }
    }

    /// Waits for a lease. `None` if the session was revoked.
    pub async fn held(&self) -> Option<Lease> {
        let mut held = self.watch();
        held.wait_for(Option::is_some).await.ok().and_then(|lease| *lease)
    }

    /// Until when the lease is provably alive; `None` if there is none.
    pub fn alive_until(&self) -> Option<Instant> {
        *self.shared.until.borrow()
    }

    /// Whether the lease is provably alive now. Right even in the moment in which a process that
    /// was stopped for long goes on.
    pub fn is_alive(&self) -> bool {
        self.alive_until().is_some_and(|until| Instant::now() < until)
    }

    /// Ends the lease and the session for good: publishes the loss, then revokes, so that keys on
    /// the lease go at once. If etcd does not answer, they go when the lease runs out.
    pub async fn revoke(&self) {
        let (done_tx, done) = oneshot::channel();
        if self.shared.close.send(done_tx).await.is_ok() {
            // An error means that the driver has ended, which is what was asked for.
            let _ = done.await;
        }
    }
}
