//! Who leads each shard and where every broker is, as this broker last saw it.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use evenkeel_model::{Assignment, BrokerId, LeaderRecord, Registration, ShardKey, StreamKey};
use tokio::sync::watch;

/// An elected instance: its record, and its leadership token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elected {
    /// What it wrote under its leader key.
    pub record: LeaderRecord,
    /// The create revision of that key.
    pub token: i64,
}

#[derive(Debug, Default)]
struct Table {
    assignments: BTreeMap<ShardKey, Arc<Assignment>>,
    brokers: BTreeMap<BrokerId, Registration>,
    load_manager: Option<Elected>,
    migrator: Option<Elected>,
}

impl Table {
    fn take_in(&mut self, facts: impl IntoIterator<Item = Fact>) {
        for fact in facts {
            match fact {
                Fact::Assignment(shard, Some(a)) => drop(self.assignments.insert(shard, a)),
                Fact::Assignment(shard, None) => drop(self.assignments.remove(&shard)),
                Fact::Broker(broker, Some(r)) => drop(self.brokers.insert(broker, *r)),
                Fact::Broker(broker, None) => drop(self.brokers.remove(&broker)),
                Fact::LoadManager(elected) => self.load_manager = elected,
                Fact::Migrator(elected) => self.migrator = elected,
            }
        }
    }
}

/// One fact that changed.
#[derive(Debug, Clone)]
pub enum Fact {
    /// A shard's assignment, or that it has none.
    Assignment(ShardKey, Option<Arc<Assignment>>),
    /// A broker's registration, or that it has none.
    Broker(BrokerId, Option<Box<Registration>>),
    /// The elected load manager.
    LoadManager(Option<Elected>),
    /// The elected migrator.
    Migrator(Option<Elected>),
}

/// Cheap to clone; all clones see one table.
#[derive(Debug, Clone)]
pub struct Routes {
    table: Arc<RwLock<Table>>,
    changes: Arc<watch::Sender<u64>>,
}

impl Default for Routes {
    fn default() -> Self {
        Self { table: Arc::default(), changes: Arc::new(watch::Sender::new(0)) }
    }
}

impl Routes {
    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(|e| e.into_inner())
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes in facts and wakes who waits for a change.
    pub fn learn(&self, facts: impl IntoIterator<Item = Fact>) {
        self.table_mut().take_in(facts);
        self.changes.send_modify(|count| *count += 1);
    }

    /// These are all the facts there are.
    pub fn replace(&self, facts: impl IntoIterator<Item = Fact>) {
        let mut table = Table::default();
        table.take_in(facts);
        *self.table_mut() = table;
        self.changes.send_modify(|count| *count += 1);
    }

    /// Counts the changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// A shard's stored assignment.
    pub fn assignment(&self, shard: &ShardKey) -> Option<Arc<Assignment>> {
        self.table().assignments.get(shard).cloned()
    }

    /// A registered broker's address.
    pub fn address_of(&self, broker: &BrokerId) -> Option<String> {
        self.table().brokers.get(broker).map(|r| r.address.clone())
    }

    /// Every shard of a stream, in order.
    pub fn stream(&self, stream: &StreamKey) -> Vec<Arc<Assignment>> {
        let table = self.table();
        let range = stream.shard(0)..=stream.shard(u32::MAX);
        table.assignments.range(range).map(|(_, a)| a.clone()).collect()
    }

    /// The elected load manager.
    pub fn load_manager(&self) -> Option<Elected> {
        self.table().load_manager.clone()
    }

    /// The elected migrator.
    pub fn migrator(&self) -> Option<Elected> {
        self.table().migrator.clone()
    }

    /// Whether a broker beside this one is registered and does not stop.
    pub fn has_others(&self, me: &BrokerId) -> bool {
        self.table().brokers.values().any(|other| other.broker != *me && !other.stopping)
    }

    /// How many shards a broker leads by the stored assignments.
    pub fn led_by(&self, broker: &BrokerId) -> usize {
        let leads = |a: &&Arc<Assignment>| a.leader.as_ref() == Some(broker);
        self.table().assignments.values().filter(leads).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_and_go_and_wake_the_waiting() {
        let routes = Routes::default();
        let mut changes = routes.changes();
        let broker: BrokerId = "b1".parse().unwrap();
        let placed = |shard: &str| {
            let shard: ShardKey = shard.parse().unwrap();
            let assignment = Assignment::new(shard.clone(), broker.clone(), Vec::new());
            Fact::Assignment(shard, Some(Arc::new(assignment)))
        };
        routes.learn(["stream/d/s/10", "stream/d/s/9", "stream/d/t/0", "cache/d/s/1"].map(placed));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();

        let stream: StreamKey = "stream/d/s".parse().unwrap();
        let numbers: Vec<u32> = routes.stream(&stream).iter().map(|a| a.shard.number).collect();
        assert_eq!(numbers, [9, 10]);
        assert_eq!(routes.led_by(&broker), 4);

        routes.learn([Fact::Assignment(stream.shard(9), None)]);
        assert!(routes.assignment(&stream.shard(9)).is_none());
        assert!(changes.has_changed().unwrap());
        assert_eq!(routes.address_of(&broker), None);

        routes.replace([placed("stream/d/s/3")]);
        assert_eq!(routes.led_by(&broker), 1);
    }
}
