//! Serving gRPC: health, reflection and the HTTP/2 settings that every service shares.

use std::convert::Infallible;
use std::time::Duration;

use http::header::DATE;
use http::{HeaderValue, Request};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::{Routes, RoutesBuilder};
use tonic_health::ServingStatus;
use tower::Service;
use tower::layer::util::{Identity, Stack};
use tower::util::MapResponseLayer;

use crate::{Health, Incoming, Shutdown};

/// How long open calls may go on after a stop was requested; watches and sessions never end by
/// themselves.
const GRACE: Duration = Duration::from_secs(2);

/// Calls open at once on one connection: long-lived subscriptions and watches count too.
const MAX_CONCURRENT_STREAMS: u32 = 4096;

/// Flow-control windows in bytes, of a stream and of a connection. The usual 64 KiB would bound a
/// copy to one window per round trip.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Why a gRPC server cannot be started or stopped serving.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The descriptors for reflection are not readable.
    #[error("cannot serve reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("cannot serve gRPC: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// Collects services, then serves them with health and reflection beside them.
pub struct Server {
    routes: RoutesBuilder,
    names: Vec<&'static str>,
}

impl Server {
    /// With reflection over the encoded `FileDescriptorSet` of all services (v1 and v1alpha).
    pub fn new(descriptors: &'static [u8]) -> Result<Self, ServeError> {
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(descriptors)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let mut routes = Routes::builder();
        routes.add_service(reflection().build_v1()?);
        routes.add_service(reflection().build_v1alpha()?);
        Ok(Self { routes, names: Vec::new() })
    }

    /// Adds a generated service.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "a builder's verb, not arithmetic")]
    pub fn add<S>(mut self, service: S) -> Self
    where
        S: Service<Request<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Response: axum::response::IntoResponse,
        S::Future: Send + 'static,
    {
        self.names.push(S::NAME);
        self.routes.add_service(service);
        self
    }

    /// Serves until shutdown is requested, then for at most two seconds more. `grpc.health.v1`
    /// follows `health` for every service and for the whole server.
    pub async fn serve(
        mut self,
        incoming: Incoming,
        health: Health,
        shutdown: Shutdown,
    ) -> Result<(), ServeError> {
        let (reporter, health_service) = tonic_health::server::health_reporter();
        self.routes.add_service(health_service);
        let names = std::mem::take(&mut self.names);
        let following = async move {
            let mut changes = health.subscribe();
            loop {
                let status = match changes.borrow_and_update().is_empty() {
                    true => ServingStatus::Serving,
                    false => ServingStatus::NotServing,
                };
                for name in names.iter().copied().chain([""]) {
                    reporter.set_service_status(name, status).await;
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let stop = shutdown.clone();
        let serving = transport()
            .add_routes(self.routes.routes())
            .serve_with_incoming_shutdown(incoming, async move { stop.requested().await });
        tokio::select! {
            biased;
            result = serving => Ok(result?),
            () = grace_after(&shutdown) => Ok(()),
            () = following => Ok(()),
        }
    }
}

type Reply = http::Response<Body>;
type Undated = Stack<MapResponseLayer<fn(Reply) -> Reply>, Identity>;

/// Dates the answers to nothing in particular: gRPC does not look, and the real time of day would
/// make two runs of one simulation differ.
fn undated(mut reply: Reply) -> Reply {
    let never = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT");
    reply.headers_mut().insert(DATE, never);
    reply
}

fn transport() -> tonic::transport::Server<Undated> {
    tonic::transport::Server::builder()
        .layer(MapResponseLayer::new(undated as fn(Reply) -> Reply))
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keepalive_interval(Some(Duration::from_secs(20)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
}

/// Returns once the grace after a requested stop has passed.
pub(crate) async fn grace_after(shutdown: &Shutdown) {
    shutdown.requested().await;
    tokio::time::sleep(GRACE).await;
}
