//! The assignment: the stored record of who holds a shard, the only truth about placement.

use serde::{Deserialize, Serialize};

use crate::{BrokerId, Generation, Millis, ShardKey, record_version};

/// Where a shard is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShardState {
    /// A leader is named and is not known to serve yet.
    Assigning,
    /// The leader serves.
    #[default]
    Active,
    /// The leader is fenced: it accepts nothing more, and the cut-over is next.
    Draining,
}

impl ShardState {
    /// The word used in records and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Assigning => "assigning",
            Self::Active => "active",
            Self::Draining => "draining",
        }
    }
}

/// Why a move was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveReason {
    /// The broker that holds the copy is draining.
    Drain,
    /// One stream's leaders were uneven.
    StreamBalance,
    /// The totals of leaders were uneven.
    TotalBalance,
    /// The load was uneven.
    Load,
    /// The shard spanned fewer zones than it could.
    Spread,
    /// An operator asked for it.
    Operator,
    /// A replica was lost or missing.
    Restore,
    /// The disk of the leader's broker was full.
    Disk,
}

impl MoveReason {
    /// The word used in records, metrics and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::StreamBalance => "stream_balance",
            Self::TotalBalance => "total_balance",
            Self::Load => "load",
            Self::Spread => "spread",
            Self::Operator => "operator",
            Self::Restore => "restore",
            Self::Disk => "disk",
        }
    }
}

/// A move in flight, or the trace of one that was given up (then no successor or joiner is set).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Why.
    pub reason: MoveReason,
    /// When it was staged, on the load manager's clock.
    pub started_at_ms: Millis,
    /// When its leader was fenced.
    #[serde(default)]
    pub fenced_at_ms: Option<Millis>,
    /// When the copy's position last rose.
    #[serde(default)]
    pub progress_at_ms: Option<Millis>,
    /// How often in a row this shard's move was given up.
    #[serde(default)]
    pub give_ups: u32,
    /// No earlier than this is another move of the shard tried.
    #[serde(default)]
    pub next_try_ms: Option<Millis>,
}

/// Who holds a shard, and what is under way for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The shard.
    pub shard: ShardKey,
    /// The broker that appends; none if it was lost.
    #[serde(default)]
    pub leader: Option<BrokerId>,
    /// The voting copies beside the leader.
    #[serde(default)]
    pub followers: Vec<BrokerId>,
    /// Version of this assignment.
    #[serde(default = "first_generation")]
    pub generation: Generation,
    /// Where it is in its life.
    #[serde(default)]
    pub state: ShardState,
    /// Destination of a leader move; no voter unless also a follower.
    #[serde(default)]
    pub successor: Option<BrokerId>,
    /// A follower being copied in; no voter.
    #[serde(default)]
    pub joining: Option<BrokerId>,
    /// The follower that the joiner replaces when it is seated.
    #[serde(default)]
    pub leaving: Option<BrokerId>,
    /// The move in flight, or the trace of one that was given up.
    #[serde(default, rename = "move")]
    pub move_: Option<Move>,
}

fn first_generation() -> Generation {
    1
}

/// What a broker is to a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It appends.
    Leader,
    /// It votes and copies.
    Follower,
    /// It copies and does not vote, to lead after the cut-over.
    Successor,
    /// It copies and does not vote, to become a follower.
    Joining,
}

impl Role {
    /// The word used in records and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Successor => "successor",
            Self::Joining => "joining",
        }
    }
}

impl Assignment {
    /// A shard's first assignment, not yet serving.
    pub fn new(shard: ShardKey, leader: BrokerId, followers: Vec<BrokerId>) -> Self {
        Self {
            shard,
            leader: Some(leader),
            followers,
            generation: 1,
            state: ShardState::Assigning,
            successor: None,
            joining: None,
            leaving: None,
            move_: None,
        }
    }

    /// The voting set: the leader, if any, and the followers.
    pub fn voters(&self) -> impl Iterator<Item = &BrokerId> {
        self.leader.iter().chain(self.followers.iter())
    }

