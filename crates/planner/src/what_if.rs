//! What a change of the cluster would do, on paper: every pass until rest, the bytes that it copies,
//! how even and how spread out the cluster is before and after, and how long it takes at least.

mod bounds;
mod change;
mod course;
mod outlook;

use evenkeel_model::{BrokerId, Lifecycle, Snapshot};
use serde::Serialize;

pub use bounds::Duration;
pub use change::{Change, ChangeError, Traits};
pub use course::Movement;
pub use outlook::{Outlook, Unresolved};

use course::Course;

/// How far to look, and how fast bytes go.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Passes planned at most.
    pub max_passes: u32,
    /// Bytes per second into and out of each broker; its link times [`START_SHARE`] if not given.
    pub rate_bytes_per_second: Option<u64>,
}

/// The share of its link that a broker's copies start with.
pub const START_SHARE: f64 = 0.2;

/// Counts of one course to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Effort {
    /// Cut-overs that change the leader.
    pub leader_moves: u32,
    /// Copies of a shard to another broker.
    pub copies: u32,
    /// Their bytes, as far as sizes are known.
    pub bytes_copied: u64,
    /// Copies of shards whose size no leader reports.
    pub copies_of_unknown_size: u32,
    /// First placements.
    pub placed: u32,
    /// Failovers.
    pub promoted: u32,
    /// Whether it comes to rest.
    pub stable: bool,
}

/// A broker that is to be emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Emptied {
    /// The broker.
    pub broker: BrokerId,
    /// Shards that name it at the end, in any role.
    pub named_by: u32,
    /// Whether none does.
    pub safe_to_stop: bool,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// What was changed, in words.
    pub changes: Vec<String>,
    /// Passes to rest, or to the limit.
    pub passes: u32,
    /// What it takes.
    #[serde(flatten)]
    pub effort: Effort,
    /// What would happen anyway, nothing changed.
    pub without: Effort,
    /// The cluster as it is.
    pub before: Outlook,
    /// The cluster at rest.
    pub after: Outlook,
    /// Shards that span fewer zones at the end.
    pub narrowed: u32,
    /// Brokers that the changes take away.
    pub emptied: Vec<Emptied>,
    /// What still waits or is refused at the end.
    pub unresolved: Vec<Unresolved>,
    /// How long it takes.
    pub time: Duration,
    /// Every write on the way.
    pub steps: Vec<Movement>,
    /// The snapshot at rest.
    #[serde(skip)]
    pub snapshot: Snapshot,
}

/// Applies `changes` in order to `snapshot` and plans until rest.
pub fn what_if(
    snapshot: &Snapshot,
    changes: &[Change],
    terms: Terms,
) -> Result<WhatIf, ChangeError> {
    let mut changed = snapshot.clone();
    for change in changes {
        change.apply(&mut changed)?;
    }
    let without = Course::run(snapshot.clone(), terms.max_passes);
    let mut course = Course::run(changed, terms.max_passes);
    let emptied = emptied(&course.snapshot, changes);
    // Before anybody is forgotten: the links of those that leave are bounds, too.
    let time = Duration::of(&course.steps, &course.snapshot, course.delays_ms, terms);
    for change in changes {
        if let Change::Remove(broker) = change
            && emptied.iter().any(|e| e.broker == *broker && e.safe_to_stop)
        {
            course.snapshot.brokers.remove(broker);
        }
    }
    Ok(WhatIf {
        changes: changes.iter().map(ToString::to_string).collect(),
        passes: course.passes,
        effort: course.effort(),
        without: without.effort(),
        before: Outlook::of(snapshot),
        after: Outlook::of(&course.snapshot),
        narrowed: outlook::narrowed(snapshot, &course.snapshot),
        emptied,
        unresolved: course.unresolved,
        time,
        steps: course.steps,
        snapshot: course.snapshot,
    })
}

fn emptied(at_rest: &Snapshot, changes: &[Change]) -> Vec<Emptied> {
    let leaves = |change: &Change| match change {
        Change::Remove(broker) | Change::Drain(broker) | Change::Fail(broker) => {
            Some(broker.clone())
        }
        _ => None,
    };
    let of = |broker: BrokerId| {
        let names = at_rest.assignments.values().filter(|a| a.role_of(&broker).is_some());
        let named_by = u32::try_from(names.count()).unwrap_or(u32::MAX);
        Emptied { broker, named_by, safe_to_stop: named_by == 0 }
    };
    changes.iter().filter_map(leaves).map(of).collect()
}

/// Whether a broker still answers.
fn answers(lifecycle: Lifecycle) -> bool {
    matches!(lifecycle, Lifecycle::Live | Lifecycle::Draining)
}
