//! The work of the elected migrator: feeds the engine and does what it asks for.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_coordination::{Election, Leadership, Lease, Revision, Session, Store, Token, View};
use evenkeel_model::keys::Keys;
use evenkeel_proto::migrations::MigratorMessage;
use evenkeel_proto::refusal::{Reason, refuse};
use evenkeel_runtime::{Clock, Shutdown};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

use crate::desk::{Ask, Desk, Front, Outbound, over};
use crate::engine::{Action, Engine, Event, Now, Settings};
use crate::metrics;
use crate::records::{Change, Writer};
use crate::world::Reader;

/// What the work needs.
pub struct Leader {
    /// etcd.
    pub store: Store,
    /// The lease.
    pub session: Session,
    /// Takes part in the election.
    pub election: Election,
    /// The cluster.
    pub view: View,
    /// Key paths.
    pub keys: Keys,
    /// For records.
    pub clock: Clock,
    /// Where the service finds the engine.
    pub front: Front,
    /// Settings of the engine, but for the token.
    pub settings: Settings,
}

impl Leader {
    /// Works whenever this instance is elected, until shutdown is requested.
    pub async fn run(self, shutdown: Shutdown) {
        let mut leadership = self.election.watch();
        loop {
            let elected = async {
                let leads = |now: &Leadership| matches!(now, Leadership::Leading(_));
                match leadership.wait_for(leads).await.as_deref() {
                    Ok(Leadership::Leading(token)) => Some(token.clone()),
                    _ => None,
                }
            };
            // A candidate's turn: who waits does not stand still.
            let token = tokio::select! {
                biased;
                () = shutdown.requested() => return,
                () = keep_progressing(&self.election) => continue,
                token = elected => token,
            };
            let Some(token) = token else { return };
            tracing::info!(token = token.create_revision, "elected");
            metrics::leading(true);
            self.lead(token, &shutdown).await;
            metrics::leading(false);
            tracing::info!("not the elected migrator any more");
        }
    }

    async fn lead(&self, token: Token, shutdown: &Shutdown) {
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            () = self.view.ready() => {}
        }
        let (desk, asks) = Desk::new(token.clone());
        let (records, changes) = mpsc::unbounded_channel();
        let writer = Writer {
            store: self.store.clone(),
            session: self.session.clone(),
            token: token.clone(),
            keys: self.keys.clone(),
        };
        let writing = tokio::spawn(writer.run(changes));
        let settings = Settings { token: token.create_revision, ..self.settings.clone() };
        let turn = Turn {
            started: Instant::now(),
            clock: self.clock.clone(),
            engine: Engine::new(settings),
            reader: Reader::new(self.keys.clone()),
            agents: BTreeMap::new(),
            sessions: 0,
            records,
        };
        self.front.open(desk);
        turn.run(self, &token, asks, shutdown).await;
        self.front.close();
        writing.abort();
    }
}

