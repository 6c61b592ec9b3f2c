//! The small HTTP endpoint of every process: `/metrics`, `/healthz`, `/readyz`.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::{Connection, Health, Incoming, MetricsHandle, Shutdown};

/// The three routes; a service with more of its own merges them.
pub fn routes(metrics: MetricsHandle, health: Health) -> Router {
    let exposition = move || {
        let text = metrics.render();
        async move { ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text) }
    };
    let readiness = move || {
        let (ready, missing) = (health.is_ready(), health.describe());
        async move {
            if ready {
                (StatusCode::OK, "ready\n".to_owned()).into_response()
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, missing).into_response()
            }
        }
    };
    Router::new()
        .route("/metrics", get(exposition))
        // Answering is the proof of life; what it waits for is the matter of readiness.
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readiness))
}

/// Serves until shutdown is requested; answers in flight are finished, idle connections closed.
pub async fn serve(incoming: Incoming, router: Router, shutdown: Shutdown) -> std::io::Result<()> {
    let drained = shutdown.clone();
    let serving = axum::serve(Listener(incoming), router)
        .with_graceful_shutdown(async move { drained.requested().await });
    tokio::select! {
        biased;
        result = async { serving.await } => result,
        () = crate::grpc::grace_after(&shutdown) => Ok(()),
    }
}

struct Listener(Incoming);

impl axum::serve::Listener for Listener {
    type Io = Connection;
    type Addr = String;

    async fn accept(&mut self) -> (Connection, String) {
        loop {
            match self.0.accept().await {
                Ok(connection) => {
                    let peer = connection.peer();
                    return (connection, peer);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<String> {
        Ok(self.0.address().to_owned())
    }
}
