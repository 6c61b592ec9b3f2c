//! Since when something waits, and what would have to change.

use evenkeel_model::{
    Assignment, BrokerId, CopyPauseRecord, Lifecycle, Millis, ShardKey, ShardState, Snapshot,
};

use crate::decision::{Decision, RefusedBecause, Waiting, WaitingOn};

/// Flights that are named; of more, the number is told.
const NAMED: usize = 3;

/// What a shard waits for, or what stands in its way.
pub(super) struct Remedy {
    /// Since when, if the snapshot tells.
    pub(super) since_ms: Option<Millis>,
    /// What would have to change.
    pub(super) change: String,
}

/// Remedies for the shards of one snapshot.
pub(super) struct Remedies<'a> {
    s: &'a Snapshot,
    /// Who has the slots.
    flights: String,
}

impl<'a> Remedies<'a> {
    pub(super) fn new(s: &'a Snapshot) -> Self {
        Self { s, flights: flights(s) }
    }

    /// Nothing has to change for a write.
    pub(super) fn of(&self, shard: &ShardKey, decision: &Decision) -> Option<Remedy> {
        let s = self.s;
        let about =
            About { s, flights: &self.flights, assignment: s.assignments.get(shard), shard };
        let (since_ms, change) = match decision {
            Decision::Write(_) => return None,
            Decision::Wait(waiting) => (about.since(waiting), about.wait(waiting)),
            Decision::Refuse(refusal) => (about.since_leaving(), about.refusal(refusal.because)),
        };
        Some(Remedy { since_ms, change })
    }
}

fn flights(s: &Snapshot) -> String {
    let (mut names, mut count) = (Vec::new(), 0);
    for assignment in s.assignments.values().filter(|a| a.is_moving()) {
        count += 1;
        if names.len() < NAMED {
            names.push(assignment.shard.to_string());
        }
    }
    let listed = names.join(", ");
    match count {
        0 => "the next pass gives what there is to others".to_owned(),
        1 => format!("{listed} is under way"),
        n if n > NAMED => format!("{listed} and {} more are under way", n - NAMED),
        _ => format!("{listed} are under way"),
    }
}

struct About<'a> {
    s: &'a Snapshot,
    flights: &'a str,
    shard: &'a ShardKey,
    assignment: Option<&'a Assignment>,
}

