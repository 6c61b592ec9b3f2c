//! What the elected instance does until it no longer is: passes, trimming, compaction.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_coordination::{Election, Leadership, Token};
use evenkeel_model::Millis;
use evenkeel_runtime::Shutdown;
use tokio::time::Instant;

use crate::cluster::{Cluster, Leading};
use crate::pass::{self, Memory, PassEnd};
use crate::upkeep::Upkeep;
use crate::{metrics, upkeep};

/// The loop says at least this often that it gets on.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Between two passes: what a burst of changes is gathered in.
const DEBOUNCE: Duration = Duration::from_millis(2);

/// However long passes take, the next one does not wait longer than this for more changes.
const DEBOUNCE_MAX: Duration = Duration::from_millis(250);

/// After a pass that could not write; doubled with each that follows, up to the longest.
const AFTER_TROUBLE: Duration = Duration::from_millis(200);
const AFTER_TROUBLE_MAX: Duration = Duration::from_secs(5);

/// Settings of the leader's work.
#[derive(Debug, Clone)]
pub(crate) struct LeaderConfig {
    /// A broker is down when its registration has been gone this long.
    pub(crate) down_grace_ms: Millis,
    /// How the store is kept small.
    pub(crate) upkeep: upkeep::UpkeepConfig,
}

/// Follows the election until shutdown, and leads while elected.
pub(crate) async fn follow(
    cluster: Arc<Cluster>,
    election: Election,
    config: LeaderConfig,
    shutdown: Shutdown,
) {
    let mut leadership = election.watch();
    loop {
        election.progress();
        let token = match &*leadership.borrow_and_update() {
            Leadership::Leading(token) => Some(token.clone()),
            Leadership::Following { .. } | Leadership::Unknown => None,
        };
        let Some(token) = token else {
            tokio::select! {
                biased;
                () = shutdown.requested() => return,
                changed = leadership.changed() => if changed.is_err() { return },
            }
            continue;
        };
        let lost = async {
            let mut leadership = election.watch();
            let other = |l: &Leadership| !matches!(l, Leadership::Leading(t) if *t == token);
            // An election that has ended is a loss too.
            let _ = leadership.wait_for(other).await;
        };
        tokio::select! {
            biased;
            () = shutdown.requested() => {}
            () = lost => {}
            () = lead(&cluster, &election, &token, &config) => {}
        }
        cluster.set_leading(None);
        metrics::leading(false);
        tracing::info!(token = token.create_revision, "no longer leading");
        if shutdown.is_requested() {
            return;
        }
        // A pass may have learnt of the loss before the election did.
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            changed = leadership.changed() => if changed.is_err() { return },
        }
    }
}

async fn lead(cluster: &Cluster, election: &Election, token: &Token, config: &LeaderConfig) {
    // Everything that earlier leaders wrote is older than the token.
    while !cluster.seen(token.create_revision).await {
        tracing::warn!("the view lags behind the election");
    }
    let leading = Leading { token: token.clone(), elected_at_ms: cluster.clock.now_ms() };
    cluster.forget();
    cluster.set_leading(Some(leading.clone()));
    metrics::leading(true);
    tracing::info!(token = token.create_revision, "leading");
    let mut memory = Memory::new(config.down_grace_ms);
    let mut upkeep = Upkeep::new(config.upkeep.clone());
    let mut trouble = AFTER_TROUBLE;
    loop {
        election.progress();
        let report = pass::run(cluster, &leading, &mut memory, &|| election.progress()).await;
        match report.end {
            PassEnd::Complete => trouble = AFTER_TROUBLE,
            PassEnd::Deposed => return,
            // What was in doubt is planned again as soon as it is known.
            PassEnd::Unknown => {
                tokio::time::sleep(trouble).await;
                trouble = (trouble * 2).min(AFTER_TROUBLE_MAX);
                continue;
            }
        }
        upkeep.run(cluster, &leading).await;
        // Planning takes no more than half of the time, however fast changes come; a change that
        // comes later than that is acted on at once.
        let not_before = Instant::now() + report.planning.clamp(DEBOUNCE, DEBOUNCE_MAX);
        let due = next_pass(cluster, report.wake_at_ms);
        rest(cluster, election, report.planned_version, due).await;
        tokio::time::sleep_until(not_before).await;
    }
}

/// When the next pass is due though nothing changes.
fn next_pass(cluster: &Cluster, wake_at_ms: Option<Millis>) -> Instant {
    let interval = cluster.read(|records| {
        crate::policy::effective(records, &cluster.configured).reconcile_interval_ms
    });
    let until = wake_at_ms.map(|at| at - cluster.clock.now_ms()).unwrap_or(interval).min(interval);
    Instant::now() + Duration::from_millis(u64::try_from(until).unwrap_or(0))
}

/// Waits until something changed since `planned_version` that a plan depends on (a write of the
/// pass itself is such a change: it may free the next step), for an operator, or for the time, and
/// says meanwhile that the loop gets on.
async fn rest(cluster: &Cluster, election: &Election, planned_version: u64, until: Instant) {
    let mut changed = cluster.view.changed();
    loop {
        election.progress();
        changed.borrow_and_update();
        // Others read the records too: what counts is how far they are, not who took a change in.
        if cluster.read(|records| records.placement_version) != planned_version {
            return;
        }
        let tick = (Instant::now() + PROGRESS_EVERY).min(until);
        tokio::select! {
            biased;
            () = cluster.wake.notified() => return,
            alive = changed.changed() => if alive.is_err() { return },
            () = tokio::time::sleep_until(tick) => if Instant::now() >= until { return },
        }
    }
}
