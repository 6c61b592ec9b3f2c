//! Small leftovers that a pass clears away: markers of placed shards, pauses that have run out.

use evenkeel_coordination::{Guard, Guarded, Revision, Write};
use evenkeel_model::Millis;

use crate::cluster::Leading;
use crate::records::Records;

/// At most so many in one pass; the rest waits for the next.
const CHORES_MAX: usize = 64;

/// One key to delete, if it has not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chore {
    /// The key.
    pub(crate) key: String,
    /// The revision at which it was found superfluous.
    pub(crate) revision: Revision,
}

/// What can be cleared away now.
pub(crate) fn chores(records: &Records, now_ms: Millis) -> Vec<Chore> {
    let markers = records.markers.iter().filter(|m| {
        records.assignments.get(&m.id).is_some_and(|a| a.value.assignment.leader.is_some())
    });
    let markers = markers.map(|m| Chore { key: records.keys.marker(&m.id), revision: m.revision });
    let pause = records.pause.get(&()).filter(|p| p.value.until_ms.is_some_and(|u| u <= now_ms));
    let pause = pause.map(|p| Chore { key: records.keys.pause(), revision: p.revision });
    pause.into_iter().chain(markers).take(CHORES_MAX).collect()
}

/// The transaction that clears one away.
pub(crate) fn txn(leading: &Leading, chore: Chore) -> Guarded {
    Guarded {
        token: Some(leading.token.clone()),
        guards: vec![Guard::ModRevision { key: chore.key.clone(), revision: chore.revision }],
        writes: vec![Write::Delete { key: chore.key }],
    }
}