impl About<'_> {
    /// When the state began that the shard waits in.
    fn since(&self, waiting: &Waiting) -> Option<Millis> {
        let record = self.assignment.and_then(|a| a.move_.as_ref());
        match waiting.on {
            WaitingOn::CopyBehind if self.is_fenced() => record.and_then(|m| m.fenced_at_ms),
            WaitingOn::CopyBehind => record.map(|m| m.started_at_ms).or(self.since_leaving()),
            WaitingOn::LeaderStopping => record.map(|m| m.fenced_at_ms.unwrap_or(m.started_at_ms)),
            WaitingOn::Settling => Some(self.s.first_registered_ms),
            WaitingOn::Cooldown => self.last_move(),
            WaitingOn::RestoreDelay | WaitingOn::MassLoss | WaitingOn::OwnerUnavailable => {
                self.lost().iter().filter_map(|b| self.changed(b)).max()
            }
            WaitingOn::CopyPaused => waiting.pause.as_ref().map(|p| p.at_ms),
            // Of slots and of a pause, no record tells when the wait began; of a drain one does.
            WaitingOn::MoveSlots | WaitingOn::BrokerSlots | WaitingOn::Paused => {
                self.since_leaving()
            }
        }
    }

    /// When the last move of the shard ended.
    fn last_move(&self) -> Option<Millis> {
        self.s.history.iter().filter(|h| h.shard == *self.shard).map(|h| h.at_ms).max()
    }

    fn changed(&self, broker: &BrokerId) -> Option<Millis> {
        self.s.brokers.get(broker).map(|b| b.since_ms)
    }

    /// When the first of the shard's brokers began to leave.
    fn since_leaving(&self) -> Option<Millis> {
        let leaves = |b: &&BrokerId| {
            self.s.brokers.get(*b).is_some_and(|view| view.lifecycle != Lifecycle::Live)
        };
        let voters = self.assignment.into_iter().flat_map(Assignment::voters);
        voters.filter(leaves).filter_map(|b| self.changed(b)).min()
    }

    /// The voters that do not serve.
    fn lost(&self) -> Vec<&BrokerId> {
        let lost = |b: &&BrokerId| !self.s.brokers.get(*b).is_some_and(|view| view.is_serving());
        self.assignment.into_iter().flat_map(Assignment::voters).filter(lost).collect()
    }

    fn lost_names(&self) -> String {
        let names: Vec<&str> = self.lost().into_iter().map(BrokerId::as_str).collect();
        if names.is_empty() { "the lost broker".to_owned() } else { names.join(" and ") }
    }

    fn is_fenced(&self) -> bool {
        self.assignment.is_some_and(|a| a.state == ShardState::Draining)
    }

    fn wait(&self, waiting: &Waiting) -> String {
        let policy = &self.s.policy;
        match waiting.on {
            WaitingOn::CopyBehind if self.is_fenced() => format!(
                "the destination reports that it holds everything, or {}",
                after(policy.fence_timeout_ms, "the fence is given up", "it halts or is lost")
            ),
            WaitingOn::CopyBehind => format!(
                "the copy comes within {} records of its leader (move_fence_max_lag_records), or \
                 {}",
                policy.move_fence_max_lag_records,
                after(policy.move_timeout_ms, "the move is given up", "it is cancelled")
            ),
            WaitingOn::LeaderStopping => format!(
                "the fenced leader reports that it drained, or {}",
                after(policy.fence_timeout_ms, "the fence is given up", "its broker is lost")
            ),
            WaitingOn::MoveSlots if policy.moves_max_concurrent == 0 => {
                "moves_max_concurrent is raised from 0, which holds every move".to_owned()
            }
            WaitingOn::MoveSlots => format!(
                "a move or a repair ends ({}), or moves_max_concurrent ({}) or \
                 repairs_max_concurrent ({}) is raised",
                self.flights, policy.moves_max_concurrent, policy.repairs_max_concurrent
            ),
            WaitingOn::BrokerSlots => format!(
                "a copy at the broker ends ({}), or moves_max_per_node ({}) is raised",
                self.flights,
                policy.moves_max_per_node.map_or("none".to_owned(), |max| max.to_string())
            ),
            WaitingOn::Paused => "an operator resumes placement".to_owned(),
            WaitingOn::CopyPaused => match &waiting.pause {
                Some(CopyPauseRecord { scope, until_ms: None, .. }) => {
                    format!("an operator resumes copies of {scope}")
                }
                _ => "the pause ends, or an operator resumes copies".to_owned(),
            },
            WaitingOn::Settling => format!(
                "{} have passed since the first broker registered (settle_ms)",
                super::span(policy.settle_ms)
            ),
            WaitingOn::Cooldown => "its rest is over; rests end by themselves".to_owned(),
            WaitingOn::RestoreDelay => {
                format!("{} comes back, or {}", self.lost_names(), {
                    after(policy.restore_after_ms, "it is replaced", "restore_after_ms is set")
                })
            }
            WaitingOn::MassLoss => format!(
                "{} comes back, enough others do, or an operator releases the guard",
                self.lost_names()
            ),
            WaitingOn::OwnerUnavailable => format!(
                "{} comes back: nobody else ever held the shard; an operator can only give it up",
                self.lost_names()
            ),
        }
    }

    fn refusal(&self, because: RefusedBecause) -> String {
        match because {
            RefusedBecause::NoLiveBroker => {
                "a broker joins, or returns, that is live and does not hold the shard".to_owned()
            }
            RefusedBecause::AllFull => {
                "a broker joins, or max_shards of a live one that does not hold the shard is raised, \
                 or a full disk gets room"
                    .to_owned()
            }
            RefusedBecause::NoCaughtUpReplica => format!(
                "{} comes back with everything, or an operator forces one of the replicas and is \
                 told what may be lost",
                self.lost_names()
            ),
            RefusedBecause::NoBrokerInRegion => {
                let stream = self.s.streams.get(&self.shard.stream);
                let region = stream.and_then(|s| s.region.as_deref()).unwrap_or("none");
                format!("a live broker of region {region} joins, or the stream's region is changed")
            }
        }
    }
}

/// What ends a wait after so long, or else what does.
fn after(ms: Millis, then: &str, never: &str) -> String {
    if ms > 0 { format!("{then} after {}", super::span(ms)) } else { never.to_owned() }
}
