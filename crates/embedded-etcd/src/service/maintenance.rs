//! The Maintenance service, as far as one member in memory has something to say.

use etcd_client::proto::{
    PbAlarmRequest, PbAlarmResponse, PbDefragmentRequest, PbDefragmentResponse, PbDowngradeRequest,
    PbDowngradeResponse, PbHashKvRequest, PbHashKvResponse, PbHashRequest, PbHashResponse,
    PbMaintenanceService, PbMoveLeaderRequest, PbMoveLeaderResponse, PbSnapshotRequest,
    PbSnapshotResponse, PbStatusRequest, PbStatusResponse,
};
use tokio_stream::Empty;
use tonic::{Request, Response, Status};

use super::{Answer, Service};
use crate::{VERSION, faults};

#[tonic::async_trait]
impl PbMaintenanceService for Service {
    type SnapshotStream = Empty<Result<PbSnapshotResponse, Status>>;

    async fn status(&self, request: Request<PbStatusRequest>) -> Answer<PbStatusResponse> {
        self.admit(request).await?;
        let store = self.store();
        let applied = u64::try_from(store.revision()).unwrap_or(0);
        Ok(Response::new(PbStatusResponse {
            header: Some(store.header()),
            version: VERSION.to_owned(),
            db_size: store.size(),
            db_size_in_use: store.size(),
            leader: store.member_id(),
            raft_index: applied,
            raft_term: 1,
            raft_applied_index: applied,
            ..Default::default()
        }))
    }

    /// There is no quota, so there is never an alarm.
    async fn alarm(&self, request: Request<PbAlarmRequest>) -> Answer<PbAlarmResponse> {
        self.admit(request).await?;
        let header = Some(self.store().header());
        Ok(Response::new(PbAlarmResponse { header, alarms: Vec::new() }))
    }

    /// Memory has nothing to defragment.
    async fn defragment(
        &self,
        request: Request<PbDefragmentRequest>,
    ) -> Answer<PbDefragmentResponse> {
        self.admit(request).await?;
        Ok(Response::new(PbDefragmentResponse { header: Some(self.store().header()) }))
    }

    async fn hash(&self, _: Request<PbHashRequest>) -> Answer<PbHashResponse> {
        Err(faults::not_offered("hashes"))
    }

    async fn hash_kv(&self, _: Request<PbHashKvRequest>) -> Answer<PbHashKvResponse> {
        Err(faults::not_offered("hashes"))
    }

    async fn snapshot(&self, _: Request<PbSnapshotRequest>) -> Answer<Self::SnapshotStream> {
        Err(faults::not_offered("snapshots"))
    }

    async fn move_leader(&self, _: Request<PbMoveLeaderRequest>) -> Answer<PbMoveLeaderResponse> {
        Err(faults::not_offered("other members"))
    }

    async fn downgrade(&self, _: Request<PbDowngradeRequest>) -> Answer<PbDowngradeResponse> {
        Err(faults::not_offered("downgrades"))
    }
}
