//! Requests to the replicas on other brokers, and the service that answers theirs.

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_model::{BrokerId, ShardKey};
use evenkeel_proto::replication as wire;
use evenkeel_proto::replication::replication_client::ReplicationClient;
use evenkeel_proto::replication::replication_server::{Replication, ReplicationServer};
use evenkeel_runtime::Network;
use evenkeel_shard_log::{Answer, Request};
use tokio::time::timeout;
use tonic::{Response, Status};

use super::Hosted;
use super::wire::{self as convert, MESSAGE_MAX_BYTES};
use crate::host::Surroundings;

/// Limit of one call; the state machine gives up a little later.
const CALL_LIMIT: Duration = Duration::from_millis(2500);

/// Calls other brokers.
#[derive(Clone)]
pub(super) struct Peers {
    pub(super) network: Network,
    pub(super) surroundings: Arc<dyn Surroundings>,
}

impl Peers {
    /// Sends a request; `None` if it could not be answered.
    pub(super) async fn ask(
        &self,
        shard: &ShardKey,
        to: &BrokerId,
        request: Request,
    ) -> Option<Answer> {
        let address = self.surroundings.address_of(to)?;
        match timeout(CALL_LIMIT, self.call(&address, shard, request)).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(status)) => {
                tracing::debug!(%shard, %to, error = status.message(), "replica did not answer");
                None
            }
            Err(_) => {
                tracing::debug!(%shard, %to, "replica did not answer in time");
                None
            }
        }
    }

    async fn call(
        &self,
        address: &str,
        shard: &ShardKey,
        request: Request,
    ) -> Result<Answer, Status> {
        let mut client = ReplicationClient::new(self.network.channel(address))
            .max_decoding_message_size(MESSAGE_MAX_BYTES)
            .max_encoding_message_size(MESSAGE_MAX_BYTES);
        match request {
            Request::Promise { term, leader } => {
                let request = convert::promise_out(shard, term, &leader);
                Ok(convert::promised_in(client.promise(request).await?.into_inner()))
            }
            Request::Append(append) => {
                let request = convert::append_out(shard, &append);
                Ok(convert::appended_in(client.append(request).await?.into_inner()))
            }
            Request::Fetch { term, from, prev_term, max_bytes } => {
                let request = convert::fetch_out(shard, term, from, prev_term, max_bytes);
                convert::fetched_in(client.fetch(request).await?.into_inner())
            }
        }
    }
}

/// Answers the replicas on other brokers.
pub(super) struct Answering {
    hosted: Weak<Hosted>,
}

impl Answering {
    pub(super) fn server(hosted: &Arc<Hosted>) -> ReplicationServer<Self> {
        ReplicationServer::new(Self { hosted: Arc::downgrade(hosted) })
            .max_decoding_message_size(MESSAGE_MAX_BYTES)
            .max_encoding_message_size(MESSAGE_MAX_BYTES)
    }

    async fn answer(&self, shard: ShardKey, request: Request) -> Result<Answer, Status> {
        let hosted = self.hosted.upgrade().ok_or_else(|| Status::unavailable("stopped"))?;
        let Some(replica) = hosted.shard(&shard) else {
            return Err(Status::not_found(format!("{shard} is not held here")));
        };
        drop(hosted);
        let answer = replica.asked(request);
        answer.await.map_err(|_| Status::unavailable(format!("{shard} was closed")))
    }
}

#[tonic::async_trait]
impl Replication for Answering {
    async fn promise(
        &self,
        request: tonic::Request<wire::PromiseRequest>,
    ) -> Result<Response<wire::PromiseResponse>, Status> {
        let (shard, request) = convert::promise_in(request.get_ref())?;
        let answer = self.answer(shard, request).await?;
        Ok(Response::new(convert::promised_out(answer)?))
    }

    async fn append(
        &self,
        request: tonic::Request<wire::AppendRequest>,
    ) -> Result<Response<wire::AppendResponse>, Status> {
        let (shard, request) = convert::append_in(request.get_ref())?;
        let answer = self.answer(shard, request).await?;
        Ok(Response::new(convert::appended_out(answer)?))
    }

    async fn fetch(
        &self,
        request: tonic::Request<wire::FetchRequest>,
    ) -> Result<Response<wire::FetchResponse>, Status> {
        let (shard, request) = convert::fetch_in(request.get_ref())?;
        let answer = self.answer(shard, request).await?;
        Ok(Response::new(convert::fetched_out(answer)?))
    }
}