/// Calls the election's progress for as long as it is polled.
async fn keep_progressing(election: &Election) {
    election.progress();
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// One leadership.
struct Turn {
    started: Instant,
    clock: Clock,
    engine: Engine,
    reader: Reader,
    agents: BTreeMap<u64, (evenkeel_model::BrokerId, Outbound)>,
    sessions: u64,
    records: mpsc::UnboundedSender<Change>,
}

impl Turn {
    async fn run(
        mut self,
        leader: &Leader,
        token: &Token,
        mut asks: mpsc::Receiver<Ask>,
        shutdown: &Shutdown,
    ) {
        let mut leadership = leader.election.watch();
        let mut lease: watch::Receiver<Option<Lease>> = leader.session.watch();
        let mut shown = leader.view.changed();
        let mut rounds = tokio::time::interval(self.round());
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.see(leader, &mut shown);
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => break,
                changed = leadership.changed() => {
                    let leads = matches!(&*leadership.borrow_and_update(),
                        Leadership::Leading(now) if now == token);
                    if changed.is_err() || !leads {
                        break;
                    }
                }
                _ = lease.changed() => self.tell(Event::Rewrite),
                _ = rounds.tick() => {
                    if !leader.election.is_leading() {
                        // The lease is not provably alive: grant nothing, and let grants run out.
                        continue;
                    }
                    leader.election.progress();
                    if shown.has_changed().unwrap_or(false) {
                        self.see(leader, &mut shown);
                    }
                    self.tell(Event::Round);
                }
                ask = asks.recv() => match ask {
                    Some(ask) => {
                        let opens = matches!(ask, Ask::Open { .. });
                        self.answer(ask);
                        // After a take-over its copies stand still: it need not wait for a round.
                        if opens && leader.election.is_leading() {
                            self.tell(Event::Round);
                        }
                    }
                    None => break,
                },
            }
        }
        self.engine.retire();
        for (_, outbound) in self.agents.into_values() {
            // Agents that are gone, or too slow to be told, notice by the end of the stream.
            let _ = outbound.try_send(Err(over()));
        }
    }

    fn round(&self) -> Duration {
        self.engine.round_length()
    }

    fn see(&mut self, leader: &Leader, shown: &mut watch::Receiver<Revision>) {
        shown.borrow_and_update();
        let world = leader.view.read(|view| self.reader.read(view));
        self.tell(Event::World(world));
    }

    fn now(&self) -> Now {
        Now { at: self.started.elapsed(), wall_ms: self.clock.now_ms() }
    }

    fn tell(&mut self, event: Event) {
        for action in self.engine.on_event(self.now(), event) {
            match action {
                Action::Send { session, message } => {
                    self.send(session, MigratorMessage { message: Some(message) });
                }
                Action::Write(record) => self.change(Change::Write(record)),
                Action::Remove(shard) => self.change(Change::Remove(shard)),
            }
        }
    }

    fn change(&self, change: Change) {
        // The writer ends early only when the leadership is over.
        let _ = self.records.send(change);
    }

    fn send(&mut self, session: u64, message: MigratorMessage) {
        let Some((broker, outbound)) = self.agents.get(&session) else { return };
        if outbound.try_send(Ok(message)).is_ok() {
            return;
        }
        // Its stream is closed, or it does not keep up: a new session starts from what holds then.
        tracing::warn!(%broker, "agent does not take messages; its session ends");
        let broker = broker.clone();
        self.agents.remove(&session);
        let closed = self.engine.on_event(self.now(), Event::Closed { broker, session });
        debug_assert!(closed.is_empty(), "closing a session asks for nothing");
    }

    fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Open { broker, hello, outbound, opened } => {
                if !self.engine.admits(&broker, hello.incarnation) {
                    let detail = format!(
                        "a later life of broker {broker} than {} has a session",
                        hello.incarnation
                    );
                    tracing::warn!(%broker, incarnation = hello.incarnation, "agent refused");
                    // Whoever asked may have gone.
                    let _ = opened.send(Err(refuse(Reason::StaleGeneration, detail)));
                    return;
                }
                let session = self.sessions;
                self.sessions += 1;
                if opened.send(Ok(session)).is_err() {
                    return;
                }
                tracing::info!(%broker, session, "agent connected");
                // The stream of the broker's earlier session, if any, ends here.
                self.agents.retain(|_, (other, _)| *other != broker);
                self.agents.insert(session, (broker.clone(), outbound));
                self.tell(Event::Opened { broker, session, hello });
            }
            Ask::Tell(event) => {
                if let Event::Closed { broker, session } = &event
                    && self.agents.remove(session).is_some()
                {
                    tracing::info!(%broker, session, "agent gone");
                }
                self.tell(event);
            }
            // Whoever asked may have gone.
            Ask::Migrations(page, answer) => {
                drop(answer.send(self.engine.page(self.now(), &page)));
            }
            Ask::Show(shard, answer) => {
                drop(answer.send(self.engine.show(self.now(), &shard).map(Box::new)));
            }
            Ask::Limits(answer) => drop(answer.send(self.engine.limits(self.now().at))),
            Ask::Knows(broker, answer) => drop(answer.send(self.engine.knows(&broker))),
        }
    }
}
