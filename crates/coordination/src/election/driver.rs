//! Does what the election's machine asks for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::machine::{Action, Event, Machine, Output};
use super::{ElectionConfig, Leadership};
use crate::backoff::Backoff;
use crate::turn::{Call, ended, until};
use crate::{
    Guard, Guarded, Lease, LeaseId, Outcome, Revision, Store, StoreError, Token, View, ViewConfig,
    Write, metrics,
};

/// The driver's ends of the handle's channels.
pub(super) struct Ports {
    pub(super) leadership: watch::Sender<Leadership>,
    pub(super) resign: mpsc::Receiver<oneshot::Sender<()>>,
    pub(super) progress: Arc<Mutex<Instant>>,
}

pub(super) struct Driver {
    store: Store,
    session: watch::Receiver<Option<Lease>>,
    config: ElectionConfig,
    ports: Ports,
    view: View,
    backoff: Backoff,
    call: Option<Call<Answer>>,
}

enum Answer {
    Event(Event),
    AttemptFailed(StoreError),
}

enum Turn {
    Time,
    Session,
    Called(Answer),
    Key,
    Resign(oneshot::Sender<()>),
    /// The session has ended for good.
    End,
}

impl Driver {
    pub(super) fn new(
        store: Store,
        session: watch::Receiver<Option<Lease>>,
        config: ElectionConfig,
        ports: Ports,
    ) -> Self {
        let view = View::start(store.clone(), vec![config.key.clone()], ViewConfig::default());
        Self {
            store,
            session,
            config,
            ports,
            view,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(2)),
            call: None,
        }
    }

    pub(super) async fn run(mut self) {
        let now = Instant::now();
        let config = &self.config;
        let mut machine =
            Machine::new(now, config.key.clone(), config.poll_every, config.progress_timeout);
        let mut key_changes = self.view.changed();
        let mut resigned: Vec<oneshot::Sender<()>> = Vec::new();
        let lease = self.lease();
        let mut output = machine.on_event(now, Event::Session(lease));
        loop {
            let wake_at = output.wake_at;
            self.perform(output);
            if machine.is_closed() {
                for waiter in resigned.drain(..) {
                    // Nobody may be waiting any more.
                    let _ = waiter.send(());
                }
                return;
            }
            let turn = self.next(wake_at, &mut key_changes).await;
            let now = Instant::now();
            output = match turn {
                Turn::Time => machine.on_event(now, Event::Progress { at: self.last_progress() }),
                Turn::Session => machine.on_event(now, Event::Session(self.lease())),
                Turn::Called(answer) => machine.on_event(now, self.judge(answer)),
                Turn::Key => machine.on_event(now, self.watched()),
                Turn::Resign(waiter) => {
                    resigned.push(waiter);
                    machine.on_event(now, Event::Resign)
                }
                Turn::End => {
                    let lost = machine.on_event(now, Event::Session(None));
                    self.perform(lost);
                    machine.on_event(now, Event::Resign)
                }
            };
        }
    }

    async fn next(
        &mut self,
        wake_at: Option<Instant>,
        key_changes: &mut watch::Receiver<Revision>,
    ) -> Turn {
        tokio::select! {
            biased;
            changed = self.session.changed() => match changed {
                Ok(()) => Turn::Session,
                Err(_) => Turn::End,
            },
            () = until(wake_at) => Turn::Time,
            answer = ended(&mut self.call) => Turn::Called(answer),
            Ok(()) = key_changes.changed() => Turn::Key,
            Some(waiter) = self.ports.resign.recv() => Turn::Resign(waiter),
        }
    }

    fn lease(&mut self) -> Option<LeaseId> {
        self.session.borrow_and_update().map(|lease| lease.id)
    }

    fn last_progress(&self) -> Instant {
        *self.ports.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> Event {
        self.view.read(|state| Event::Watched {
            entry: state.get(&self.config.key).cloned(),
            revision: state.revision(),
        })
    }

    fn judge(&mut self, answer: Answer) -> Event {
        match answer {
            Answer::Event(event) => {
                if event != Event::ReadFailed {
                    self.backoff.reset();
                }
                event
            }
            Answer::AttemptFailed(error) => {
                let election = self.config.name;
                tracing::debug!(election, %error, "attempt to be elected failed");
                let retry_after = self.backoff.pause(&self.store.pool.jitter);
                Event::AttemptFailed { retry_after }
            }
        }
    }

    fn perform(&mut self, output: Output) {
        for action in output.actions {
            let store = self.store.clone();
            let key = self.config.key.clone();
            match action {
                Action::Attempt { lease } => {
                    let value = (self.config.value)();
                    self.call = Some(Box::pin(attempt(store, key, value, lease)));
                }
                Action::Read => self.call = Some(Box::pin(read(store, key))),
                Action::Release(token) => self.call = Some(Box::pin(release(store, token))),
                Action::Publish(leadership) => self.publish(leadership),
            }
        }
    }

    fn publish(&self, leadership: Leadership) {
        let election = self.config.name;
        metrics::leading(election, matches!(leadership, Leadership::Leading(_)));
        match &leadership {
            Leadership::Leading(token) => {
                tracing::info!(election, token = token.create_revision, "elected");
            }
            Leadership::Following { leader: Some(leader) } => {
                tracing::info!(election, token = leader.create_revision, "following a leader");
            }
            Leadership::Following { leader: None } => tracing::info!(election, "no leader"),
            Leadership::Unknown => tracing::info!(election, "leader unknown"),
        }
        self.ports.leadership.send_replace(leadership);
    }
}

async fn attempt(store: Store, key: String, value: Vec<u8>, lease: LeaseId) -> Answer {
    let txn = Guarded {
        token: None,
        guards: vec![Guard::Absent { key: key.clone() }],
        writes: vec![Write::Put { key, value, lease: Some(lease) }],
    };
    match store.commit(txn).await {
        Outcome::Written { revision } => Answer::Event(Event::Won { lease, revision }),
        Outcome::Stale { found } => Answer::Event(Event::Taken { by: found.into_iter().next() }),
        Outcome::Deposed => Answer::Event(Event::Taken { by: None }),
        Outcome::Unknown(error) => Answer::AttemptFailed(error),
    }
}

async fn read(store: Store, key: String) -> Answer {
    Answer::Event(match store.get_at_head(&key).await {
        Ok((entry, revision)) => Event::Read { entry, revision },
        Err(_) => Event::ReadFailed,
    })
}

async fn release(store: Store, token: Token) -> Answer {
    let Token { key, create_revision } = token;
    let txn = Guarded {
        token: None,
        guards: vec![Guard::CreateRevision { key: key.clone(), revision: create_revision }],
        writes: vec![Write::Delete { key }],
    };
    if let Outcome::Unknown(error) = store.commit(txn).await {
        tracing::warn!(%error, "the leader key was not deleted; it goes with its lease");
    }
    Answer::Event(Event::Released)
}
