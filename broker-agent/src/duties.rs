//! What this broker is told about shards, and what of it is acted on.
//!
//! **Invariant:** for each shard the generation acted on only rises, and one generation has one
//! content.

use std::collections::BTreeMap;

use evenkeel_model::{Assignment, BrokerId, BrokerShard, Generation, Role, ShardKey};

/// Why a record is not acted on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A newer one was seen.
    #[error("generation {given} is older than {seen}, which was seen before")]
    Older {
        /// The record's.
        given: Generation,
        /// The newest seen.
        seen: Generation,
    },
    /// The generation was seen with other content.
    #[error("generation {0} was seen before with other content")]
    Changed(Generation),
    /// The record is not about the shard that its key names, or gives this broker a role that the
    /// assignment does not.
    #[error("the record does not fit its key: {0}")]
    Misfiled(String),
    /// The value is no such record.
    #[error("{0}")]
    Unreadable(String),
}

impl Refused {
    /// The metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Older { .. } => "older",
            Self::Changed(_) => "changed",
            Self::Misfiled(_) => "misfiled",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

/// What was seen of one shard, kept after it is held no more.
#[derive(Debug, Clone)]
struct Seen {
    assignment: Assignment,
    role: Role,
    held: bool,
}

/// What this broker holds, and the newest of what it was ever told since it started.
#[derive(Debug)]
pub struct Duties {
    me: BrokerId,
    seen: BTreeMap<ShardKey, Seen>,
}

impl Duties {
    /// Nothing yet.
    pub fn new(me: BrokerId) -> Self {
        Self { me, seen: BTreeMap::new() }
    }

    /// Judges a record found under a shard's key. `Ok(true)`: act on it; `Ok(false)`: it is what is
    /// acted on already.
    pub fn admit(&mut self, shard: &ShardKey, told: &BrokerShard) -> Result<bool, Refused> {
        let given = &told.assignment;
        if given.shard != *shard {
            return Err(Refused::Misfiled(format!("it is about {}", given.shard)));
        }
        if given.role_of(&self.me) != Some(told.role) {
            let detail = format!("{} is no {} in it", self.me, told.role.as_str());
            return Err(Refused::Misfiled(detail));
        }
        if let Some(seen) = self.seen.get_mut(shard) {
            let generation = seen.assignment.generation;
            if given.generation < generation {
                return Err(Refused::Older { given: given.generation, seen: generation });
            }
            if given.generation == generation {
                if *given != seen.assignment || told.role != seen.role {
                    return Err(Refused::Changed(generation));
                }
                return Ok(!std::mem::replace(&mut seen.held, true));
            }
        }
        let seen = Seen { assignment: given.clone(), role: told.role, held: true };
        self.seen.insert(shard.clone(), seen);
        Ok(true)
    }

    /// The shard's key is gone. Whether it was held.
    pub fn withdraw(&mut self, shard: &ShardKey) -> bool {
        self.seen.get_mut(shard).is_some_and(|seen| std::mem::replace(&mut seen.held, false))
    }

    /// Everything held, with the role, in key order.
    pub fn held(&self) -> impl Iterator<Item = (&ShardKey, Role)> {
        self.seen.iter().filter(|(_, seen)| seen.held).map(|(shard, seen)| (shard, seen.role))
    }

    /// Whether a shard is held.
    pub fn holds(&self, shard: &ShardKey) -> bool {
        self.seen.get(shard).is_some_and(|seen| seen.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::ShardState;

    fn id(s: &str) -> BrokerId {
        s.parse().unwrap()
    }

    fn shard() -> ShardKey {
        "stream/d/s/0".parse().unwrap()
    }

    fn told(generation: Generation) -> BrokerShard {
        let mut assignment = Assignment::new(shard(), id("b1"), vec![id("b2")]);
        assignment.generation = generation;
        BrokerShard { v: 1, role: Role::Leader, assignment, token: 7 }
    }

    #[test]
    fn generations_rise_and_one_has_one_content() {
        let mut duties = Duties::new(id("b1"));
        assert_eq!(duties.admit(&shard(), &told(4)), Ok(true));
        assert_eq!(duties.admit(&shard(), &told(4)), Ok(false), "seen again after a reconnect");
        let older = Refused::Older { given: 3, seen: 4 };
        assert_eq!(duties.admit(&shard(), &told(3)), Err(older));
        let mut other = told(4);
        other.assignment.state = ShardState::Draining;
        assert_eq!(duties.admit(&shard(), &other), Err(Refused::Changed(4)));
        other.assignment.generation = 5;
        assert_eq!(duties.admit(&shard(), &other), Ok(true));
    }

    #[test]
    fn what_was_withdrawn_does_not_come_back_older() {
        let mut duties = Duties::new(id("b1"));
        assert_eq!(duties.admit(&shard(), &told(4)), Ok(true));
        assert!(duties.withdraw(&shard()));
        assert!(!duties.withdraw(&shard()));
        assert!(!duties.holds(&shard()));
        assert!(duties.admit(&shard(), &told(3)).is_err());
        assert_eq!(duties.admit(&shard(), &told(4)), Ok(true), "the key was read again");
        assert!(duties.withdraw(&shard()));
        assert_eq!(duties.admit(&shard(), &told(5)), Ok(true));
        let held: Vec<_> = duties.held().collect();
        assert_eq!(held, [(&shard(), Role::Leader)]);
    }

    #[test]
    fn a_record_that_does_not_fit_is_refused() {
        let mut duties = Duties::new(id("b9"));
        let error = duties.admit(&shard(), &told(4)).unwrap_err();
        assert_eq!(error.to_string(), "the record does not fit its key: b9 is no leader in it");
        let mut duties = Duties::new(id("b1"));
        let error = duties.admit(&"stream/d/s/1".parse().unwrap(), &told(4)).unwrap_err();
        assert_eq!(error.to_string(), "the record does not fit its key: it is about stream/d/s/0");
    }
}
