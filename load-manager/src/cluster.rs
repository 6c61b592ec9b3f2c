//! The cluster as this instance sees it, shared by the leader's loop and the admin service.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel_coordination::{Revision, Store, StoreError, Token, View};
use evenkeel_model::keys::Keys;
use evenkeel_model::{LeaderRecord, Millis, Policy, Snapshot};
use evenkeel_planner::Planner;
use evenkeel_runtime::Clock;
use tokio::sync::{Notify, watch};

use crate::kept::Kept;
use crate::records::Records;
use crate::snapshot::Circumstances;

/// How long an answer waits for the view to show what was just written.
const VIEW_PATIENCE: Duration = Duration::from_secs(5);

/// Leadership that this instance holds, as far as it knows; every write proves it anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leading {
    /// What every write carries.
    pub(crate) token: Token,
    /// When it was elected, on its own clock.
    pub(crate) elected_at_ms: Millis,
}

/// The store, the view over it, and what of it is decoded.
pub(crate) struct Cluster {
    /// The door to etcd.
    pub(crate) store: Store,
    /// Everything that the load manager reads.
    pub(crate) view: View,
    /// How keys are spelled.
    pub(crate) keys: Keys,
    /// Time of day.
    pub(crate) clock: Clock,
    /// This instance's name.
    pub(crate) instance: String,
    /// The policy under the stored one.
    pub(crate) configured: Policy,
    /// Held from the look at the records to the last write that came of it, so that a pass and an
    /// operator's request do not both take the last slot.
    pub(crate) placing: tokio::sync::Mutex<()>,
    /// Asks for a pass at once.
    pub(crate) wake: Notify,
    decoded: Mutex<Decoded>,
    leading: watch::Sender<Option<Leading>>,
    operations: AtomicU64,
}

/// The records, and which changes of the view they have taken in.
struct Decoded {
    records: Records,
    kept: Kept,
    changed: watch::Receiver<Revision>,
}

/// What a [`Cluster`] is made of.
pub(crate) struct ClusterParts {
    /// The door to etcd.
    pub(crate) store: Store,
    /// A view over [`Records::prefixes`].
    pub(crate) view: View,
    /// How keys are spelled.
    pub(crate) keys: Keys,
    /// Time of day.
    pub(crate) clock: Clock,
    /// This instance's name.
    pub(crate) instance: String,
    /// The policy under the stored one.
    pub(crate) configured: Policy,
}

impl Cluster {
    /// Not leading yet, nothing decoded yet.
    pub(crate) fn new(parts: ClusterParts) -> Self {
        let mut changed = parts.view.changed();
        changed.mark_changed();
        let records = Records::new(parts.keys.clone());
        let decoded = Decoded { records, kept: Kept::default(), changed };
        Self {
            decoded: Mutex::new(decoded),
            store: parts.store,
            view: parts.view,
            keys: parts.keys,
            clock: parts.clock,
            instance: parts.instance,
            configured: parts.configured,
            placing: tokio::sync::Mutex::new(()),
            wake: Notify::new(),
            leading: watch::Sender::new(None),
            operations: AtomicU64::new(0),
        }
    }

    /// The leadership that this instance holds.
    pub(crate) fn leading(&self) -> Option<Leading> {
        self.leading.borrow().clone()
    }

    /// Tells everybody that leadership was gained or lost.
    pub(crate) fn set_leading(&self, leading: Option<Leading>) {
        self.leading.send_replace(leading);
    }

    /// A name for one write, so that its author recognises it after an unknown outcome.
    pub(crate) fn next_operation(&self, token: &Token) -> String {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        format!("{}-{}-{number}", self.instance, token.create_revision)
    }

    /// Decodes every record anew with the next look. A leadership starts so: the store may have been
    /// replaced since the last one.
    pub(crate) fn forget(&self) {
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        decoded.records.forget();
        decoded.changed.mark_changed();
    }

    /// Takes in what the view has seen and hands the records out.
    pub(crate) fn read<T>(&self, f: impl FnOnce(&Records) -> T) -> T {
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut decoded);
        f(&decoded.records)
    }

    fn refresh(&self, decoded: &mut Decoded) {
        let Decoded { records, changed, .. } = decoded;
        // The view lives as long as this, so it goes on telling of changes.
        if changed.has_changed().unwrap_or(true) {
            changed.borrow_and_update();
            self.view.read(|state| records.refresh(state));
        }
    }

    /// Like [`Self::read`], with the snapshot that a plan is made from.
    pub(crate) fn observe<T>(&self, f: impl FnOnce(&Records, &Snapshot) -> T) -> T {
        self.plan_with(|records, planner| f(records, planner.snapshot()))
    }

    /// Like [`Self::read`], with the planner over these records.
    pub(crate) fn plan_with<T>(&self, f: impl FnOnce(&Records, &Planner) -> T) -> T {
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut decoded);
        let at = self.circumstances(&decoded.records);
        let Decoded { records, kept, .. } = &mut *decoded;
        let planner = kept.look(records, &at);
        f(records, planner)
    }

    fn circumstances(&self, records: &Records) -> Circumstances {
        let elected = self.leading.borrow().as_ref().map(|l| l.elected_at_ms);
        let now_ms = self.clock.now_ms();
        Circumstances {
            now_ms,
            elected_at_ms: elected
                .or_else(|| Some(self.leader_record(records)?.elected_at_ms))
                .unwrap_or(now_ms),
            configured: self.configured.clone(),
        }
    }

    /// The elected load manager, if one is.
    pub(crate) fn leader_record<'a>(&self, records: &'a Records) -> Option<&'a LeaderRecord> {
        records.leaders.get(&"load-manager".to_owned()).map(|stored| &stored.value)
    }

    /// Waits until the view shows `revision`; false if it does not in time.
    pub(crate) async fn seen(&self, revision: Revision) -> bool {
        self.view.wait_for(revision, VIEW_PATIENCE).await
    }

    /// Waits until the view shows everything that was in the store at the time of the call.
    pub(crate) async fn catch_up(&self) -> Result<bool, StoreError> {
        let head = self.store.list(&self.keys.leaders()).await?.revision;
        Ok(self.seen(head).await)
    }
}
