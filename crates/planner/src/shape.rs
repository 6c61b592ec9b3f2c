//! Who holds a shard, on ordinals.

use crate::world::{NONE, Ord32};

/// Who holds a shard, on ordinals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) leader: Ord32,
    pub(crate) followers: Vec<Ord32>,
    pub(crate) successor: Ord32,
    pub(crate) joining: Ord32,
    pub(crate) leaving: Ord32,
}

impl Shape {
    pub(crate) fn voters(&self) -> impl Iterator<Item = Ord32> + Clone + '_ {
        Some(self.leader).filter(|b| *b != NONE).into_iter().chain(self.followers.iter().copied())
    }

    /// Every broker named, once.
    pub(crate) fn members(&self) -> impl Iterator<Item = Ord32> + '_ {
        let successor = Some(self.successor).filter(|b| *b != NONE && !self.votes(*b));
        let joining =
            Some(self.joining).filter(|b| *b != NONE && !self.votes(*b) && *b != self.successor);
        self.voters().chain(successor).chain(joining)
    }

    pub(crate) fn votes(&self, broker: Ord32) -> bool {
        broker == self.leader || self.followers.contains(&broker)
    }

    pub(crate) fn names(&self, broker: Ord32) -> bool {
        self.votes(broker) || broker == self.successor || broker == self.joining
    }

    pub(crate) fn eventual_leader(&self) -> Ord32 {
        if self.successor == NONE { self.leader } else { self.successor }
    }
}
