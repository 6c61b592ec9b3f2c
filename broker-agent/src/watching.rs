//! Follows the keys that concern this broker: what it is told goes to the host, everything else
//! into the routes.

use std::collections::BTreeSet;
use std::sync::Arc;

use evenkeel_coordination::{Change, Entry, Revision, View};
use evenkeel_model::keys::Keys;
use evenkeel_model::{
    Assignment, AssignmentRecord, BrokerId, BrokerShard, LeaderRecord, Registration, ShardKey,
    decode,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::duties::{Duties, Refused};
use crate::host::ShardHost;
use crate::metrics;
use crate::routes::{Elected, Fact, Routes};
use crate::switchover::Switchovers;

/// Changes taken in at once.
const BATCH_MAX: usize = 1024;

/// Shards that act on what they are told at once. Each waits for the disk, which has many
/// requests done in the time of one.
const APPLYING_MAX: usize = 32;

/// This broker's own registration as the store shows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OwnKey {
    /// It is there.
    Present {
        /// Who wrote it.
        registration: Box<Registration>,
        /// When it was written.
        revision: Revision,
    },
    /// It is not, as of this revision.
    Gone(Revision),
}

/// The follower of this broker's keys.
pub(crate) struct Watching {
    pub(crate) me: BrokerId,
    pub(crate) keys: Keys,
    pub(crate) view: View,
    pub(crate) routes: Routes,
    pub(crate) host: Arc<dyn ShardHost>,
    pub(crate) own: watch::Sender<OwnKey>,
    pub(crate) held: watch::Sender<BTreeSet<ShardKey>>,
    pub(crate) switchovers: Switchovers,
}

/// The prefixes to watch.
pub(crate) fn prefixes(keys: &Keys, me: &BrokerId) -> Vec<String> {
    vec![keys.broker_shards(me), keys.assignments(), keys.registrations(), keys.leaders()]
}

impl Watching {
    /// Runs for ever.
    pub(crate) async fn run(self) {
        let mut duties = Duties::new(self.me.clone());
        let mut events = self.view.events();
        self.view.ready().await;
        while let Some(first) = events.recv().await {
            let mut changes = vec![first];
            while changes.len() < BATCH_MAX
                && let Ok(next) = events.try_recv()
            {
                changes.push(next);
            }
            // After a reset the whole map is read, so what came before it does not matter.
            if let Some(reset) = changes.iter().rposition(|c| matches!(c, Change::Reset)) {
                changes.drain(..=reset);
                self.read_everything(&mut duties).await;
            }
            let facts = self.act_on(&mut duties, changes).await;
            self.routes.learn(facts);
        }
    }

    async fn read_everything(&self, duties: &mut Duties) {
        let (entries, revision) = self.view.read(|state| {
            let prefixes = prefixes(&self.keys, &self.me);
            let entries: Vec<Entry> =
                prefixes.iter().flat_map(|prefix| state.range(prefix).cloned()).collect();
            (entries, state.revision())
        });
        let told = self.keys.broker_shards(&self.me);
        let listed: BTreeSet<ShardKey> =
            entries.iter().filter_map(|e| Keys::shard_under(&told, &e.key)).collect();
        let gone: Vec<ShardKey> = duties
            .held()
            .map(|(shard, _)| shard.clone())
            .filter(|shard| !listed.contains(shard))
            .collect();
        let own_key = self.keys.registration(&self.me);
        if !entries.iter().any(|e| e.key == own_key) {
            self.own.send_replace(OwnKey::Gone(revision));
        }
        for shard in gone {
            self.release(duties, &shard).await;
        }
        let facts = self.act_on(duties, entries.into_iter().map(Change::Put).collect()).await;
        self.routes.replace(facts);
    }

    /// Does what this broker is told; what is learned about others is returned.
    async fn act_on(&self, duties: &mut Duties, changes: Vec<Change>) -> Vec<Fact> {
        let told = self.keys.broker_shards(&self.me);
        let mut facts = Vec::new();
        let mut applying = Applying::default();
        for change in changes {
            match change {
                Change::Put(entry) => match Keys::shard_under(&told, &entry.key) {
                    Some(shard) => {
                        if let Some(told) = self.admit(duties, &shard, &entry) {
                            applying.begin(&self.host, told).await;
                        }
                    }
                    None => facts.extend(self.learned(&entry)),
                },
                Change::Delete { key, revision } => match Keys::shard_under(&told, &key) {
                    Some(shard) => {
                        applying.finish().await;
                        self.release(duties, &shard).await;
                    }
                    None => facts.extend(self.forgotten(&key, revision)),
                },
                Change::Reset => {}
            }
        }
        applying.finish().await;
        facts
    }

