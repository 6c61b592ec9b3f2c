//! Between the gRPC service and the leader's work: who leads, and how to reach its engine.

use std::sync::Arc;

use evenkeel_coordination::{Election, Leadership, Token};
use evenkeel_model::{BrokerId, LeaderRecord, ShardKey};
use evenkeel_proto::migrations::{
    Hello, Limit, ListMigrationsResponse, MigratorMessage, ShowMigrationResponse,
};
use evenkeel_proto::refusal::{Reason, refuse, refuse_with};
use tokio::sync::{mpsc, oneshot, watch};
use tonic::Status;

use crate::engine::{Event, Page};

/// To an agent.
pub type Outbound = mpsc::Sender<Result<MigratorMessage, Status>>;

/// What the service asks of the leader's work.
#[derive(Debug)]
pub enum Ask {
    /// An agent opened a session; answers its number.
    Open {
        /// The broker.
        broker: BrokerId,
        /// What it said of itself.
        hello: Hello,
        /// Messages to it.
        outbound: Outbound,
        /// The session's number, or why there is none.
        opened: oneshot::Sender<Result<u64, Status>>,
    },
    /// Something an agent said.
    Tell(Event),
    /// A page of copies.
    Migrations(Page, oneshot::Sender<ListMigrationsResponse>),
    /// Everything about a shard's copy, if there is one.
    Show(ShardKey, oneshot::Sender<Option<Box<ShowMigrationResponse>>>),
    /// Every node's limit.
    Limits(oneshot::Sender<Vec<Limit>>),
    /// Whether a broker is known.
    Knows(BrokerId, oneshot::Sender<bool>),
}

/// Reaches the present leadership of this instance.
#[derive(Debug, Clone)]
pub struct Desk {
    asks: mpsc::Sender<Ask>,
    /// Proof of the leadership.
    pub token: Token,
}

/// Asks that may wait for the engine; agents beyond that are held back.
const ASKS: usize = 1024;

impl Desk {
    /// With the engine's end.
    pub fn new(token: Token) -> (Self, mpsc::Receiver<Ask>) {
        let (asks, receiver) = mpsc::channel(ASKS);
        (Self { asks, token }, receiver)
    }

    /// Hands something over; an error when the leadership is over.
    pub async fn ask(&self, ask: Ask) -> Result<(), Status> {
        self.asks.send(ask).await.map_err(|_| over())
    }

    /// Asks a question and waits for the answer.
    pub async fn question<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Ask,
    ) -> Result<T, Status> {
        let (answer, answered) = oneshot::channel();
        self.ask(question(answer)).await?;
        answered.await.map_err(|_| over())
    }
}

/// What an agent is told when the leadership ends.
pub fn over() -> Status {
    refuse(Reason::NotLeader, "this migrator is not the elected one any more")
}

/// The present desk, and where to go when there is none.
#[derive(Clone)]
pub struct Front {
    desk: Arc<watch::Sender<Option<Desk>>>,
    election: Election,
}

impl Front {
    /// Closed until [`Self::open`].
    pub fn new(election: Election) -> Self {
        Self { desk: Arc::new(watch::Sender::new(None)), election }
    }

    /// This instance leads.
    pub fn open(&self, desk: Desk) {
        self.desk.send_replace(Some(desk));
    }

    /// It does not lead any more.
    pub fn close(&self) {
        self.desk.send_replace(None);
    }

    /// The desk, or a refusal that names the elected instance.
    pub fn desk(&self) -> Result<Desk, Status> {
        if let Some(desk) = self.desk.borrow().clone() {
            return Ok(desk);
        }
        let leadership = self.election.watch().borrow().clone();
        let leader = match leadership {
            Leadership::Following { leader: Some(entry) } => {
                evenkeel_model::decode::<LeaderRecord>(&entry.key, &entry.value).ok()
            }
            _ => None,
        };
        Err(match leader {
            Some(leader) => refuse_with(
                Reason::NotLeader,
                format!("the elected migrator is {} at {}", leader.instance, leader.address),
                &[("leader", &leader.address)],
            ),
            None => refuse(Reason::NoLeader, "no migrator is elected now"),
        })
    }
}