    /// Every broker that this assignment names, each with its role. A successor that is also a
    /// follower is listed as a follower.
    pub fn members(&self) -> Vec<(&BrokerId, Role)> {
        let mut members: Vec<(&BrokerId, Role)> =
            self.leader.iter().map(|b| (b, Role::Leader)).collect();
        members.extend(self.followers.iter().map(|b| (b, Role::Follower)));
        let copies = [(&self.successor, Role::Successor), (&self.joining, Role::Joining)];
        for (broker, role) in copies {
            if let Some(broker) = broker
                && !members.iter().any(|(b, _)| *b == broker)
            {
                members.push((broker, role));
            }
        }
        members
    }

    /// What `broker` is to this shard, if anything.
    pub fn role_of(&self, broker: &BrokerId) -> Option<Role> {
        self.members().into_iter().find(|(b, _)| *b == broker).map(|(_, role)| role)
    }

    /// Whether a copy or a hand-over is under way.
    pub fn is_moving(&self) -> bool {
        self.successor.is_some() || self.joining.is_some() || self.state == ShardState::Draining
    }

    /// Who leads once the move in flight is done.
    pub fn eventual_leader(&self) -> Option<&BrokerId> {
        self.successor.as_ref().or(self.leader.as_ref())
    }
}

/// The assignment as it is stored, with what its writer proves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignmentRecord {
    /// Layout version.
    #[serde(default = "record_version")]
    pub v: u32,
    /// The assignment.
    #[serde(flatten)]
    pub assignment: Assignment,
    /// The leadership token of the load manager that wrote it.
    #[serde(default)]
    pub token: i64,
    /// Names the write, so that its author recognises it after an unknown outcome.
    #[serde(default)]
    pub operation: String,
    /// When it was written, on the load manager's clock.
    #[serde(default)]
    pub written_at_ms: Millis,
}

/// What one broker is told about one shard: its role, and the whole assignment to act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerShard {
    /// Layout version.
    #[serde(default = "record_version")]
    pub v: u32,
    /// What this broker is to the shard.
    pub role: Role,
    /// The assignment, the same in every member's record of one generation.
    #[serde(flatten)]
    pub assignment: Assignment,
    /// The leadership token of the load manager that wrote it.
    #[serde(default)]
    pub token: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(s: &str) -> BrokerId {
        s.parse().unwrap()
    }

    #[test]
    fn records_round_trip_and_unknown_fields_are_ignored() {
        let json = br#"{"v":1,"shard":"stream/default/orders/0","leader":"b1","followers":["b2"],
            "generation":4,"state":"draining","successor":"b2","joining":null,"leaving":null,
            "move":{"reason":"drain","started_at_ms":5},"token":9,"operation":"x","later":true}"#;
        let record: AssignmentRecord = crate::decode("k", json).unwrap();
        assert_eq!(record.assignment.generation, 4);
        assert_eq!(record.assignment.role_of(&id("b2")), Some(Role::Follower));
        let again: AssignmentRecord = crate::decode("k", &crate::encode(&record)).unwrap();
        assert_eq!(again, record);
    }

    #[test]
    fn a_record_of_the_wrong_type_is_named() {
        let error = crate::decode::<AssignmentRecord>("/cluster/shards/x", br#"{"shard":7}"#)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("record at /cluster/shards/x cannot be read: "), "{error}");
    }

    #[test]
    fn members_lists_every_named_broker_once() {
        let mut a = Assignment::new("stream/d/s/0".parse().unwrap(), id("a"), vec![id("b")]);
        a.successor = Some(id("b"));
        a.joining = Some(id("c"));
        let b = [id("a"), id("b"), id("c")];
        let expected = vec![(&b[0], Role::Leader), (&b[1], Role::Follower), (&b[2], Role::Joining)];
        assert_eq!(a.members(), expected);
    }
}