    /// What the host is to act on, if it is news.
    fn admit(&self, duties: &mut Duties, shard: &ShardKey, entry: &Entry) -> Option<BrokerShard> {
        let told = decode::<BrokerShard>(&entry.key, &entry.value)
            .map_err(|e| Refused::Unreadable(e.to_string()));
        match told.and_then(|told| duties.admit(shard, &told).map(|new| new.then_some(told))) {
            Ok(Some(told)) => {
                let (role, generation) = (told.role.as_str(), told.assignment.generation);
                tracing::debug!(%shard, role, generation, "told");
                self.switchovers.told(&self.me, &told.assignment);
                // Before the host can report about it.
                self.held.send_if_modified(|held| held.insert(shard.clone()));
                Some(told)
            }
            Ok(None) => None,
            Err(refused) => {
                metrics::assignment_refused(&refused);
                tracing::warn!(%shard, reason = refused.label(), %refused, "assignment refused");
                None
            }
        }
    }

    async fn release(&self, duties: &mut Duties, shard: &ShardKey) {
        if duties.withdraw(shard) {
            tracing::debug!(%shard, "released");
            self.host.release(shard).await;
            self.held.send_if_modified(|held| held.remove(shard));
        }
    }

    fn learned(&self, entry: &Entry) -> Option<Fact> {
        let fact = self.fact(entry);
        if let Err(error) = &fact {
            tracing::warn!(%error, "stored record ignored");
        }
        fact.ok().flatten()
    }

    fn fact(&self, entry: &Entry) -> Result<Option<Fact>, evenkeel_model::RecordError> {
        let Entry { key, value, .. } = entry;
        if let Some(shard) = Keys::shard_under(&self.keys.assignments(), key) {
            let record: AssignmentRecord = decode(key, value)?;
            let assignment: Arc<Assignment> = Arc::new(record.assignment);
            return Ok(Some(Fact::Assignment(shard, Some(assignment))));
        }
        if let Some(broker) = broker_under(&self.keys.registrations(), key) {
            let registration: Registration = decode(key, value)?;
            if broker == self.me {
                let registration = Box::new(registration.clone());
                let revision = entry.mod_revision;
                self.own.send_replace(OwnKey::Present { registration, revision });
            }
            return Ok(Some(Fact::Broker(broker, Some(Box::new(registration)))));
        }
        let elected = |record: LeaderRecord| Elected { record, token: entry.create_revision };
        if *key == self.keys.load_manager_leader() {
            return Ok(Some(Fact::LoadManager(Some(elected(decode(key, value)?)))));
        }
        if *key == self.keys.migrator_leader() {
            return Ok(Some(Fact::Migrator(Some(elected(decode(key, value)?)))));
        }
        Ok(None)
    }

    fn forgotten(&self, key: &str, revision: Revision) -> Option<Fact> {
        if let Some(shard) = Keys::shard_under(&self.keys.assignments(), key) {
            return Some(Fact::Assignment(shard, None));
        }
        if let Some(broker) = broker_under(&self.keys.registrations(), key) {
            if broker == self.me {
                self.own.send_replace(OwnKey::Gone(revision));
            }
            return Some(Fact::Broker(broker, None));
        }
        if key == self.keys.load_manager_leader() {
            return Some(Fact::LoadManager(None));
        }
        (key == self.keys.migrator_leader()).then_some(Fact::Migrator(None))
    }
}

/// Shards that act on what they are told; one shard on one thing after the other.
#[derive(Default)]
struct Applying {
    tasks: JoinSet<()>,
    shards: BTreeSet<ShardKey>,
}

impl Applying {
    async fn begin(&mut self, host: &Arc<dyn ShardHost>, told: BrokerShard) {
        let shard = told.assignment.shard.clone();
        if self.shards.contains(&shard) || self.shards.len() >= APPLYING_MAX {
            self.finish().await;
        }
        self.shards.insert(shard);
        let host = host.clone();
        self.tasks.spawn(async move { host.apply(told).await });
    }

    async fn finish(&mut self) {
        self.shards.clear();
        std::mem::take(&mut self.tasks).join_all().await;
    }
}

fn broker_under(prefix: &str, key: &str) -> Option<BrokerId> {
    key.strip_prefix(prefix)?.parse().ok()
}
