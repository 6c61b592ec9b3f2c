//! What the migrator reads of the cluster: assignments, brokers, reports and sizes.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_coordination::{Revision, ViewState};
use evenkeel_model::broker::DEFAULT_NETWORK_BYTES_PER_SECOND;
use evenkeel_model::keys::Keys;
use evenkeel_model::{
    Assignment, AssignmentRecord, BrokerId, CopyClass, CopyPauseRecord, Lifecycle, LimitRecord,
    LoadReport, Millis, NodeRecord, PauseScope, RECORD_VERSION, Registration, ReportRecord,
    ShardKey, ShardReport,
};

/// One broker, as far as copies care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// What it may be used for.
    pub lifecycle: Lifecycle,
    /// Where it listens; none when it is not registered.
    pub address: Option<String>,
    /// Its link, bytes per second.
    pub link_bytes_per_second: u64,
}

impl Broker {
    /// Whether its copies can be read and written now.
    pub fn is_serving(&self) -> bool {
        self.address.is_some() && matches!(self.lifecycle, Lifecycle::Live | Lifecycle::Draining)
    }
}

/// The cluster at one moment. Only shards with a copy under way are in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    /// Assignments that name a successor or a joiner.
    pub moving: BTreeMap<ShardKey, Assignment>,
    /// Leadership tokens of the load managers that wrote them.
    pub tokens: BTreeMap<ShardKey, i64>,
    /// Every broker that is registered or has a node record.
    pub brokers: BTreeMap<BrokerId, Broker>,
    /// Reports about moving shards, at their assignment's generation only.
    pub reports: BTreeMap<(ShardKey, BrokerId), ShardReport>,
    /// Replicas of moving shards that halted, by their brokers' latest word: no copy is made of
    /// them, and they do not count as live.
    pub halted: BTreeSet<(ShardKey, BrokerId)>,
    /// Operators' caps, bytes per second.
    pub limits: BTreeMap<BrokerId, u64>,
    /// Operators' pauses of copies, those that are over as well.
    pub pauses: BTreeMap<PauseScope, CopyPauseRecord>,
    /// Bytes on disk of moving shards, as their leaders said last.
    pub sizes: BTreeMap<ShardKey, u64>,
}

impl World {
    /// The pauses that hold a copy now.
    pub fn holding<'a>(
        &'a self,
        class: CopyClass,
        shard: &'a ShardKey,
        now_ms: Millis,
    ) -> impl Iterator<Item = &'a CopyPauseRecord> {
        let on = self.pauses.values().filter(move |pause| pause.is_on(now_ms));
        on.filter(move |pause| pause.scope.holds(class, shard))
    }

    /// Whether a broker serves.
    pub fn is_serving(&self, broker: &BrokerId) -> bool {
        self.brokers.get(broker).is_some_and(Broker::is_serving)
    }

    /// Whether a broker's copy of a shard can be read: the broker serves and the copy has not
    /// halted.
    pub fn is_live(&self, shard: &ShardKey, broker: &BrokerId) -> bool {
        self.is_serving(broker) && !self.halted.contains(&(shard.clone(), broker.clone()))
    }
}

/// The prefixes that a [`Reader`] wants in its view.
pub fn prefixes(keys: &Keys) -> Vec<String> {
    vec![
        keys.assignments(),
        keys.registrations(),
        keys.nodes(),
        keys.reports(),
        keys.loads(),
        keys.limits(),
        keys.copy_pauses(),
    ]
}

/// Makes a [`World`] of a view, decoding only what has changed since the last time.
#[derive(Debug)]
pub struct Reader {
    keys: Keys,
    assignments: Decoded<AssignmentRecord>,
    registrations: Decoded<Registration>,
    nodes: Decoded<NodeRecord>,
    reports: Decoded<ReportRecord>,
    loads: Decoded<LoadReport>,
    limits: Decoded<LimitRecord>,
    pauses: Decoded<CopyPauseRecord>,
}

/// Records of one prefix with the revision that each was decoded at. What cannot be read is kept
/// as none, so that it is logged once.
#[derive(Debug)]
struct Decoded<T>(BTreeMap<String, (Revision, Option<T>)>);

/// The layout version of any record.
#[derive(serde::Deserialize)]
struct Version {
    #[serde(default)]
    v: u32,
}

