//! When a replica's damaged bytes make way for a new copy.
//!
//! **Invariant:** what the shard may need is never erased: neither what this broker voted with and
//! promised, unless it was told since that it is to get a copy, nor what a hand-over waits for.

use evenkeel_model::{Assignment, BrokerShard, Role, ShardState};
use evenkeel_shard_log::Term;

/// Whether others hold the shard and this broker is only to get a copy of it, by a duty that is not
/// overtaken. `held` and `promised` are what its replica knows.
pub(super) fn may_make_way(told: &BrokerShard, held: Option<&Assignment>, promised: Term) -> bool {
    let next = &told.assignment;
    let learns = |role: Option<Role>| matches!(role, Some(Role::Successor | Role::Joining));
    // The leader of a fenced shard may have drained because this very log was whole.
    let is_copied_to =
        learns(Some(told.role)) && next.leader.is_some() && next.state != ShardState::Draining;
    let is_new = held.is_none_or(|held| {
        // Each of these roles is one broker's.
        let me = next.members().into_iter().find(|(_, role)| *role == told.role).map(|(b, _)| b);
        held.generation < next.generation
            || held.generation == next.generation && learns(me.and_then(|me| held.role_of(me)))
    });
    is_copied_to && is_new && promised.generation <= next.generation
}

#[cfg(test)]
mod tests {
    use evenkeel_model::{BrokerId, RECORD_VERSION};

    use super::*;

    fn id(name: &str) -> BrokerId {
        name.parse().unwrap()
    }

    fn assignment(generation: u64, followers: &[&str], joining: Option<&str>) -> Assignment {
        let followers = followers.iter().map(|f| id(f)).collect();
        let mut a = Assignment::new("stream/d/s/0".parse().unwrap(), id("a"), followers);
        (a.generation, a.joining) = (generation, joining.map(id));
        a
    }

    fn joins(assignment: Assignment) -> BrokerShard {
        BrokerShard { v: RECORD_VERSION, role: Role::Joining, assignment, token: 1 }
    }

    #[test]
    fn only_for_a_copy_that_is_ordered_after_all_that_is_known() {
        let told = joins(assignment(5, &["b"], Some("c")));
        let voted = assignment(4, &["c"], None);
        assert!(may_make_way(&told, None, Term::default()));
        assert!(may_make_way(&told, Some(&voted), Term::new(4, 1)));
        assert!(may_make_way(&told, Some(&told.assignment), Term::default()));
        assert!(!may_make_way(&told, Some(&voted), Term::new(6, 1)), "a later term was promised");
        for generation in [5, 6] {
            let votes = assignment(generation, &["c"], None);
            assert!(!may_make_way(&told, Some(&votes), Term::new(4, 1)), "it votes");
        }
        let learns = assignment(6, &["b"], Some("c"));
        assert!(!may_make_way(&told, Some(&learns), Term::default()), "the duty is overtaken");
        let mut follows = joins(assignment(5, &["c"], None));
        follows.role = Role::Follower;
        assert!(!may_make_way(&follows, None, Term::default()), "it counts");
        let mut nobody = told.clone();
        nobody.assignment.leader = None;
        assert!(!may_make_way(&nobody, None, Term::default()), "it may be the last copy");
        let mut fenced = assignment(5, &["b"], None);
        (fenced.successor, fenced.state) = (Some(id("c")), ShardState::Draining);
        let fenced =
            BrokerShard { v: RECORD_VERSION, role: Role::Successor, assignment: fenced, token: 1 };
        assert!(!may_make_way(&fenced, None, Term::default()), "the hand-over waits for it");
    }
}
