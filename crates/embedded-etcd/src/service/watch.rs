//! The Watch service.

use std::pin::Pin;

use etcd_client::proto::{PbWatchRequest, PbWatchRequestUnion, PbWatchResponse, PbWatchService};
use futures_util::{Stream, StreamExt, stream};
use tonic::{Request, Response, Status, Streaming};

use super::{Answer, Service};
use crate::keys::KeyRange;
use crate::store::{Inbox, Notices, WatchError, Watcher};

/// Forgets the stream's watchers when its reader goes.
struct OpenStream {
    service: Service,
    id: u64,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.service.store().hub.close(self.id);
    }
}

#[tonic::async_trait]
impl PbWatchService for Service {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<PbWatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<PbWatchRequest>>,
    ) -> Answer<Self::WatchStream> {
        self.running().await;
        let (notices, inbox) = Notices::channel();
        let id = self.store().hub.open(notices);
        let open = OpenStream { service: self.clone(), id };
        tokio::spawn(serve_requests(self.clone(), id, request.into_inner()));
        let messages =
            stream::unfold((inbox, open), |(mut inbox, open): (Inbox, OpenStream)| async {
                let message = inbox.next().await?;
                Some((message, (inbox, open)))
            });
        Ok(Response::new(Box::pin(messages)))
    }
}

async fn serve_requests(service: Service, stream: u64, mut requests: Streaming<PbWatchRequest>) {
    while let Some(Ok(request)) = requests.next().await {
        service.running().await;
        let mut store = service.store();
        if !store.hub.is_open(stream) {
            return;
        }
        let header = Some(store.header());
        match request.request_union {
            Some(PbWatchRequestUnion::CreateRequest(create)) => {
                const NO_PUT: i32 = 0;
                const NO_DELETE: i32 = 1;
                let watcher = Watcher {
                    id: 0,
                    range: KeyRange::new(&create.key, &create.range_end),
                    start_revision: create.start_revision,
                    prev_kv: create.prev_kv,
                    no_put: create.filters.contains(&NO_PUT),
                    no_delete: create.filters.contains(&NO_DELETE),
                    fragment: create.fragment,
                    progress_notify: create.progress_notify,
                };
                if let Err(WatchError::DuplicateId) = store.watch(stream, create.watch_id, watcher)
                {
                    let refusal = PbWatchResponse {
                        header,
                        watch_id: -1,
                        created: true,
                        canceled: true,
                        cancel_reason: "mvcc: duplicate watch ID provided on the WatchStream"
                            .to_owned(),
                        ..Default::default()
                    };
                    store.hub.answer(stream, refusal);
                }
            }
            Some(PbWatchRequestUnion::CancelRequest(cancel)) => {
                let id = cancel.watch_id;
                if store.hub.cancel(stream, id) {
                    let message = PbWatchResponse {
                        header,
                        watch_id: id,
                        canceled: true,
                        ..Default::default()
                    };
                    store.hub.answer(stream, message);
                }
            }
            Some(PbWatchRequestUnion::ProgressRequest(_)) => {
                let message = PbWatchResponse { header, watch_id: -1, ..Default::default() };
                store.hub.answer(stream, message);
            }
            None => {}
        }
    }
}
