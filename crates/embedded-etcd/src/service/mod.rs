//! The gRPC services over the store.

mod cluster;
mod kv;
mod lease;
mod maintenance;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_client::proto::{
    PbClusterServer, PbKvServer, PbLeaseServer, PbMaintenanceServer, PbWatchServer,
};
use prost::Message;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::faults;
use crate::gate::Gate;
use crate::store::Store;

/// Requests above this many bytes are refused by the server, as etcd does by default.
const MAX_REQUEST_BYTES: usize = 1_572_864;
/// And above this by its transport.
const MAX_MESSAGE_BYTES: usize = 2_097_152;
/// What our transport takes, so that the refusal above is ours to word.
const TRANSPORT_LIMIT: usize = 64 << 20;

type Answer<T> = Result<Response<T>, Status>;

#[derive(Debug, Clone)]
pub(crate) struct Service {
    store: Arc<Mutex<Store>>,
    gate: Arc<Gate>,
    address: Arc<str>,
}

impl Service {
    pub(crate) fn new(store: Arc<Mutex<Store>>, gate: Arc<Gate>, address: Arc<str>) -> Self {
        Self { store, gate, address }
    }

    pub(crate) fn routes(&self) -> Routes {
        Routes::new(PbKvServer::new(self.clone()).max_decoding_message_size(TRANSPORT_LIMIT))
            .add_service(PbWatchServer::new(self.clone()))
            .add_service(PbLeaseServer::new(self.clone()))
            .add_service(PbMaintenanceServer::new(self.clone()))
            .add_service(PbClusterServer::new(self.clone()))
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the server is paused, like a stopped process.
    async fn running(&self) {
        self.gate.pass().await;
    }

    /// The request, if it is not too large.
    async fn admit<T: Message>(&self, request: Request<T>) -> Result<T, Status> {
        self.running().await;
        let request = request.into_inner();
        let bytes = request.encoded_len();
        if bytes > MAX_MESSAGE_BYTES {
            return Err(faults::message_too_large(bytes, MAX_MESSAGE_BYTES));
        }
        if bytes > MAX_REQUEST_BYTES {
            return Err(faults::request_too_large());
        }
        Ok(request)
    }
}
