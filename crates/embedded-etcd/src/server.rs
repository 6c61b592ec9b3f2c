//! The server: its store, its clock ticks, its connections, and the faults that tests inject.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::Stream;
use http::HeaderValue;
use http::header::DATE;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpIncoming};
use tower::util::MapResponseLayer;

use crate::gate::Gate;
use crate::service::Service;
use crate::store::{Change, Store, Stored};

/// How often leases are looked at.
const EXPIRY_TICK: Duration = Duration::from_millis(500);

/// Ticks between messages to watchers that asked to hear of progress: ten minutes, as etcd's.
const PROGRESS_TICKS: u32 = 1200;

/// An etcd v3 server in this process. Clones are the same server, which lives while one is held
/// or it still serves.
#[derive(Debug, Clone)]
pub struct EmbeddedEtcd {
    store: Arc<Mutex<Store>>,
    gate: Arc<Gate>,
    address: Arc<str>,
}

impl EmbeddedEtcd {
    /// A server without connections, ticking on tokio's clock. Call within a runtime. The seed
    /// makes the cluster id and lease ids; clients list anew when they meet another cluster id, so
    /// give each start its own.
    pub fn new(seed: u64) -> Self {
        Self::at(seed, "embedded")
    }

    fn at(seed: u64, address: &str) -> Self {
        let store = Arc::new(Mutex::new(Store::new(seed)));
        let gate = Arc::new(Gate::default());
        tokio::spawn(tick(Arc::downgrade(&store), Arc::downgrade(&gate)));
        Self { store, gate, address: address.into() }
    }

    /// Binds `address` and serves it until the process ends. Answers the address with the port
    /// that was bound.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn listen(address: &str, seed: u64) -> io::Result<(Self, String)> {
        let listener = TcpListener::bind(address).await?;
        let bound = listener.local_addr()?.to_string();
        let server = Self::at(seed, &bound);
        // Without this, Nagle's algorithm holds every answer back for 40 ms.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let serving = server.serve(incoming, std::future::pending());
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the embedded etcd stopped");
            }
        });
        Ok((server, bound))
    }

    /// The gRPC services.
    pub fn routes(&self) -> Routes {
        Service::new(self.store.clone(), self.gate.clone(), self.address.clone()).routes()
    }

    /// Serves connections, sockets or in-memory links, until `shutdown` is done.
    pub fn serve<C>(
        &self,
        incoming: impl Stream<Item = io::Result<C>> + Send + 'static,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = Result<(), tonic::transport::Error>> + Send + 'static
    where
        C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    {
        let routes = self.routes();
        // Held while it serves, so that leases go on expiring.
        let server = self.clone();
        async move {
            let served = Server::builder()
                .layer(MapResponseLayer::new(undated))
                .max_concurrent_streams(None)
                .add_routes(routes)
                .serve_with_incoming_shutdown(incoming, shutdown)
                .await;
            drop(server);
            served
        }
    }

    /// Stops answering and expiring, like a process that was stopped; connections stay open.
    pub fn pause(&self) {
        self.gate.close();
    }

    /// Goes on after [`Self::pause`]. Leases that ran out meanwhile are gone with the next tick.
    pub fn resume(&self) {
        self.gate.open();
    }

    /// Ends every watch and gives every lease its full time, as a restart of etcd does. The data
    /// stays.
    pub fn restart(&self) {
        self.store().restart();
    }

    /// Starts over with no data and another cluster id, as a restore onto an empty disk does.
    pub fn wipe(&self, seed: u64) {
        let mut store = self.store();
        store.hub.close_all();
        *store = Store::new(seed);
    }

    /// Compacts at the present revision.
    pub fn compact_now(&self) {
        let mut store = self.store();
        let revision = store.revision();
        // Nothing happens if nothing was written since the last time.
        let _ = store.compact(revision);
    }

    /// Expires one lease at once, whatever its holder does. Whether it was there.
    pub fn revoke_lease(&self, id: i64) -> bool {
        self.store().revoke(id).is_ok()
    }

    /// Every lease.
    pub fn leases(&self) -> Vec<i64> {
        self.store().lease_ids()
    }

    /// The present revision.
    pub fn revision(&self) -> i64 {
        self.store().revision()
    }

    /// Every revision made from now on, in order, for those who check what is written. It goes on
    /// through pauses and restarts, and ends with a wipe.
    pub fn observe(&self) -> UnboundedReceiver<Vec<Change>> {
        self.store().observe()
    }

    /// Everything stored under a prefix, by key.
    pub fn inspect(&self, prefix: &str) -> Vec<Stored> {
        self.store().inspect(prefix)
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dates the answers to nothing in particular: gRPC does not look, and the real time of day would
/// make two runs of one simulation differ.
fn undated(mut reply: http::Response<Body>) -> http::Response<Body> {
    let never = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT");
    reply.headers_mut().insert(DATE, never);
    reply
}

async fn tick(store: Weak<Mutex<Store>>, gate: Weak<Gate>) {
    let mut ticks = 0;
    loop {
        tokio::time::sleep(EXPIRY_TICK).await;
        let Some(gate) = gate.upgrade() else { return };
        gate.pass().await;
        let Some(store) = store.upgrade() else { return };
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        store.expire();
        ticks += 1;
        if ticks % PROGRESS_TICKS == 0 {
            let header = store.header();
            store.hub.notify_progress(&header);
        }
    }
}
