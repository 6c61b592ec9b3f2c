//! The session with the elected migrator: status and progress up, orders and grants down.

use std::time::Duration;

use evenkeel_model::CopyClass;
use evenkeel_proto::migrations::agent_message::Message as Up;
use evenkeel_proto::migrations::migrations_client::MigrationsClient;
use evenkeel_proto::migrations::migrator_message::Message as Down;
use evenkeel_proto::migrations::{AgentMessage, Hello, MigratorMessage, NodeStatus, Welcome};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::orders::{Desk, Orders};
use super::pull::{Destination, pull};
use crate::maintenance::admission::Copying;
use crate::metrics;
use crate::routes::{Elected, Routes};

/// Before another try to reach the migrator.
const RETRY: Duration = Duration::from_millis(250);

/// For the migrator to answer the greeting.
const WELCOME_LIMIT: Duration = Duration::from_secs(5);

/// Running copies are told of at least this often.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Longer than this the migrator holds nothing back without saying so again.
const HOLD_MAX: Duration = Duration::from_secs(10);

/// Maintenance is held back for the migrator, as if a repair ran here.
struct Held {
    until: Instant,
    /// Held for what its end does.
    running: Copying,
}

/// What outlives a session.
#[derive(Default)]
struct Known {
    orders: Orders,
    newest_token: i64,
    held: Option<Held>,
}

impl Known {
    fn expire_hold(&mut self) {
        self.held = self.held.take().filter(|held| Instant::now() < held.until);
    }

    async fn hold_ends(&self) {
        match &self.held {
            Some(held) => sleep_until(held.until).await,
            None => std::future::pending().await,
        }
    }
}

/// The same without what was counted for another session.
fn without_counts(status: NodeStatus) -> NodeStatus {
    NodeStatus {
        egress_bytes: 0,
        ingress_bytes: 0,
        maintenance_bytes: 0,
        expired_grant_bytes: 0,
        requests_shed: 0,
        ..status
    }
}

/// This broker's end of the session.
pub struct MigratorSession {
    /// Where the migrator is.
    pub routes: Routes,
    /// What copies need.
    pub destination: Destination,
    /// Who this is.
    pub hello: Hello,
    /// How this broker's requests and copies do.
    pub status: watch::Receiver<NodeStatus>,
}

impl MigratorSession {
    /// Runs for ever: one session after another, each with the migrator that is elected then.
    pub async fn run(self) {
        let mut known = Known::default();
        let mut changes = self.routes.changes();
        loop {
            changes.mark_unchanged();
            known.expire_hold();
            let Some(elected) = self.routes.migrator() else {
                tokio::select! {
                    biased;
                    changed = changes.changed() => if changed.is_err() {
                        return;
                    },
                    () = known.hold_ends() => {}
                }
                continue;
            };
            match self.converse(&elected, &mut known).await {
                Ok(()) => {}
                Err(reason) => {
                    let instance = &elected.record.instance;
                    tracing::debug!(instance, reason, "session with the migrator ended");
                }
            }
            before_another_try(&self.routes, &elected).await;
        }
    }

