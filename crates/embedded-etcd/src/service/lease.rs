//! The Lease service.

use std::pin::Pin;

use etcd_client::proto::{
    PbLeaseGrantRequest, PbLeaseGrantResponse, PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse,
    PbLeaseLeasesRequest, PbLeaseLeasesResponse, PbLeaseRevokeRequest, PbLeaseRevokeResponse,
    PbLeaseService, PbLeaseStatus, PbLeaseTimeToLiveRequest, PbLeaseTimeToLiveResponse,
};
use futures_util::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::{Answer, Service};

#[tonic::async_trait]
impl PbLeaseService for Service {
    type LeaseKeepAliveStream =
        Pin<Box<dyn Stream<Item = Result<PbLeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_grant(
        &self,
        request: Request<PbLeaseGrantRequest>,
    ) -> Answer<PbLeaseGrantResponse> {
        let request = self.admit(request).await?;
        let mut store = self.store();
        let (id, ttl) = store.grant(request.id, request.ttl)?;
        let header = Some(store.header());
        Ok(Response::new(PbLeaseGrantResponse { header, id, ttl, error: String::new() }))
    }

    async fn lease_revoke(
        &self,
        request: Request<PbLeaseRevokeRequest>,
    ) -> Answer<PbLeaseRevokeResponse> {
        let request = self.admit(request).await?;
        let mut store = self.store();
        store.revoke(request.id)?;
        Ok(Response::new(PbLeaseRevokeResponse { header: Some(store.header()) }))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<PbLeaseKeepAliveRequest>>,
    ) -> Answer<Self::LeaseKeepAliveStream> {
        let service = self.clone();
        let answers = request.into_inner().then(move |request| {
            let service = service.clone();
            async move {
                let id = request?.id;
                service.running().await;
                let mut store = service.store();
                let ttl = store.keep_alive(id);
                Ok(PbLeaseKeepAliveResponse { header: Some(store.header()), id, ttl })
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<PbLeaseTimeToLiveRequest>,
    ) -> Answer<PbLeaseTimeToLiveResponse> {
        let request = self.admit(request).await?;
        let store = self.store();
        let header = Some(store.header());
        let answer = match store.time_to_live(request.id) {
            Some(left) => PbLeaseTimeToLiveResponse {
                header,
                id: request.id,
                ttl: left.ttl,
                granted_ttl: left.granted,
                keys: if request.keys { left.keys } else { Vec::new() },
            },
            None => PbLeaseTimeToLiveResponse {
                header,
                id: request.id,
                ttl: -1,
                granted_ttl: 0,
                keys: Vec::new(),
            },
        };
        Ok(Response::new(answer))
    }

    async fn lease_leases(
        &self,
        request: Request<PbLeaseLeasesRequest>,
    ) -> Answer<PbLeaseLeasesResponse> {
        self.admit(request).await?;
        let store = self.store();
        let leases = store.lease_ids().into_iter().map(|id| PbLeaseStatus { id }).collect();
        Ok(Response::new(PbLeaseLeasesResponse { header: Some(store.header()), leases }))
    }
}
