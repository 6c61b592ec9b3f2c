//! Many transactions, a bounded number at a time, and what their outcomes mean for the pass.

use std::time::Duration;

use evenkeel_coordination::{Guarded, Outcome};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use super::{PassEnd, PassReport};
use crate::cluster::Cluster;
use crate::metrics;

/// Writes in flight at once.
pub(super) const WRITES_MAX: usize = 32;

/// Whether the outcome ends the pass.
pub(super) fn ends(outcome: &Outcome, report: &mut PassReport) -> bool {
    match outcome {
        Outcome::Written { .. } | Outcome::Stale { .. } => false,
        Outcome::Deposed => {
            if report.end != PassEnd::Deposed {
                metrics::write_fenced();
                tracing::warn!("another instance leads, the pass ends");
            }
            report.end = PassEnd::Deposed;
            true
        }
        Outcome::Unknown(error) => {
            metrics::write_unknown();
            tracing::warn!(%error, "outcome of a write is unknown, the pass ends");
            if report.end == PassEnd::Complete {
                report.end = PassEnd::Unknown;
            }
            true
        }
    }
}

/// Commits transactions, a bounded number at a time. `done` is told each outcome and how long it
/// took, and says whether to end: then no further one is started, and those in flight are waited
/// for, so that each has an outcome.
pub(super) async fn commit_all<T>(
    cluster: &Cluster,
    txns: Vec<(Guarded, T)>,
    mut done: impl FnMut(Outcome, T, Duration) -> bool,
) {
    let commit = |(txn, subject): (Guarded, T)| async move {
        let started = Instant::now();
        (cluster.store.commit(txn).await, subject, started.elapsed())
    };
    let mut queue = txns.into_iter();
    let mut in_flight: FuturesUnordered<_> = queue.by_ref().take(WRITES_MAX).map(commit).collect();
    let mut ended = false;
    while let Some((outcome, subject, took)) = in_flight.next().await {
        ended |= done(outcome, subject, took);
        if !ended && let Some(next) = queue.next() {
            in_flight.push(commit(next));
        }
    }
}
