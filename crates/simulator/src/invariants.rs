//! What must hold after every revision of the store, whatever is broken.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use evenkeel_embedded_etcd::Change;
use evenkeel_model::keys::Keys;
use evenkeel_model::{
    AssignmentRecord, BrokerId, BrokerShard, MoveReason, Phase, ReportRecord, ShardKey,
};

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// Virtual time.
    pub at_ms: i64,
    /// Revision of the store.
    pub revision: i64,
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms, revision {}: {}", self.at_ms, self.revision, self.what)
    }
}

/// Holds what the store holds, as far as the invariants speak of it.
#[derive(Debug, Default)]
pub struct Invariants {
    keys: Keys,
    moves_max_concurrent: usize,
    assignments: BTreeMap<ShardKey, AssignmentRecord>,
    told: BTreeMap<(BrokerId, ShardKey), u64>,
    /// Who was seen serving each generation.
    served: BTreeMap<(ShardKey, u64), BrokerId>,
    highest_token: i64,
    /// Whether whole transactions are seen, with what brokers are told in them.
    sees_transactions: bool,
}

impl Invariants {
    /// For a cluster whose policy allows so many moves at once.
    pub fn new(keys: Keys, moves_max_concurrent: u32) -> Self {
        let moves_max_concurrent = usize::try_from(moves_max_concurrent).unwrap_or(usize::MAX);
        Self { keys, moves_max_concurrent, sees_transactions: true, ..Self::default() }
    }

    /// For an observer that sees assignments and reports only, each key by itself.
    #[must_use]
    pub fn of_single_keys(mut self) -> Self {
        self.sees_transactions = false;
        self
    }

    /// Takes one revision's changes and says what they break.
    pub fn check(&mut self, at_ms: i64, changes: &[Change]) -> Vec<Breach> {
        let mut found = Vec::new();
        let mut touched = BTreeSet::new();
        for change in changes {
            let mut say = |what: String| {
                found.push(Breach { at_ms, revision: change.revision, what });
            };
            if change.key.starts_with(&self.keys.assignments()) {
                touched.extend(self.take_assignment(change, &mut say));
            } else if change.key.starts_with(&self.keys.reports()) {
                self.take_report(change, &mut say);
            } else {
                self.take_told(change);
            }
        }
        let revision = changes.first().map_or(0, |c| c.revision);
        for shard in touched.iter().filter(|_| self.sees_transactions) {
            if let Some(what) = self.untold(shard) {
                found.push(Breach { at_ms, revision, what });
            }
        }
        let moving = self.moves_in_flight();
        if !touched.is_empty() && moving.len() > self.moves_max_concurrent {
            let allowed = self.moves_max_concurrent;
            let what = format!("{} moves at once, {allowed} allowed: {moving:#?}", moving.len());
            found.push(Breach { at_ms, revision, what });
        }
        found
    }

    fn take_assignment(
        &mut self,
        change: &Change,
        say: &mut impl FnMut(String),
    ) -> Option<ShardKey> {
        let shard = Keys::shard_under(&self.keys.assignments(), &change.key)?;
        let Some(value) = &change.value else {
            self.assignments.remove(&shard);
            return Some(shard);
        };
        let record: AssignmentRecord = match evenkeel_model::decode(&change.key, value) {
            Ok(record) => record,
            Err(error) => {
                say(error.to_string());
                return None;
            }
        };
        let before = self.assignments.get(&shard).map_or(0, |r| r.assignment.generation);
        let generation = record.assignment.generation;
        if generation != before + 1 {
            say(format!("{shard}: generation {generation} follows {before}"));
        }
        if record.token < self.highest_token {
            say(format!("{shard}: written under token {}, older than one seen", record.token));
        }
        self.highest_token = self.highest_token.max(record.token);
        let named: Vec<_> = record.assignment.voters().collect();
        if named.iter().collect::<BTreeSet<_>>().len() != named.len() {
            say(format!("{shard}: a broker votes twice"));
        }
        self.assignments.insert(shard.clone(), record);
        Some(shard)
    }