    /// One session, until either end has enough of it.
    async fn converse(&self, elected: &Elected, known: &mut Known) -> Result<(), String> {
        let channel = self.destination.network.channel(&elected.record.address);
        let mut client = MigrationsClient::new(channel);
        let (up, messages) = mpsc::channel(64);
        tell(&up, Up::Hello(self.hello.clone())).await?;
        let opened = timeout(WELCOME_LIMIT, client.session(ReceiverStream::new(messages))).await;
        let mut down = opened
            .map_err(|_| "it does not answer".to_owned())?
            .map_err(|status| status.message().to_owned())?
            .into_inner();
        let welcome = welcome(&mut down).await?;
        let newest = known.newest_token;
        if welcome.token < newest {
            metrics::copy_refused("token");
            return Err(format!("its token {} is older than {newest}", welcome.token));
        }
        known.newest_token = welcome.token;
        tracing::info!(migrator = welcome.instance, token = welcome.token, "session opened");
        // The new one knows nothing of what runs, and of the share only what it is told.
        let mut statuses = self.status.clone();
        let status = without_counts(statuses.borrow_and_update().clone());
        tell(&up, Up::Status(status)).await?;
        let mut ticks = interval(TELL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = self.routes.changes();
        let desk: &Desk = &self.destination.desk;
        loop {
            tokio::select! {
                biased;
                message = down.message() => match message {
                    Ok(Some(message)) => self.obey(message, known),
                    Ok(None) => return Err("it ended the session".to_owned()),
                    Err(status) => return Err(status.message().to_owned()),
                },
                () = desk.changed() => {
                    for progress in desk.take_fresh() {
                        tell(&up, Up::Progress(progress)).await?;
                    }
                }
                _ = ticks.tick() => {
                    known.orders.tidy();
                    known.expire_hold();
                    for progress in desk.all() {
                        tell(&up, Up::Progress(progress)).await?;
                    }
                }
                // Each once: what it counts is since the one before.
                Ok(()) = statuses.changed() => {
                    let status = statuses.borrow_and_update().clone();
                    tell(&up, Up::Status(status)).await?;
                }
                changed = changes.changed() => {
                    let now = self.routes.migrator();
                    if changed.is_err() || now.is_some_and(|now| now.token > elected.token) {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn obey(&self, message: MigratorMessage, known: &mut Known) {
        let Known { orders, held, .. } = known;
        match message.message {
            Some(Down::Order(order)) => {
                let destination = self.destination.clone();
                orders.order(order, |order, allowances, turn| {
                    let (shard, generation) = (&order.shard, order.generation);
                    tracing::info!(%shard, generation, source = order.source, "copy ordered");
                    let copying = async move {
                        let _turn = turn.lock().await;
                        pull(destination, order, allowances).await;
                    };
                    tokio::spawn(copying).abort_handle()
                });
            }
            Some(Down::Grant(grant)) => orders.grant(&grant),
            Some(Down::Cancel(cancel)) => {
                if let Some(shard) = orders.cancel(&cancel) {
                    self.destination.desk.forget(&shard);
                }
            }
            Some(Down::MaintenanceHold(hold)) => {
                let span = Duration::from_millis(hold.for_ms.into()).min(HOLD_MAX);
                let until = Instant::now() + span;
                let admission = &self.destination.admission;
                let running = held
                    .take()
                    .map_or_else(|| admission.copying(CopyClass::Drain), |held| held.running);
                *held = Some(Held { until, running });
            }
            Some(Down::Welcome(_)) | None => {}
        }
    }
}

/// Copies stand still without a migrator: another one is asked as soon as it is known, the same one
/// after a pause, whatever else of the routes changes meanwhile.
async fn before_another_try(routes: &Routes, elected: &Elected) {
    let mut changes = routes.changes();
    let another = async {
        while routes.migrator().as_ref() == Some(elected) && changes.changed().await.is_ok() {}
    };
    let _ = timeout(RETRY, another).await;
}

async fn welcome(down: &mut Streaming<MigratorMessage>) -> Result<Welcome, String> {
    let first = timeout(WELCOME_LIMIT, down.message()).await;
    let first = first
        .map_err(|_| "it does not welcome us".to_owned())?
        .map_err(|status| status.message().to_owned())?;
    match first.and_then(|message| message.message) {
        Some(Down::Welcome(welcome)) => Ok(welcome),
        _ => Err("its first message is no welcome".to_owned()),
    }
}

async fn tell(up: &mpsc::Sender<AgentMessage>, message: Up) -> Result<(), String> {
    let sent = up.send(AgentMessage { message: Some(message) }).await;
    sent.map_err(|_| "it ended the session".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use evenkeel_model::{Assignment, LeaderRecord, RECORD_VERSION, ShardKey};
    use tokio::time::sleep;

    use super::*;
    use crate::routes::Fact;

    fn migrator(token: i64) -> Elected {
        let record = LeaderRecord {
            v: RECORD_VERSION,
            instance: format!("m{token}"),
            address: "h:1".to_owned(),
            elected_at_ms: 1,
        };
        Elected { record, token }
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_migrator_is_asked_again_after_a_pause_and_another_at_once() {
        let routes = Routes::default();
        routes.learn([Fact::Migrator(Some(migrator(5)))]);
        let shard: ShardKey = "stream/d/s/0".parse().unwrap();
        let assignment =
            Arc::new(Assignment::new(shard.clone(), "b1".parse().unwrap(), Vec::new()));
        let (elected, since) = (migrator(5), Instant::now());
        let storm = async {
            loop {
                sleep(Duration::from_millis(1)).await;
                routes.learn([Fact::Assignment(shard.clone(), Some(assignment.clone()))]);
            }
        };
        tokio::select! {
            () = before_another_try(&routes, &elected) => {}
            () = storm => {}
        }
        assert!(since.elapsed() >= RETRY, "after {:?}", since.elapsed());

        for next in [None, Some(migrator(6))] {
            routes.learn([Fact::Migrator(Some(migrator(5)))]);
            let since = Instant::now();
            let election = async {
                sleep(Duration::from_millis(1)).await;
                routes.learn([Fact::Migrator(next)]);
            };
            tokio::join!(before_another_try(&routes, &elected), election);
            assert!(since.elapsed() < RETRY, "after {:?}", since.elapsed());
        }
    }
}
