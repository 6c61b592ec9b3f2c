//! The stored records, decoded. Each is decoded once per revision, so that a pass over an unchanged
//! cluster costs a walk of the view and nothing more.
//!
//! A record that cannot be read is kept in the store, left out here, named once in the log and
//! counted until it is mended.

mod family;
mod kinds;

use std::collections::BTreeSet;

use evenkeel_coordination::{Entry, Mark, Revision, Store, View, ViewConfig, ViewState};
use evenkeel_model::keys::Keys;
use evenkeel_model::{
    AssignmentRecord, CopyPauseRecord, CopyRecord, HistoryEntry, LeaderRecord, LoadReport, Marker,
    NodeRecord, PauseRecord, Registration, ReportRecord, ShardKey, Stream,
};

use family::AnyFamily;
pub(crate) use family::{Family, Record, Unreadable};
pub(crate) use kinds::{HistoryId, StoredPolicy};

/// Changes between two looks that are taken in key by key; after more everything is walked.
const REMEMBERED_CHANGES: usize = 1 << 16;

/// Where entries are read from: the live view, or a list in a test.
pub(crate) trait Source {
    /// The revision that every entry was read at.
    fn revision(&self) -> Revision;
    /// The entry of a key.
    fn entry(&self, key: &str) -> Option<&Entry>;
    /// This moment, to ask later what changed since.
    fn mark(&self) -> Mark;
    /// The keys that changed since; none if that cannot be told.
    fn changed_since(&self, mark: Mark) -> Option<Vec<&str>>;
    /// The entries under `prefix`, in key order.
    fn under<'a>(&'a self, prefix: &'a str) -> Box<dyn Iterator<Item = &'a Entry> + 'a>;
}

impl Source for ViewState {
    fn revision(&self) -> Revision {
        ViewState::revision(self)
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.get(key)
    }

    fn mark(&self) -> Mark {
        ViewState::mark(self)
    }

    fn changed_since(&self, mark: Mark) -> Option<Vec<&str>> {
        ViewState::changed_since(self, mark).map(Iterator::collect)
    }

    fn under<'a>(&'a self, prefix: &'a str) -> Box<dyn Iterator<Item = &'a Entry> + 'a> {
        Box::new(self.range(prefix))
    }
}

/// Every family of records that the load manager reads.
pub(crate) struct Records {
    /// How the keys are spelled.
    pub(crate) keys: Keys,
    /// The revision of the last [`Self::refresh`].
    pub(crate) revision: Revision,
    /// Rises whenever everything is read anew.
    pub(crate) readings: u64,
    /// Where the source was then.
    mark: Option<Mark>,
    /// Rises whenever something changes that a plan depends on at once.
    pub(crate) placement_version: u64,
    /// Who leads the services.
    pub(crate) leaders: Family<LeaderRecord>,
    /// What agents say about their brokers.
    pub(crate) registrations: Family<Registration>,
    /// What became of the brokers.
    pub(crate) nodes: Family<NodeRecord>,
    /// Load reports.
    pub(crate) loads: Family<LoadReport>,
    /// Streams and caches.
    pub(crate) streams: Family<Stream>,
    /// Shards that wait for a leader.
    pub(crate) markers: Family<Marker>,
    /// Who holds what.
    pub(crate) assignments: Family<AssignmentRecord>,
    /// What brokers say about shards.
    pub(crate) reports: Family<ReportRecord>,
    /// Progress of copies.
    pub(crate) copies: Family<CopyRecord>,
    /// Finished moves.
    pub(crate) history: Family<HistoryEntry>,
    /// Run-time policy.
    pub(crate) policy: Family<StoredPolicy>,
    /// The pause.
    pub(crate) pause: Family<PauseRecord>,
    /// Operators' pauses of copies.
    pub(crate) copy_pauses: Family<CopyPauseRecord>,
}

