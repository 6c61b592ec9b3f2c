//! How many replicas of a set it takes.

/// Members that must hold a record before it is committed.
pub fn commit_quorum(members: usize) -> usize {
    members / 2 + 1
}

/// Members whose promise a new leader needs: as many as meet every commit quorum. Of two members
/// one is enough, because every commit needed both.
pub fn open_quorum(members: usize) -> usize {
    members - members / 2
}

/// The offset up to which a commit quorum of the set holds the log; 0 for an empty set.
pub fn held_by_quorum(mut ends: Vec<u64>) -> u64 {
    if ends.is_empty() {
        return 0;
    }
    ends.sort_unstable_by(|a, b| b.cmp(a));
    ends[commit_quorum(ends.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_open_quorum_meets_every_commit_quorum() {
        for members in 1..=15 {
            assert_eq!(open_quorum(members) + commit_quorum(members), members + 1);
        }
        assert_eq!((open_quorum(2), commit_quorum(2)), (1, 2));
        assert_eq!(held_by_quorum(vec![3, 9, 5]), 5);
        assert_eq!(held_by_quorum(vec![3, 9]), 3);
    }
}
