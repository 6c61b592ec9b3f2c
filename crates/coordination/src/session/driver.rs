//! Does what the session's machine asks for.

use std::time::Duration;

use etcd_client::{LeaseKeepAliveStream, LeaseKeeper};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::machine::{Action, Event, Machine, Output};
use super::{Lease, SessionConfig};
use crate::backoff::Backoff;
use crate::metrics::{self, Op};
use crate::store::{Lane, Ticket};
use crate::turn::{Call, ended, until};
use crate::{ErrorClass, LeaseId, Store, StoreError};

type Answer = (Option<Box<KeepAlive>>, Result<Event, StoreError>);

/// An open keep-alive stream, for as long as every request on it was answered in turn.
struct KeepAlive {
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
    ticket: Ticket,
    id: LeaseId,
}

pub(super) struct Driver {
    store: Store,
    config: SessionConfig,
    held: watch::Sender<Option<Lease>>,
    until: watch::Sender<Option<Instant>>,
    close: mpsc::Receiver<oneshot::Sender<()>>,
    backoff: Backoff,
    call: Option<Call<Answer>>,
    renewing: bool,
    keep_alive: Option<Box<KeepAlive>>,
    retired: FuturesUnordered<Call<()>>,
}

enum Turn {
    Time,
    Called(Answer),
    Retired,
    Close(oneshot::Sender<()>),
}

impl Driver {
    pub(super) fn new(
        store: Store,
        config: SessionConfig,
        held: watch::Sender<Option<Lease>>,
        until: watch::Sender<Option<Instant>>,
        close: mpsc::Receiver<oneshot::Sender<()>>,
    ) -> Self {
        Self {
            store,
            config,
            held,
            until,
            close,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(2)),
            call: None,
            renewing: false,
            keep_alive: None,
            retired: FuturesUnordered::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut machine = Machine::new(Instant::now(), self.config.renew_timeout);
        let mut closers: Vec<oneshot::Sender<()>> = Vec::new();
        let mut output = machine.on_time(Instant::now());
        loop {
            let wake_at = output.wake_at;
            self.perform(output);
            if machine.is_closed() && self.retired.is_empty() {
                for closer in closers.drain(..) {
                    // Nobody may be waiting any more.
                    let _ = closer.send(());
                }
                return;
            }
            output = match self.next(wake_at).await {
                Turn::Time => machine.on_time(Instant::now()),
                Turn::Called((keep_alive, result)) => {
                    self.keep_alive = keep_alive;
                    let event = self.judge(result);
                    machine.on_event(Instant::now(), event)
                }
                Turn::Retired => machine.on_time(Instant::now()),
                Turn::Close(closer) => {
                    closers.push(closer);
                    machine.on_event(Instant::now(), Event::Close)
                }
            };
        }
    }

    /// Time goes first: a deadline that has passed must be published before anything else is done.
    async fn next(&mut self, wake_at: Option<Instant>) -> Turn {
        tokio::select! {
            biased;
            () = until(wake_at) => Turn::Time,
            called = ended(&mut self.call) => Turn::Called(called),
            Some(()) = self.retired.next(), if !self.retired.is_empty() => Turn::Retired,
            Some(closer) = self.close.recv() => Turn::Close(closer),
        }
    }

    fn judge(&mut self, result: Result<Event, StoreError>) -> Event {
        match result {
            Ok(event) => {
                self.backoff.reset();
                event
            }
            Err(error) if self.renewing && error.class == ErrorClass::LeaseGone => Event::Gone,
            Err(error) => {
                let retry_after = self.backoff.pause(&self.store.pool.jitter);
                let session = self.config.name;
                if self.renewing {
                    tracing::debug!(session, %error, "lease was not renewed");
                    Event::RenewFailed { retry_after }
                } else {
                    tracing::warn!(session, %error, "no lease was granted");
                    Event::GrantFailed { retry_after }
                }
            }
        }
    }

