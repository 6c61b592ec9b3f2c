//! The admin service. The elected instance answers everything; the others answer what can be read
//! from their own view and name the elected one for the rest.

mod audit;
mod brokers;
mod documents;
mod drain;
mod gate;
mod moves;
mod settings;
mod shards;
mod status;
mod streams;

use std::sync::Arc;

use evenkeel_proto::admin::admin_server::Admin;
use evenkeel_proto::admin::*;
use tonic::{Request, Response, Status};

use crate::cluster::Cluster;

/// Serves [`Admin`].
#[derive(Clone)]
pub(crate) struct AdminService {
    cluster: Arc<Cluster>,
}

impl AdminService {
    /// Answers for this cluster.
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }
}

type Answer<T> = Result<Response<T>, Status>;

fn answer<T>(result: Result<T, Status>) -> Answer<T> {
    result.map(Response::new)
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn status(&self, _: Request<StatusRequest>) -> Answer<StatusResponse> {
        answer(Ok(status::status(&self.cluster)))
    }

    async fn list_brokers(&self, _: Request<ListBrokersRequest>) -> Answer<ListBrokersResponse> {
        answer(Ok(brokers::list(&self.cluster)))
    }

    async fn drain_broker(&self, r: Request<DrainBrokerRequest>) -> Answer<DrainBrokerResponse> {
        let change = audit::Change::of("drain_broker", &r, r.get_ref().broker.clone());
        change.record(drain::drain(&self.cluster, r.get_ref()).await)
    }

    async fn activate_broker(
        &self,
        r: Request<ActivateBrokerRequest>,
    ) -> Answer<ActivateBrokerResponse> {
        let change = audit::Change::of("activate_broker", &r, r.get_ref().broker.clone());
        change.record(drain::activate(&self.cluster, r.get_ref()).await)
    }

    async fn deregister_broker(
        &self,
        r: Request<DeregisterBrokerRequest>,
    ) -> Answer<DeregisterBrokerResponse> {
        let change = audit::Change::of("deregister_broker", &r, r.get_ref().broker.clone());
        change.record(brokers::deregister(&self.cluster, r.get_ref()).await)
    }

    async fn remove_broker(&self, r: Request<RemoveBrokerRequest>) -> Answer<RemoveBrokerResponse> {
        let change = audit::Change::of("remove_broker", &r, r.get_ref().broker.clone());
        change.record(brokers::remove(&self.cluster, r.get_ref()).await)
    }

    type WatchDrainStream = drain::ProgressStream;

    async fn watch_drain(&self, r: Request<WatchDrainRequest>) -> Answer<Self::WatchDrainStream> {
        answer(drain::watch(self.cluster.clone(), r.get_ref()))
    }

    async fn create_stream(&self, r: Request<CreateStreamRequest>) -> Answer<CreateStreamResponse> {
        let subject = r.get_ref().stream.as_ref().map(|s| s.stream.clone()).unwrap_or_default();
        let change = audit::Change::of("create_stream", &r, subject);
        change.record(streams::create(&self.cluster, r.get_ref()).await)
    }

    async fn list_streams(&self, _: Request<ListStreamsRequest>) -> Answer<ListStreamsResponse> {
        answer(Ok(streams::list(&self.cluster)))
    }

    async fn get_stream(&self, r: Request<GetStreamRequest>) -> Answer<GetStreamResponse> {
        answer(streams::get(&self.cluster, r.get_ref()))
    }

    async fn list_shards(&self, r: Request<ListShardsRequest>) -> Answer<ListShardsResponse> {
        answer(shards::list(&self.cluster, r.get_ref()))
    }

    async fn get_shard(&self, r: Request<GetShardRequest>) -> Answer<GetShardResponse> {
        answer(shards::get(&self.cluster, r.get_ref()))
    }

    async fn list_moves(&self, _: Request<ListMovesRequest>) -> Answer<ListMovesResponse> {
        answer(Ok(moves::list(&self.cluster)))
    }

    async fn start_move(&self, r: Request<StartMoveRequest>) -> Answer<StartMoveResponse> {
        if r.get_ref().validate_only {
            return answer(moves::start(&self.cluster, r.get_ref()).await);
        }
        let subject = format!("{} to {}", r.get_ref().shard, r.get_ref().to_broker);
        let change = audit::Change::of("start_move", &r, subject);
        change.record(moves::start(&self.cluster, r.get_ref()).await)
    }

    async fn cancel_move(&self, r: Request<CancelMoveRequest>) -> Answer<CancelMoveResponse> {
        let change = audit::Change::of("cancel_move", &r, r.get_ref().shard.clone());
        change.record(moves::cancel(&self.cluster, r.get_ref()).await)
    }

    async fn snapshot(&self, _: Request<SnapshotRequest>) -> Answer<JsonDocument> {
        answer(documents::snapshot(&self.cluster))
    }

    async fn plan(&self, _: Request<PlanRequest>) -> Answer<JsonDocument> {
        answer(documents::plan(&self.cluster))
    }

    async fn balance(&self, _: Request<BalanceRequest>) -> Answer<JsonDocument> {
        answer(documents::balance(&self.cluster))
    }

    async fn rank(&self, r: Request<RankRequest>) -> Answer<JsonDocument> {
        answer(documents::rank(&self.cluster, r.get_ref()))
    }

    async fn explain(&self, r: Request<ExplainRequest>) -> Answer<JsonDocument> {
        answer(documents::explain(&self.cluster, r.get_ref()))
    }

    async fn pause(&self, r: Request<PauseRequest>) -> Answer<PauseResponse> {
        let subject = format!("by '{}': {}", r.get_ref().by, r.get_ref().reason);
        let change = audit::Change::of("pause", &r, subject);
        change.record(settings::pause(&self.cluster, r.get_ref()).await)
    }

    async fn resume(&self, r: Request<ResumeRequest>) -> Answer<ResumeResponse> {
        let change = audit::Change::of("resume", &r, format!("by '{}'", r.get_ref().by));
        change.record(settings::resume(&self.cluster).await)
    }

    async fn get_policy(&self, _: Request<GetPolicyRequest>) -> Answer<JsonDocument> {
        answer(settings::policy(&self.cluster))
    }

    async fn set_policy(&self, r: Request<SetPolicyRequest>) -> Answer<JsonDocument> {
        let change = audit::Change::of("set_policy", &r, r.get_ref().json.clone());
        change.record(settings::set_policy(&self.cluster, r.get_ref()).await)
    }
}