impl Records {
    /// Nothing read yet.
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            revision: 0,
            readings: 0,
            mark: None,
            placement_version: 1,
            leaders: Family::new("leader", keys.leaders()),
            registrations: Family::new("register", keys.registrations()),
            nodes: Family::new("nodes", keys.nodes()),
            loads: Family::new("load", keys.loads()),
            streams: Family::new("streams", keys.streams()),
            markers: Family::new("unassigned", keys.markers()),
            assignments: Family::new("shards", keys.assignments()),
            reports: Family::new("reports", keys.reports()),
            copies: Family::new("copies", keys.copies()),
            history: Family::new("rebalancing_history", keys.history()),
            policy: Family::new("policy", keys.policy()),
            pause: Family::new("pause", keys.pause()),
            copy_pauses: Family::new("copy_pauses", keys.copy_pauses()),
            keys,
        }
    }

    /// Decodes everything anew at the next refresh: revisions of another store would tell nothing.
    pub(crate) fn forget(&mut self) {
        let placement_version = self.placement_version + 1;
        let readings = self.readings + 1;
        *self = Self { placement_version, readings, ..Self::new(self.keys.clone()) };
    }

    /// A view that [`Self::refresh`] can ask what changed.
    pub(crate) fn view(store: Store, keys: &Keys) -> View {
        let config = ViewConfig { remembered_changes: REMEMBERED_CHANGES, ..ViewConfig::default() };
        View::start(store, Self::prefixes(keys), config)
    }

    /// The prefixes that a view must cover for [`Self::refresh`].
    fn prefixes(keys: &Keys) -> Vec<String> {
        Self::new(keys.clone()).families().iter().map(|f| f.prefix().to_owned()).collect()
    }

    fn families(&self) -> [&dyn AnyFamily; 13] {
        [
            &self.leaders,
            &self.registrations,
            &self.nodes,
            &self.loads,
            &self.streams,
            &self.markers,
            &self.assignments,
            &self.reports,
            &self.copies,
            &self.history,
            &self.policy,
            &self.pause,
            &self.copy_pauses,
        ]
    }

    /// The families that a plan depends on at once, then the others.
    fn families_mut(&mut self) -> ([&mut dyn AnyFamily; 8], [&mut dyn AnyFamily; 5]) {
        let placement: [&mut dyn AnyFamily; 8] = [
            &mut self.registrations,
            &mut self.nodes,
            &mut self.streams,
            &mut self.markers,
            &mut self.assignments,
            &mut self.reports,
            &mut self.policy,
            &mut self.pause,
        ];
        let others: [&mut dyn AnyFamily; 5] = [
            &mut self.leaders,
            &mut self.loads,
            &mut self.copies,
            &mut self.history,
            &mut self.copy_pauses,
        ];
        (placement, others)
    }

    /// Takes in what changed since the last call: key by key, or by a walk over everything if the
    /// source cannot tell what it was.
    pub(crate) fn refresh(&mut self, source: &dyn Source) {
        if source.revision() < self.revision {
            self.forget();
        }
        let keys = self.mark.and_then(|mark| source.changed_since(mark));
        let (placement, others) = self.families_mut();
        let refresh = |family: &mut dyn AnyFamily| match &keys {
            None => family.refresh(source),
            Some(keys) => keys.iter().fold(false, |changed, key| {
                let its = key.starts_with(family.prefix());
                (its && family.take_in(key, source.entry(key))) | changed
            }),
        };
        let changed = placement.into_iter().fold(false, |changed, f| refresh(f) | changed);
        others.into_iter().for_each(|family| {
            refresh(family);
        });
        self.placement_version += u64::from(changed);
        self.revision = source.revision();
        self.mark = Some(source.mark());
    }

    /// Every record that cannot be read, by family, in key order.
    pub(crate) fn unreadable(&self) -> Vec<(&'static str, &Unreadable)> {
        let families = self.families().into_iter();
        families.flat_map(|f| f.unreadable().into_iter().map(|u| (f.name(), u))).collect()
    }

    /// Names of the families, each once.
    pub(crate) fn family_names(&self) -> [&'static str; 13] {
        self.families().map(AnyFamily::name)
    }

    /// Shards whose assignment is stored and cannot be read: nothing may be decided about them.
    pub(crate) fn opaque_shards(&self) -> BTreeSet<ShardKey> {
        self.assignments.unreadable_ids().cloned().collect()
    }
}