    fn perform(&mut self, output: Output) {
        for action in output.actions {
            match action {
                Action::Grant => {
                    self.renewing = false;
                    self.keep_alive = None;
                    self.call = Some(Box::pin(grant(self.store.clone(), self.config.ttl)));
                }
                Action::Renew { id, limit } => {
                    self.renewing = true;
                    let stream = self.keep_alive.take().filter(|stream| stream.id == id);
                    self.call = Some(Box::pin(renew(self.store.clone(), id, limit, stream)));
                }
                Action::Hold { lease, until } => {
                    let session = self.config.name;
                    metrics::lease_remaining(session, until - Instant::now());
                    self.until.send_replace(Some(until));
                    let new = self.held.send_if_modified(|held| held.replace(lease) != Some(lease));
                    if new {
                        tracing::info!(
                            session,
                            lease = lease.id,
                            epoch = lease.epoch,
                            "lease held"
                        );
                    }
                }
                Action::Lose => {
                    let session = self.config.name;
                    metrics::lease_remaining(session, Duration::ZERO);
                    metrics::lease_lost(session);
                    self.until.send_replace(None);
                    self.held.send_replace(None);
                    self.call = None;
                    self.keep_alive = None;
                    tracing::warn!(session, "lease lost");
                }
                Action::Retire(id) => self.retired.push(Box::pin(retire(self.store.clone(), id))),
            }
        }
    }
}

async fn grant(store: Store, ttl: Duration) -> Answer {
    let seconds = i64::try_from(ttl.as_secs_f64().ceil() as u64).unwrap_or(i64::MAX).max(1);
    let sent = Instant::now();
    let limit = store.pool.request_timeout();
    let answer = store
        .pool
        .once(Op::Grant, Lane::Calls, limit, |mut client| async move {
            client.lease_grant(seconds, None).await
        })
        .await;
    let event = answer.map(|(granted, _)| Event::Granted {
        sent,
        id: granted.id(),
        ttl: Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or(0)),
    });
    (None, event)
}

/// Only an answer counts: queuing a keep-alive succeeds on a dead connection too.
async fn renew(
    store: Store,
    id: LeaseId,
    limit: Duration,
    stream: Option<Box<KeepAlive>>,
) -> Answer {
    let sent = Instant::now();
    let Some(mut stream) = stream else {
        let opened = store
            .pool
            .once(Op::Renew, Lane::Streams, limit, |mut client| async move {
                client.lease_keep_alive(id).await
            })
            .await;
        return match opened {
            Ok(((keeper, answers), ticket)) => {
                let stream = KeepAlive { keeper, answers, ticket, id };
                (Some(Box::new(stream)), Ok(Event::Renewed { sent }))
            }
            Err(error) => (None, Err(error)),
        };
    };
    let answer = timeout(limit, async {
        stream.keeper.keep_alive().await?;
        stream.answers.message().await
    });
    let answer = answer.await;
    metrics::requested(Op::Renew, sent.elapsed());
    let error = match answer {
        Ok(Ok(Some(answer))) if answer.ttl() > 0 => {
            return (Some(stream), Ok(Event::Renewed { sent }));
        }
        Ok(Ok(Some(_))) => StoreError::new(ErrorClass::LeaseGone, "lease not found"),
        Ok(Ok(None)) => StoreError::new(ErrorClass::Unavailable, "keep-alive stream closed"),
        Ok(Err(error)) => StoreError::classify(error),
        Err(_) => StoreError::timed_out(limit),
    };
    metrics::failed(error.class);
    if error.class == ErrorClass::Unavailable {
        store.pool.blame(stream.ticket, answer_is_late(&error));
    }
    (None, Err(error))
}

fn answer_is_late(error: &StoreError) -> bool {
    error.detail.starts_with("no answer")
}

async fn retire(store: Store, id: LeaseId) {
    let limit = store.pool.request_timeout();
    for _ in 0..2 {
        let revoked = store
            .pool
            .once(Op::Revoke, Lane::Calls, limit, |mut client| async move {
                client.lease_revoke(id).await
            })
            .await;
        match revoked {
            Ok(_) => return,
            Err(error) if error.class == ErrorClass::LeaseGone => return,
            Err(error) => tracing::debug!(lease = id, %error, "lease was not revoked"),
        }
    }
}
