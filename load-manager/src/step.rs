//! One step as one transaction: the assignment, what each broker is told, the marker it removes and
//! the history it makes, under the proof of leadership and of the revision it was planned from.

use std::collections::BTreeSet;

use evenkeel_coordination::{Guard, Guarded, Token, Write};
use evenkeel_model::{
    Assignment, AssignmentRecord, BrokerId, BrokerShard, HistoryEntry, Millis, RECORD_VERSION,
    ShardKey,
};
use evenkeel_planner as planner;
use serde::Serialize;

use crate::records::Records;

/// Under what authority, and when, a step is written.
#[derive(Debug, Clone)]
pub(crate) struct Authority {
    /// The leadership that is proved.
    pub(crate) token: Token,
    /// Now, on the load manager's clock.
    pub(crate) now_ms: Millis,
}

/// A step that is ready to be committed.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// What it is about.
    pub(crate) shard: ShardKey,
    /// The step as it was planned.
    pub(crate) write: planner::Write,
    /// The assignment before, if there was one.
    pub(crate) before: Option<Assignment>,
    /// Names the write.
    pub(crate) operation: String,
    /// The transaction.
    pub(crate) txn: Guarded,
}

impl Prepared {
    /// What it adds to a transaction, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let write = |w: &Write| match w {
            Write::Put { key, value, .. } => key.len() + value.len(),
            Write::Delete { key } => key.len(),
        };
        self.txn.writes.iter().map(write).sum()
    }

    /// Whether a copy or a hand-over begins with it, and so takes a slot.
    pub(crate) fn starts_a_move(&self) -> bool {
        let moving = |a: &Assignment| a.successor.is_some() || a.joining.is_some();
        moving(&self.write.next) && !self.before.as_ref().is_some_and(moving)
    }
}

/// A finished move as it is stored.
#[derive(Serialize)]
struct HistoryRecord<'a> {
    v: u32,
    #[serde(flatten)]
    entry: &'a HistoryEntry,
    step: &'static str,
    generation: u64,
    detail: &'a str,
}

/// Makes the transaction of `write`, guarded by the records it was planned from.
pub(crate) fn prepare(
    records: &Records,
    shard: &ShardKey,
    write: planner::Write,
    authority: &Authority,
    operation: String,
) -> Prepared {
    let keys = &records.keys;
    let before = records.assignments.get(shard).map(|s| s.value.assignment.clone());
    let token = authority.token.create_revision;
    let record = AssignmentRecord {
        v: RECORD_VERSION,
        assignment: write.next.clone(),
        token,
        operation: operation.clone(),
        written_at_ms: authority.now_ms,
    };
    let key = keys.assignment(shard);
    let guard =
        Guard::ModRevision { key: key.clone(), revision: records.assignments.revision_of(shard) };
    let mut writes = vec![put(key, evenkeel_model::encode(&record))];
    let mut named: BTreeSet<&BrokerId> = BTreeSet::new();
    for (broker, role) in write.next.members() {
        named.insert(broker);
        let told = BrokerShard { v: RECORD_VERSION, role, assignment: write.next.clone(), token };
        writes.push(put(keys.broker_shard(broker, shard), evenkeel_model::encode(&told)));
    }
    let dropped: BTreeSet<&BrokerId> = before
        .iter()
        .flat_map(Assignment::members)
        .map(|(broker, _)| broker)
        .filter(|broker| !named.contains(broker))
        .collect();
    writes.extend(
        dropped.into_iter().map(|broker| Write::Delete { key: keys.broker_shard(broker, shard) }),
    );
    if records.markers.contains(shard) {
        writes.push(Write::Delete { key: keys.marker(shard) });
    }
    if let Some(entry) = &write.history {
        let record = HistoryRecord {
            v: RECORD_VERSION,
            entry,
            step: write.step.as_str(),
            generation: write.next.generation,
            detail: &write.detail,
        };
        let key = keys.history_entry(entry.at_ms, shard);
        writes.push(put(key, evenkeel_model::encode(&record)));
    }
    let txn = Guarded { token: Some(authority.token.clone()), guards: vec![guard], writes };
    Prepared { shard: shard.clone(), write, before, operation, txn }
}

fn put(key: String, value: Vec<u8>) -> Write {
    Write::Put { key, value, lease: None }
}