    /// Never two brokers serving one generation.
    fn take_report(&mut self, change: &Change, say: &mut impl FnMut(String)) {
        let Some(value) = &change.value else { return };
        let record: ReportRecord = match evenkeel_model::decode(&change.key, value) {
            Ok(record) => record,
            Err(error) => return say(error.to_string()),
        };
        let report = record.report;
        if report.phase != Some(Phase::Serving) {
            return;
        }
        let at = (report.shard.clone(), report.generation);
        let first = self.served.entry(at).or_insert_with(|| report.broker.clone());
        if *first != report.broker {
            say(format!(
                "{}: {first} and {} serve generation {}",
                report.shard, report.broker, report.generation
            ));
        }
    }

    fn take_told(&mut self, change: &Change) {
        let prefix = format!("{}/brokers/", self.keys.root());
        let Some(named) = Keys::broker_and_shard_under(&prefix, &change.key) else { return };
        let told = change
            .value
            .as_deref()
            .and_then(|value| evenkeel_model::decode::<BrokerShard>(&change.key, value).ok());
        match told {
            Some(told) => self.told.insert(named, told.assignment.generation),
            None => self.told.remove(&named),
        };
    }

    /// Every member is told the same generation, in the same transaction.
    fn untold(&self, shard: &ShardKey) -> Option<String> {
        let assignment = &self.assignments.get(shard)?.assignment;
        let generation = assignment.generation;
        for (broker, _) in assignment.members() {
            let told = self.told.get(&(broker.clone(), shard.clone()));
            if told != Some(&generation) {
                return Some(format!("{shard}: {broker} is told {told:?}, not {generation}"));
            }
        }
        None
    }

    /// Moves of leaders and replacements of followers that an even cluster could do without. Lost
    /// replicas have a limit of their own, and small top-ups none.
    fn moves_in_flight(&self) -> Vec<String> {
        self.assignments
            .values()
            .map(|record| &record.assignment)
            .filter(|a| a.successor.is_some() || a.joining.is_some())
            .filter(|a| a.move_.as_ref().is_some_and(|m| m.reason != MoveReason::Restore))
            .map(|a| format!("{a:?}"))
            .collect()
    }

    /// What is not as it should be once everything has healed: shards without a full set of live
    /// voters, and moves still under way.
    pub fn unsettled(
        &self,
        shards: usize,
        replication_factor: usize,
        live: &BTreeSet<BrokerId>,
    ) -> Vec<String> {
        let mut left = Vec::new();
        if self.assignments.len() != shards {
            left.push(format!("{} of {shards} shards placed", self.assignments.len()));
        }
        for (shard, record) in &self.assignments {
            let a = &record.assignment;
            let voters = a.voters().filter(|b| live.contains(*b)).count();
            if voters != replication_factor || a.voters().count() != replication_factor {
                left.push(format!("{shard}: {voters} live voters"));
            }
            if a.is_moving() {
                left.push(format!("{shard}: still moving"));
            }
            let leader = a.leader.as_ref();
            let serving = self.served.get(&(shard.clone(), a.generation));
            if leader.is_none() || serving != leader {
                left.push(format!("{shard}: generation {} is not served", a.generation));
            }
        }
        left
    }

    /// Widest difference of leaders between two of the live brokers, in any one stream and in
    /// total.
    pub fn spread(&self, live: &BTreeSet<BrokerId>) -> (usize, usize) {
        let mut streams: BTreeMap<_, BTreeMap<&BrokerId, usize>> = BTreeMap::new();
        let mut totals: BTreeMap<&BrokerId, usize> = live.iter().map(|b| (b, 0)).collect();
        for record in self.assignments.values() {
            let a = &record.assignment;
            let counts = streams
                .entry(&a.shard.stream)
                .or_insert_with(|| live.iter().map(|b| (b, 0)).collect());
            if let Some(leader) = a.leader.as_ref() {
                *counts.entry(leader).or_default() += 1;
                *totals.entry(leader).or_default() += 1;
            }
        }
        let width = |counts: &BTreeMap<&BrokerId, usize>| {
            let most = counts.values().max().copied().unwrap_or(0);
            most - counts.values().min().copied().unwrap_or(0)
        };
        (streams.values().map(width).max().unwrap_or(0), width(&totals))
    }
}
