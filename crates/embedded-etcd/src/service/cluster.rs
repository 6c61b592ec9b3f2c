//! The Cluster service: one member.

use etcd_client::proto::{
    PbClusterService, PbMember, PbMemberAddRequest, PbMemberAddResponse, PbMemberListRequest,
    PbMemberListResponse, PbMemberPromoteRequest, PbMemberPromoteResponse, PbMemberRemoveRequest,
    PbMemberRemoveResponse, PbMemberUpdateRequest, PbMemberUpdateResponse,
};
use tonic::{Request, Response};

use super::{Answer, Service};
use crate::faults;

const OTHERS: &str = "other members";

#[tonic::async_trait]
impl PbClusterService for Service {
    async fn member_list(
        &self,
        request: Request<PbMemberListRequest>,
    ) -> Answer<PbMemberListResponse> {
        self.admit(request).await?;
        let store = self.store();
        let member = PbMember {
            id: store.member_id(),
            name: "embedded".to_owned(),
            client_ur_ls: vec![format!("http://{}", self.address)],
            ..Default::default()
        };
        let header = Some(store.header());
        Ok(Response::new(PbMemberListResponse { header, members: vec![member] }))
    }

    async fn member_add(&self, _: Request<PbMemberAddRequest>) -> Answer<PbMemberAddResponse> {
        Err(faults::not_offered(OTHERS))
    }

    async fn member_remove(
        &self,
        _: Request<PbMemberRemoveRequest>,
    ) -> Answer<PbMemberRemoveResponse> {
        Err(faults::not_offered(OTHERS))
    }

    async fn member_update(
        &self,
        _: Request<PbMemberUpdateRequest>,
    ) -> Answer<PbMemberUpdateResponse> {
        Err(faults::not_offered(OTHERS))
    }

    async fn member_promote(
        &self,
        _: Request<PbMemberPromoteRequest>,
    ) -> Answer<PbMemberPromoteResponse> {
        Err(faults::not_offered(OTHERS))
    }
}
