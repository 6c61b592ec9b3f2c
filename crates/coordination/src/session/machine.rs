//! The session's rules, without I/O: events in, actions out, and when to call again.

use std::time::Duration;

use tokio::time::Instant;

use super::Lease;
use crate::LeaseId;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// etcd granted a lease to the request that left at `sent`.
    Granted {
        sent: Instant,
        id: LeaseId,
        ttl: Duration,
    },
    GrantFailed {
        retry_after: Duration,
    },
    /// etcd answered the keep-alive that left at `sent`.
    Renewed {
        sent: Instant,
    },
    RenewFailed {
        retry_after: Duration,
    },
    /// etcd does not know the lease.
    Gone,
    /// The owner ends the session.
    Close,
}

/// What to do, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask for a lease. Replaces whatever call is under way.
    Grant,
    /// Send a keep-alive and wait for its answer this long. Replaces whatever call is under way.
    Renew { id: LeaseId, limit: Duration },
    /// The lease is alive until then.
    Hold { lease: Lease, until: Instant },
    /// The lease may no longer be alive.
    Lose,
    /// Revoke a lease that is no longer used.
    Retire(LeaseId),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) actions: Vec<Action>,
    pub(super) wake_at: Option<Instant>,
}

#[derive(Debug)]
enum State {
    Waiting { retry_at: Instant },
    Granting,
    Held { lease: Lease, ttl: Duration, until: Instant, renew_at: Option<Instant> },
    Closed,
}

#[derive(Debug)]
pub(super) struct Machine {
    renew_timeout: Duration,
    state: State,
    epoch: u64,
    /// Lost by our own clock only: etcd may still hold it, with our keys. It is revoked once there
    /// is another, so that its keys can be written anew in between.
    lost: Option<LeaseId>,
}

/// How long a lease of this TTL is counted on after its keep-alive was sent.
pub(super) fn window(ttl: Duration) -> Duration {
    ttl.saturating_sub(Duration::from_millis(500).max(ttl / 10))
}

impl Machine {
    pub(super) fn new(now: Instant, renew_timeout: Duration) -> Self {
        Self { renew_timeout, state: State::Waiting { retry_at: now }, epoch: 0, lost: None }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Harmless when called early, late or twice.
    pub(super) fn on_time(&mut self, now: Instant) -> Output {
        let mut actions = Vec::new();
        self.advance(now, &mut actions);
        self.output(actions)
    }

    pub(super) fn on_event(&mut self, now: Instant, event: Event) -> Output {
        let mut actions = Vec::new();
        match event {
            Event::Granted { sent, id, ttl } => self.granted(now, sent, id, ttl, &mut actions),
            Event::GrantFailed { retry_after } => {
                if matches!(self.state, State::Granting) {
                    self.state = State::Waiting { retry_at: now + retry_after };
                }
            }
            Event::Renewed { sent } => self.renewed(sent, &mut actions),
            Event::RenewFailed { retry_after } => {
                if let State::Held { renew_at, ttl, .. } = &mut self.state {
                    // A long pause would waste what is left of the lease.
                    *renew_at = Some(now + retry_after.min(window(*ttl) / 6));
                }
            }
            Event::Gone => {
                if matches!(self.state, State::Held { .. }) {
                    self.state = State::Waiting { retry_at: now };
                    actions.push(Action::Lose);
                }
            }
            Event::Close => self.close(&mut actions),
        }
        self.advance(now, &mut actions);
        self.output(actions)
    }

    fn granted(
        &mut self,
        now: Instant,
        sent: Instant,
        id: LeaseId,
        ttl: Duration,
        actions: &mut Vec<Action>,
    ) {
        let until = sent + window(ttl);
        if !matches!(self.state, State::Granting) {
            actions.push(Action::Retire(id));
            return;
        }
        if until <= now {
            // The answer took so long that the lease is of no use.
            actions.push(Action::Retire(id));
            self.state = State::Waiting { retry_at: now + self.renew_timeout };
            return;
        }
        self.epoch += 1;
        let lease = Lease { id, epoch: self.epoch };
        self.state = State::Held { lease, ttl, until, renew_at: Some(sent + window(ttl) / 3) };
        actions.push(Action::Hold { lease, until });
        actions.extend(self.lost.take().map(Action::Retire));
    }

    fn renewed(&mut self, sent: Instant, actions: &mut Vec<Action>) {
        if let State::Held { lease, ttl, until, renew_at } = &mut self.state {
            *until = (*until).max(sent + window(*ttl));
            *renew_at = Some(sent + window(*ttl) / 3);
            actions.push(Action::Hold { lease: *lease, until: *until });
        }
    }

    fn close(&mut self, actions: &mut Vec<Action>) {
        if let State::Held { lease, .. } = self.state {
            actions.push(Action::Lose);
            actions.push(Action::Retire(lease.id));
        }
        actions.extend(self.lost.take().map(Action::Retire));
        self.state = State::Closed;
    }

    fn advance(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if let State::Held { lease, until, .. } = self.state
            && now >= until
        {
            actions.push(Action::Lose);
            self.lost = Some(lease.id);
            self.state = State::Waiting { retry_at: now };
        }
        match &mut self.state {
            State::Waiting { retry_at } if now >= *retry_at => {
                actions.push(Action::Grant);
                self.state = State::Granting;
            }
            State::Held { lease, until, renew_at, .. } if renew_at.is_some_and(|at| now >= at) => {
                *renew_at = None;
                let limit = self.renew_timeout.min(*until - now);
                actions.push(Action::Renew { id: lease.id, limit });
            }
            _ => {}
        }
    }

    fn output(&self, actions: Vec<Action>) -> Output {
        let wake_at = match self.state {
            State::Waiting { retry_at } => Some(retry_at),
            State::Held { until, renew_at, .. } => Some(renew_at.map_or(until, |at| at.min(until))),
            State::Granting | State::Closed => None,
        };
        Output { actions, wake_at }
    }
}
