//! One connection per endpoint and lane; sticky, and left for the next when an attempt fails.
//!
//! A client over several endpoints would keep choosing the dead one, so rotation is ours.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::config::{Endpoint, StoreConfig};
use crate::backoff::{Backoff, Jitter};
use crate::metrics::{self, Op};
use crate::{ErrorClass, StoreError};

/// Writes under way at once, from one store handle and its clones.
const WRITES_MAX: usize = 64;

/// Long-lived streams have their own connection: with large reads on the same one, etcd can let
/// watches wait for tens of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Calls,
    Streams,
}

/// Which connection was used, so that it can be blamed for what happened on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    turn: usize,
    lane: Lane,
    generation: u64,
}

pub(crate) struct Pool {
    pub(super) config: StoreConfig,
    pub(crate) jitter: Jitter,
    seats: Vec<Seat>,
    /// Writes under way. etcd refuses them when too many wait to be applied; more than this
    /// gains nothing.
    writes: Semaphore,
    /// Rises with every rotation; the endpoint in use is this modulo their number.
    turn: AtomicUsize,
}

struct Seat {
    calls: Mutex<Link>,
    streams: Mutex<Link>,
}

#[derive(Default)]
struct Link {
    client: Option<Client>,
    generation: u64,
}

impl Pool {
    pub(super) fn new(config: StoreConfig) -> Self {
        let jitter = Jitter::new(config.seed);
        let seats: Vec<Seat> = config
            .endpoints
            .iter()
            .map(|_| Seat { calls: Mutex::default(), streams: Mutex::default() })
            .collect();
        // The fleet must not all start at the first member.
        let turn = AtomicUsize::new((jitter.draw() % seats.len().max(1) as u64) as usize);
        Self { config, jitter, seats, writes: Semaphore::new(WRITES_MAX), turn }
    }

    /// One attempt at the current endpoint, within `limit`. A failure is counted and judged, and
    /// moves the pool on if the endpoint is to blame.
    pub(crate) async fn once<T, F, Fut>(
        &self,
        op: Op,
        lane: Lane,
        limit: Duration,
        call: F,
    ) -> Result<(T, Ticket), StoreError>
    where
        F: FnOnce(Client) -> Fut,
        Fut: Future<Output = Result<T, etcd_client::Error>>,
    {
        let _permit = match op {
            // The semaphore is never closed, so there is always a permit.
            Op::Put | Op::Delete | Op::Txn => self.writes.acquire().await.ok(),
            _ => None,
        };
        let turn = self.turn.load(Ordering::Relaxed);
        let mut ticket = Ticket { turn, lane, generation: self.link(turn, lane, |l| l.generation) };
        let started = Instant::now();
        let attempt = timeout(limit, async {
            let client = self.connect(turn, lane).await?;
            call(client).await
        });
        let answer = attempt.await;
        metrics::requested(op, started.elapsed());
        let hung = answer.is_err();
        let error = match answer {
            Ok(Ok(value)) => {
                ticket.generation = self.link(turn, lane, |l| l.generation);
                return Ok((value, ticket));
            }
            Ok(Err(error)) => StoreError::classify(error),
            Err(_) => StoreError::timed_out(limit),
        };
        metrics::failed(error.class);
        tracing::debug!(op = ?op, endpoint = %self.endpoint(turn), %error, "etcd call failed");
        match error.class {
            // A peer that does not answer would hold the next attempt up as well.
            ErrorClass::Unavailable => self.blame(ticket, hung),
            // A new connection logs in again.
            ErrorClass::Auth => self.disconnect(ticket),
            _ => {}
        }
        Err(error)
    }

