//! The gRPC service: sessions with agents, and what people ask.

use std::pin::Pin;
use std::time::Duration;

use evenkeel_coordination::{Guarded, Outcome, Store, Write};
use evenkeel_model::keys::Keys;
use evenkeel_model::{BrokerId, LimitRecord, RECORD_VERSION};
use evenkeel_proto::migrations::agent_message::Message;
use evenkeel_proto::migrations::migrations_server::Migrations;
use evenkeel_proto::migrations::{
    AgentMessage, Hello, ListLimitsRequest, ListLimitsResponse, ListMigrationsRequest,
    ListMigrationsResponse, MigratorMessage, SetLimitRequest, SetLimitResponse,
};
use evenkeel_proto::refusal::{Reason, refuse};
use evenkeel_runtime::Clock;
use futures_util::Stream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::desk::{Ask, Desk, Front, Outbound};
use crate::engine::Event;

/// An agent says who it is within this time, and something at least this often: it is told to
/// speak once a second.
const SILENCE: Duration = Duration::from_secs(10);

/// Messages that may wait for an agent: some seconds of grants.
const OUTBOUND: usize = 512;

/// See the module.
pub struct MigrationsService {
    /// Who leads.
    pub front: Front,
    /// For operators' caps.
    pub store: Store,
    /// Key paths.
    pub keys: Keys,
    /// For records.
    pub clock: Clock,
}

#[tonic::async_trait]
impl Migrations for MigrationsService {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<MigratorMessage, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let desk = self.front.desk()?;
        let (outbound, messages) = mpsc::channel(OUTBOUND);
        // The answer must not wait for the first message: a client may send it only then.
        tokio::spawn(converse(desk, request.into_inner(), outbound));
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }

    async fn list_migrations(
        &self,
        _: Request<ListMigrationsRequest>,
    ) -> Result<Response<ListMigrationsResponse>, Status> {
        let migrations = self.front.desk()?.question(Ask::Migrations).await?;
        Ok(Response::new(ListMigrationsResponse { migrations }))
    }

    async fn list_limits(
        &self,
        _: Request<ListLimitsRequest>,
    ) -> Result<Response<ListLimitsResponse>, Status> {
        let limits = self.front.desk()?.question(Ask::Limits).await?;
        Ok(Response::new(ListLimitsResponse { limits }))
    }

    async fn set_limit(
        &self,
        request: Request<SetLimitRequest>,
    ) -> Result<Response<SetLimitResponse>, Status> {
        let SetLimitRequest { broker, bytes_per_second } = request.into_inner();
        let broker = broker_of(&broker)?;
        let desk = self.front.desk()?;
        if !desk.question(|answer| Ask::Knows(broker.clone(), answer)).await? {
            return Err(refuse(Reason::NotFound, format!("there is no broker {broker}")));
        }
        let key = self.keys.limit(&broker);
        let write = match bytes_per_second {
            0 => Write::Delete { key },
            _ => {
                let at_ms = self.clock.now_ms();
                let record = LimitRecord {
                    v: RECORD_VERSION,
                    broker: broker.clone(),
                    bytes_per_second,
                    at_ms,
                };
                Write::Put { key, value: evenkeel_model::encode(&record), lease: None }
            }
        };
        let txn = Guarded { token: Some(desk.token), guards: Vec::new(), writes: vec![write] };
        match self.store.commit(txn).await {
            Outcome::Written { .. } => {
                tracing::info!(%broker, bytes_per_second, "limit set");
                Ok(Response::new(SetLimitResponse {}))
            }
            Outcome::Deposed | Outcome::Stale { .. } => Err(crate::desk::over()),
            Outcome::Unknown(error) => Err(refuse(
                Reason::StoreUnavailable,
                format!("the limit may or may not be set: {error}"),
            )),
        }
    }
}

fn broker_of(text: &str) -> Result<BrokerId, Status> {
    text.parse().map_err(|error| refuse(Reason::InvalidArgument, format!("broker: {error}")))
}

/// One session, from its hello to its end.
async fn converse(desk: Desk, mut inbound: Streaming<AgentMessage>, outbound: Outbound) {
    let (broker, session) = match greet(&desk, &mut inbound, &outbound).await {
        Ok(opened) => opened,
        Err(status) => {
            // An agent that has gone needs no answer.
            let _ = outbound.try_send(Err(status));
            return;
        }
    };
    loop {
        let next = tokio::select! {
            biased;
            // The engine let go of the session: it is over, or another took its place.
            () = outbound.closed() => break,
            next = timeout(SILENCE, inbound.message()) => next,
        };
        let message = match next {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => break,
            Ok(Err(error)) => {
                tracing::debug!(%broker, %error, "session broke");
                break;
            }
            Err(_) => {
                tracing::warn!(%broker, "agent said nothing for {SILENCE:?}; its session ends");
                break;
            }
        };
        let broker = broker.clone();
        let event = match message.message {
            Some(Message::Status(status)) => Event::Status { broker, session, status },
            Some(Message::Progress(progress)) => Event::Progress { broker, session, progress },
            Some(Message::Hello(_)) | None => continue,
        };
        if desk.ask(Ask::Tell(event)).await.is_err() {
            return;
        }
    }
    // When the leadership is over, so is the session.
    let _ = desk.ask(Ask::Tell(Event::Closed { broker, session })).await;
}

async fn greet(
    desk: &Desk,
    inbound: &mut Streaming<AgentMessage>,
    outbound: &Outbound,
) -> Result<(BrokerId, u64), Status> {
    let first = timeout(SILENCE, inbound.message()).await;
    let first = first.map_err(|_| refuse(Reason::InvalidArgument, "no hello within 10 s"))??;
    let Some(AgentMessage { message: Some(Message::Hello(hello)) }) = first else {
        return Err(refuse(Reason::InvalidArgument, "message: expected hello first"));
    };
    let broker = broker_of(&hello.broker)?;
    let hello = Hello { broker: broker.to_string(), ..hello };
    let outbound = outbound.clone();
    let session = desk
        .question(|opened| Ask::Open { broker: broker.clone(), hello, outbound, opened })
        .await?;
    Ok((broker, session))
}
