//! The KV service.

use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbDeleteRequest, PbDeleteResponse, PbKvService,
    PbPutRequest, PbPutResponse, PbRangeRequest, PbRangeResponse, PbRangeStreamResponse,
    PbTxnRequest, PbTxnResponse,
};
use tokio_stream::Empty;
use tonic::{Request, Response, Status};

use super::{Answer, Service};
use crate::faults;

#[tonic::async_trait]
impl PbKvService for Service {
    type RangeStreamStream = Empty<Result<PbRangeStreamResponse, Status>>;

    async fn range_stream(&self, _: Request<PbRangeRequest>) -> Answer<Self::RangeStreamStream> {
        Err(faults::not_offered("range streams"))
    }

    async fn range(&self, request: Request<PbRangeRequest>) -> Answer<PbRangeResponse> {
        let request = self.admit(request).await?;
        self.store().range(&request).map(Response::new)
    }

    async fn put(&self, request: Request<PbPutRequest>) -> Answer<PbPutResponse> {
        let request = self.admit(request).await?;
        self.store().put(request).map(Response::new)
    }

    async fn delete_range(&self, request: Request<PbDeleteRequest>) -> Answer<PbDeleteResponse> {
        let request = self.admit(request).await?;
        self.store().delete_range(&request).map(Response::new)
    }

    async fn txn(&self, request: Request<PbTxnRequest>) -> Answer<PbTxnResponse> {
        let request = self.admit(request).await?;
        self.store().txn(&request).map(Response::new)
    }

    async fn compact(&self, request: Request<PbCompactionRequest>) -> Answer<PbCompactionResponse> {
        let request = self.admit(request).await?;
        let mut store = self.store();
        store.compact(request.revision)?;
        Ok(Response::new(PbCompactionResponse { header: Some(store.header()) }))
    }
}