impl<T> Default for Decoded<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: serde::de::DeserializeOwned> Decoded<T> {
    fn refresh(&mut self, view: &ViewState, prefix: &str) {
        let mut before = std::mem::take(&mut self.0);
        for entry in view.range(prefix) {
            let known = before.remove(&entry.key).filter(|(at, _)| *at == entry.mod_revision);
            let value = known.unwrap_or_else(|| {
                let decoded = evenkeel_model::decode(&entry.key, &entry.value);
                let decoded = decoded.inspect_err(|error| tracing::warn!(%error, "left out"));
                let version = evenkeel_model::decode::<Version>(&entry.key, &entry.value);
                if let Ok(Version { v }) = version
                    && v > RECORD_VERSION
                {
                    let key = &entry.key;
                    tracing::warn!(key, v, "record of a later version: read as far as it is known");
                }
                (entry.mod_revision, decoded.ok())
            });
            self.0.insert(entry.key.clone(), value);
        }
    }

    fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values().filter_map(|(_, value)| value.as_ref())
    }
}

impl Reader {
    /// Has read nothing yet.
    pub fn new(keys: Keys) -> Self {
        Self {
            keys,
            assignments: Decoded::default(),
            registrations: Decoded::default(),
            nodes: Decoded::default(),
            reports: Decoded::default(),
            loads: Decoded::default(),
            limits: Decoded::default(),
            pauses: Decoded::default(),
        }
    }

    /// The cluster as the view shows it.
    pub fn read(&mut self, view: &ViewState) -> World {
        self.assignments.refresh(view, &self.keys.assignments());
        self.registrations.refresh(view, &self.keys.registrations());
        self.nodes.refresh(view, &self.keys.nodes());
        self.reports.refresh(view, &self.keys.reports());
        self.loads.refresh(view, &self.keys.loads());
        self.limits.refresh(view, &self.keys.limits());
        self.pauses.refresh(view, &self.keys.copy_pauses());
        let mut world = World { brokers: self.brokers(), ..World::default() };
        let caps = self.limits.values().map(|cap| (cap.broker.clone(), cap.bytes_per_second));
        world.limits = caps.collect();
        let pauses = self.pauses.values().map(|pause| (pause.scope.clone(), pause.clone()));
        world.pauses = pauses.collect();
        for record in self.assignments.values() {
            let assignment = &record.assignment;
            if assignment.successor.is_some() || assignment.joining.is_some() {
                world.moving.insert(assignment.shard.clone(), assignment.clone());
                world.tokens.insert(assignment.shard.clone(), record.token);
            }
        }
        for record in self.reports.values() {
            let report = &record.report;
            let Some(assignment) = world.moving.get(&report.shard) else { continue };
            let key = (report.shard.clone(), report.broker.clone());
            // What has halted says so once, and nothing at later generations.
            if report.halted_because().is_some() {
                world.halted.insert(key.clone());
            }
            if assignment.generation == report.generation {
                world.reports.insert(key, report.clone());
            }
        }
        for row in self.loads.values().flat_map(|load| &load.shards) {
            if world.moving.contains_key(&row.shard) {
                world.sizes.insert(row.shard.clone(), row.size_bytes);
            }
        }
        world
    }

    fn brokers(&self) -> BTreeMap<BrokerId, Broker> {
        let mut brokers: BTreeMap<BrokerId, Broker> = self
            .registrations
            .values()
            .map(|registration| {
                let broker = Broker {
                    lifecycle: Lifecycle::Live,
                    address: Some(registration.address.clone()),
                    link_bytes_per_second: registration
                        .network_bytes_per_second
                        .unwrap_or(DEFAULT_NETWORK_BYTES_PER_SECOND),
                };
                (registration.broker.clone(), broker)
            })
            .collect();
        for node in self.nodes.values() {
            let broker = brokers.entry(node.broker.clone()).or_insert_with(|| Broker {
                lifecycle: node.lifecycle,
                address: None,
                link_bytes_per_second: DEFAULT_NETWORK_BYTES_PER_SECOND,
            });
            // A registration is newer than the word that its broker was gone.
            if broker.address.is_none() || node.lifecycle == Lifecycle::Draining {
                broker.lifecycle = node.lifecycle;
            }
        }
        brokers
    }
}
