//! One log line for every change that was asked for, accepted or refused.

use evenkeel_proto::refusal::Reason;
use evenkeel_runtime::network::Peer;
use tonic::{Request, Response, Status};

use crate::metrics;

/// A change that somebody asks for.
pub(super) struct Change {
    action: &'static str,
    subject: String,
    peer: String,
}

impl Change {
    pub(super) fn of<T>(action: &'static str, request: &Request<T>, subject: String) -> Self {
        let peer =
            request.extensions().get::<Peer>().map_or_else(String::new, |peer| peer.0.clone());
        Self { action, subject, peer }
    }

    /// Logs what came of it, and answers.
    pub(super) fn record<T>(self, result: Result<T, Status>) -> Result<Response<T>, Status> {
        let Self { action, subject, peer } = self;
        match &result {
            Ok(_) => {
                metrics::admin_change(action, "accepted");
                tracing::info!(target: "audit", action, subject, peer, "change accepted");
            }
            Err(status) => {
                let reason = Reason::of(status).map_or("internal", |(reason, _)| reason.as_str());
                metrics::admin_change(action, reason);
                let detail = status.message();
                tracing::info!(target: "audit", action, subject, peer, reason, detail, "change refused");
            }
        }
        result.map(Response::new)
    }
}
