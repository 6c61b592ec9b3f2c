//! Sessions with agents.

use std::time::Duration;

use evenkeel_model::BrokerId;
use evenkeel_proto::migrations::agent_message::Message;
use evenkeel_proto::migrations::{AgentMessage, Hello};
use evenkeel_proto::refusal::{Reason, refuse};
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::desk::{Ask, Desk, Outbound};
use crate::engine::Event;
use crate::service::broker_of;

/// An agent says who it is within this time, and something at least this often: it is told to
/// speak once a second.
const SILENCE: Duration = Duration::from_secs(10);

/// One session, from its hello to its end.
pub(crate) async fn converse(desk: Desk, mut inbound: Streaming<AgentMessage>, outbound: Outbound) {
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
    let opened = desk
        .question(|opened| Ask::Open { broker: broker.clone(), hello, outbound, opened })
        .await?;
    Ok((broker, opened?))
}
