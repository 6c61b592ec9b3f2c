//! The gRPC service of the clients, and what its calls share.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::{BrokerId, ShardKey};
use evenkeel_proto::data::shards_server::{Shards, ShardsServer};
use evenkeel_proto::data::{
    DescribeRequest, DescribeResponse, PublishRequest, PublishResponse, Record, SubscribeRequest,
    SubscribeResponse,
};
use evenkeel_proto::refusal::{Reason, refuse};
use evenkeel_runtime::Network;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::activity::Activity;
use super::admission::Admission;
use super::holding::{HoldLimits, WaitingRoom};
use super::latency::Latency;
use crate::host::ShardHost;
use crate::metrics;
use crate::routes::Routes;

/// Largest request: a batch of records.
pub const MESSAGE_MAX_BYTES: usize = 8 << 20;

/// Bounds on what clients may ask at once.
#[derive(Debug, Clone, Copy)]
pub struct GatewayLimits {
    /// Requests served or waiting at once.
    pub requests: usize,
    /// Bytes of their records, at least [`MESSAGE_MAX_BYTES`].
    pub bytes: u64,
    /// Publishes that wait for a shard's next leader.
    pub hold: HoldLimits,
}

/// What the calls share. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    pub(super) me: BrokerId,
    pub(super) host: Arc<dyn ShardHost>,
    pub(super) routes: Routes,
    pub(super) network: Network,
    pub(super) room: WaitingRoom,
    pub(super) hold_time: Duration,
    pub(super) activity: Activity,
    latency: Arc<Latency>,
    pub(super) admission: Admission,
}

impl Gateway {
    /// The door of one broker.
    pub fn new(
        me: BrokerId,
        host: Arc<dyn ShardHost>,
        routes: Routes,
        network: Network,
        limits: GatewayLimits,
    ) -> Self {
        Self {
            me,
            host,
            routes,
            network,
            room: WaitingRoom::new(limits.hold),
            hold_time: limits.hold.time,
            activity: Activity::default(),
            latency: Arc::default(),
            admission: Admission::new(limits.requests, limits.bytes),
        }
    }

    /// The gRPC service.
    pub fn server(&self) -> ShardsServer<Self> {
        ShardsServer::new(self.clone()).max_decoding_message_size(MESSAGE_MAX_BYTES)
    }

    /// Who is connected.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// The latency of publishes served here.
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    /// What it takes in at once.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    pub(super) fn served(&self, took: Duration, records: &[Record]) {
        self.latency.record(took);
        let bytes = records.iter().map(|record| record.payload.len() as u64).sum();
        metrics::published(took, records.len(), bytes);
    }
}

/// Reads the shard's key, naming the field.
pub(super) fn shard_of(text: &str) -> Result<ShardKey, Status> {
    text.parse().map_err(|e| refuse(Reason::InvalidArgument, format!("field 'shard': {e}")))
}

fn outcome<T>(result: &Result<T, Status>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(status) => Reason::of(status).map_or("unknown", |(reason, _)| reason.as_str()),
    }
}

#[tonic::async_trait]
impl Shards for Gateway {
    async fn publish(
        &self,
        request: Request<PublishRequest>,
    ) -> Result<Response<PublishResponse>, Status> {
        let request = request.into_inner();
        let bytes = request.records.iter().map(|record| record.payload.len() as u64).sum();
        let result = match self.admission.admit(bytes) {
            Ok(_admitted) => self.publish_records(request).await,
            Err(status) => Err(status),
        };
        metrics::request("publish", outcome(&result));
        result.map(Response::new)
    }

    type SubscribeStream = ReceiverStream<Result<SubscribeResponse, Status>>;

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let result = self.open_subscription(request.into_inner());
        metrics::request("subscribe", outcome(&result));
        result.map(Response::new)
    }

    async fn describe(
        &self,
        request: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        let result = self.describe_stream(&request.into_inner());
        metrics::request("describe", outcome(&result));
        result.map(Response::new)
    }
}
