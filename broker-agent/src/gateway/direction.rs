//! Where a publish goes, decided from what this broker knows at one moment.

use evenkeel_model::{Assignment, BrokerId, Phase, Role, ShardState};

use crate::host::ShardStatus;

/// Why a publish waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The shard is between two leaders.
    Moving,
    /// The leader does not serve yet, or is lost.
    Unavailable,
    /// Another broker sent it here, and as far as is known here this is not the leader. One of the
    /// two learns better soon.
    Stray,
}

/// Where a publish goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Direction {
    /// This broker serves it.
    Serve,
    /// To the leader.
    Forward {
        /// Who leads.
        leader: BrokerId,
        /// Where it is.
        address: String,
    },
    /// Nowhere yet.
    Hold(Waiting, &'static str),
    /// Nowhere, and waiting is of no use.
    Refuse(&'static str),
}

/// What is known about a shard at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// This broker.
    pub me: &'a BrokerId,
    /// The replica here, if there is one.
    pub local: Option<&'a ShardStatus>,
    /// The stored assignment.
    pub route: Option<&'a Assignment>,
    /// The address of the stored leader, if it is registered.
    pub address: Option<&'a str>,
}

/// Decides. `forwarded`: another broker sent it, so that it is not sent on again.
pub fn direct(known: Known<'_>, forwarded: bool) -> Direction {
    if let Some(local) = known.local.filter(|l| l.role == Role::Leader)
        && !superseded(known, local)
    {
        return by_phase(local.phase);
    }
    let Some(route) = known.route else {
        return Direction::Refuse("no assignment of the shard is known here");
    };
    if route.state == ShardState::Draining {
        return Direction::Hold(Waiting::Moving, "the shard is being handed over");
    }
    match &route.leader {
        None => Direction::Hold(Waiting::Unavailable, "the shard has lost its leader"),
        Some(leader) if leader == known.me => {
            Direction::Hold(Waiting::Unavailable, "this broker is to lead and does not serve yet")
        }
        Some(_) if forwarded => {
            Direction::Hold(Waiting::Stray, "this broker does not lead the shard")
        }
        Some(leader) => match known.address {
            Some(address) => {
                Direction::Forward { leader: leader.clone(), address: address.to_owned() }
            }
            None => Direction::Hold(Waiting::Unavailable, "the shard's leader is not registered"),
        },
    }
}

/// The stored assignment is newer than what the replica acts on, and another broker leads.
fn superseded(known: Known<'_>, local: &ShardStatus) -> bool {
    known.route.is_some_and(|route| {
        route.generation > local.assignment.generation && route.leader.as_ref() != Some(known.me)
    })
}

fn by_phase(phase: Phase) -> Direction {
    match phase {
        Phase::Serving => Direction::Serve,
        Phase::Fencing | Phase::Drained => {
            Direction::Hold(Waiting::Moving, "the shard is being handed over")
        }
        Phase::Halted => Direction::Hold(Waiting::Unavailable, "the shard's leader has halted"),
        Phase::Opening | Phase::Following | Phase::Copying => {
            Direction::Hold(Waiting::Unavailable, "the shard's leader does not serve yet")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn id(s: &str) -> BrokerId {
        s.parse().unwrap()
    }

    fn assignment(leader: &str, generation: u64) -> Assignment {
        let mut a = Assignment::new("stream/d/s/0".parse().unwrap(), id(leader), vec![id("f")]);
        a.generation = generation;
        a
    }

    fn local(assignment: &Assignment, role: Role, phase: Phase) -> ShardStatus {
        let assignment = Arc::new(assignment.clone());
        ShardStatus { role, assignment, phase, committed: 0, log_end: 0 }
    }

    fn known<'a>(
        me: &'a BrokerId,
        local: Option<&'a ShardStatus>,
        route: Option<&'a Assignment>,
    ) -> Known<'a> {
        Known { me, local, route, address: Some("h:1") }
    }

    #[test]
    fn a_serving_leader_serves_and_a_fenced_one_holds() {
        let (me, a) = (id("b1"), assignment("b1", 4));
        let at = |phase| direct(known(&me, Some(&local(&a, Role::Leader, phase)), Some(&a)), false);
        assert_eq!(at(Phase::Serving), Direction::Serve);
        for phase in [Phase::Fencing, Phase::Drained] {
            assert!(matches!(at(phase), Direction::Hold(Waiting::Moving, _)), "{phase:?}");
        }
        for phase in [Phase::Opening, Phase::Halted] {
            assert!(matches!(at(phase), Direction::Hold(Waiting::Unavailable, _)), "{phase:?}");
        }
    }

    #[test]
    fn another_broker_forwards_unless_the_shard_is_fenced_or_leaderless() {
        let me = id("b2");
        let mut a = assignment("b1", 4);
        let to_leader = Direction::Forward { leader: id("b1"), address: "h:1".to_owned() };
        assert_eq!(direct(known(&me, None, Some(&a)), false), to_leader);
        let follower = local(&a, Role::Follower, Phase::Following);
        assert_eq!(direct(known(&me, Some(&follower), Some(&a)), false), to_leader);

        let unregistered = Known { address: None, ..known(&me, None, Some(&a)) };
        assert!(matches!(direct(unregistered, false), Direction::Hold(Waiting::Unavailable, _)));
        a.state = ShardState::Draining;
        let fenced = direct(known(&me, None, Some(&a)), false);
        assert!(matches!(fenced, Direction::Hold(Waiting::Moving, _)));
        a.state = ShardState::Assigning;
        a.leader = None;
        let lost = direct(known(&me, None, Some(&a)), false);
        assert!(matches!(lost, Direction::Hold(Waiting::Unavailable, _)));
        assert!(matches!(direct(known(&me, None, None), false), Direction::Refuse(_)));
    }

    #[test]
    fn what_was_sent_on_is_not_sent_on_again() {
        let (me, a) = (id("b2"), assignment("b1", 4));
        let stray = direct(known(&me, None, Some(&a)), true);
        assert!(matches!(stray, Direction::Hold(Waiting::Stray, _)));
    }

    #[test]
    fn a_newer_stored_assignment_overrules_the_replica_here() {
        let me = id("b1");
        let (old, new) = (assignment("b1", 4), assignment("b2", 5));
        let serving = local(&old, Role::Leader, Phase::Serving);
        let direction = direct(known(&me, Some(&serving), Some(&new)), false);
        assert_eq!(direction, Direction::Forward { leader: id("b2"), address: "h:1".to_owned() });
        // The other way round the replica has heard first.
        let serving = local(&assignment("b1", 6), Role::Leader, Phase::Serving);
        assert_eq!(direct(known(&me, Some(&serving), Some(&new)), false), Direction::Serve);
    }
}