    /// Repeats a call that may be made twice without harm, until `patience` has passed.
    pub(crate) async fn repeat<T, F, Fut>(&self, op: Op, call: F) -> Result<T, StoreError>
    where
        F: Fn(Client) -> Fut,
        Fut: Future<Output = Result<T, etcd_client::Error>>,
    {
        let mut retry = Retry::new(self);
        loop {
            match self.once(op, Lane::Calls, self.config.request_timeout, &call).await {
                Ok((value, _)) => return Ok(value),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    /// Something went wrong on this connection after it had been handed out.
    pub(crate) fn blame(&self, ticket: Ticket, hung: bool) {
        if hung {
            self.disconnect(ticket);
        }
        let moved = self.turn.compare_exchange(
            ticket.turn,
            ticket.turn.wrapping_add(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if moved.is_ok() && self.seats.len() > 1 {
            metrics::rotated();
        }
    }

    /// Gets a new token for the streams' connection. Watches do not notice by themselves that
    /// theirs has expired.
    pub(crate) async fn refresh_token(&self) -> Result<(), StoreError> {
        if self.config.user.is_none() {
            return Ok(());
        }
        let limit = self.config.request_timeout;
        let refresh = |client: Client| async move { client.refresh_token().await };
        self.once(Op::Status, Lane::Streams, limit, refresh).await.map(|_| ())
    }

    pub(crate) fn endpoints(&self) -> String {
        let names: Vec<String> = self.config.endpoints.iter().map(ToString::to_string).collect();
        names.join(", ")
    }

    pub(crate) fn endpoint_count(&self) -> usize {
        self.seats.len()
    }

    /// A client of the endpoint with this number, whichever is in use.
    pub(super) async fn member(&self, index: usize) -> Result<Client, etcd_client::Error> {
        self.connect(index, Lane::Calls).await
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.config.request_timeout
    }

    async fn connect(&self, turn: usize, lane: Lane) -> Result<Client, etcd_client::Error> {
        if let Some(client) = self.link(turn, lane, |link| link.client.clone()) {
            return Ok(client);
        }
        let generation = self.link(turn, lane, |link| link.generation);
        let client = self.dial(turn, lane).await?;
        self.link(turn, lane, |link| {
            if link.client.is_none() && link.generation == generation {
                link.client = Some(client.clone());
            }
        });
        Ok(client)
    }

    async fn dial(&self, turn: usize, lane: Lane) -> Result<Client, etcd_client::Error> {
        let channel = match self.endpoint(turn) {
            Endpoint::Channel(make) => make(),
            Endpoint::Url(url) => match self.config.transport(url) {
                Ok(transport) => transport.connect_lazy(),
                Err(error) => return Err(etcd_client::Error::InvalidArgs(error.detail)),
            },
        };
        let mut options = ConnectOptions::default();
        if let Some((name, password)) = &self.config.user {
            options = options.with_user(name, password).with_auto_token_refresh(true);
        }
        if lane == Lane::Streams {
            // A member cut off from its quorum would keep a watch open in silence.
            options = options.with_require_leader(true);
        }
        Client::from_channel(etcd_client::Channel::Tonic(channel), Some(options)).await
    }

    fn disconnect(&self, ticket: Ticket) {
        self.link(ticket.turn, ticket.lane, |link| {
            if link.generation == ticket.generation {
                *link = Link { client: None, generation: ticket.generation + 1 };
            }
        });
    }

    fn endpoint(&self, turn: usize) -> &Endpoint {
        &self.config.endpoints[turn % self.seats.len()]
    }

    fn link<T>(&self, turn: usize, lane: Lane, look: impl FnOnce(&mut Link) -> T) -> T {
        let seat = &self.seats[turn % self.seats.len()];
        let link = match lane {
            Lane::Calls => &seat.calls,
            Lane::Streams => &seat.streams,
        };
        look(&mut link.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Decides whether a failed call is tried again, and waits before it is.
pub(super) struct Retry<'a> {
    pool: &'a Pool,
    backoff: Backoff,
    give_up_at: Instant,
    logged_in_again: bool,
}

impl<'a> Retry<'a> {
    pub(super) fn new(pool: &'a Pool) -> Self {
        Self {
            pool,
            // A connection that has just closed is not replaced at once.
            backoff: Backoff::new(Duration::from_millis(20), Duration::from_millis(500)),
            give_up_at: Instant::now() + pool.config.patience,
            logged_in_again: false,
        }
    }

    /// Returns the error if another attempt is useless or too late.
    pub(super) async fn after(&mut self, error: StoreError) -> Result<(), StoreError> {
        let useful = match error.class {
            ErrorClass::Unavailable | ErrorClass::Busy => true,
            ErrorClass::Auth => {
                self.pool.config.user.is_some()
                    && !std::mem::replace(&mut self.logged_in_again, true)
            }
            ErrorClass::Compacted
            | ErrorClass::TooLarge
            | ErrorClass::NoSpace
            | ErrorClass::LeaseGone
            | ErrorClass::Fatal => false,
        };
        let pause = self.backoff.pause(&self.pool.jitter);
        if !useful || Instant::now() + pause >= self.give_up_at {
            return Err(error);
        }
        sleep(pause).await;
        Ok(())
    }
}
