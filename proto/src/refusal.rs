//! Refusals as gRPC statuses with `google.rpc.ErrorInfo`: one stable reason each.

use std::collections::HashMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of every reason.
pub const DOMAIN: &str = "evenkeel";

/// Metadata of [`Reason::BeforeStart`].
const FIRST_OFFSET: &str = "first_offset";

/// Why a request was refused. The word is stable; scripts and clients decide by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// This instance is not the elected one; metadata `leader` is the address to go to.
    NotLeader,
    /// No instance is elected now.
    NoLeader,
    /// The broker is not live and registered.
    DestinationNotLive,
    /// The destination's replica has halted.
    DestinationHalted,
    /// The broker leads the shard already.
    AlreadyLeader,
    /// The broker holds as many shards as it may.
    AtCapacity,
    /// The stream may not be placed in the broker's region.
    RegionNotAllowed,
    /// The shard is being moved.
    AlreadyMoving,
    /// The shard has no leader that could hand it over.
    LeaderUnavailable,
    /// As many moves as allowed are in flight.
    MoveLimit,
    /// The shard is not being moved.
    NotMoving,
    /// The broker still runs.
    BrokerRunning,
    /// Shards still name the broker.
    BrokerNamedByShards,
    /// The lifecycle does not allow it.
    WrongLifecycle,
    /// There is no such thing.
    NotFound,
    /// It is there already, with other content.
    AlreadyExists,
    /// An argument is not valid.
    InvalidArgument,
    /// Somebody else changed it meanwhile; nothing was written.
    Conflict,
    /// Placement is paused.
    Paused,
    /// The shard is between two leaders; the publish was not written.
    Moving,
    /// The shard has no serving leader; the publish was not written.
    ShardUnavailable,
    /// Too much at once; the publish was not written.
    Overloaded,
    /// The broker's disk is full; the publish was not written.
    DiskFull,
    /// The records from there on were given up; metadata `first_offset` is the first that is there.
    BeforeStart,
    /// A newer generation is known.
    StaleGeneration,
    /// The store cannot be reached now.
    StoreUnavailable,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 26] = [
        Self::NotLeader,
        Self::NoLeader,
        Self::DestinationNotLive,
        Self::DestinationHalted,
        Self::AlreadyLeader,
        Self::AtCapacity,
        Self::RegionNotAllowed,
        Self::AlreadyMoving,
        Self::LeaderUnavailable,
        Self::MoveLimit,
        Self::NotMoving,
        Self::BrokerRunning,
        Self::BrokerNamedByShards,
        Self::WrongLifecycle,
        Self::NotFound,
        Self::AlreadyExists,
        Self::InvalidArgument,
        Self::Conflict,
        Self::Paused,
        Self::Moving,
        Self::ShardUnavailable,
        Self::Overloaded,
        Self::DiskFull,
        Self::BeforeStart,
        Self::StaleGeneration,
        Self::StoreUnavailable,
    ];

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotLeader => "not_leader",
            Self::NoLeader => "no_leader",
            Self::DestinationNotLive => "destination_not_live",
            Self::DestinationHalted => "destination_halted",
            Self::AlreadyLeader => "already_leader",
            Self::AtCapacity => "at_capacity",
            Self::RegionNotAllowed => "region_not_allowed",
            Self::AlreadyMoving => "already_moving",
            Self::LeaderUnavailable => "leader_unavailable",
            Self::MoveLimit => "move_limit",
            Self::NotMoving => "not_moving",
            Self::BrokerRunning => "broker_running",
            Self::BrokerNamedByShards => "broker_named_by_shards",
            Self::WrongLifecycle => "wrong_lifecycle",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::InvalidArgument => "invalid_argument",
            Self::Conflict => "conflict",
            Self::Paused => "paused",
            Self::Moving => "moving",
            Self::ShardUnavailable => "shard_unavailable",
            Self::Overloaded => "overloaded",
            Self::DiskFull => "disk_full",
            Self::BeforeStart => "before_start",
            Self::StaleGeneration => "stale_generation",
            Self::StoreUnavailable => "store_unavailable",
        }
    }

    fn code(self) -> Code {
        match self {
            Self::NotLeader
            | Self::NoLeader
            | Self::Moving
            | Self::ShardUnavailable
            | Self::StoreUnavailable => Code::Unavailable,
            Self::Overloaded | Self::DiskFull => Code::ResourceExhausted,
            Self::NotFound => Code::NotFound,
            Self::AlreadyExists => Code::AlreadyExists,
            Self::BeforeStart => Code::OutOfRange,
            Self::InvalidArgument => Code::InvalidArgument,
            Self::Conflict => Code::Aborted,
            _ => Code::FailedPrecondition,
        }
    }

    /// Reads the reason back from a status, with its metadata.
    pub fn of(status: &Status) -> Option<(Self, HashMap<String, String>)> {
        let info = status.get_error_details().error_info()?.clone();
        let reason = Self::ALL.into_iter().find(|r| r.as_str() == info.reason)?;
        Some((reason, info.metadata))
    }
}

/// A refusal for people (`detail`) and for programs (`reason`).
pub fn refuse(reason: Reason, detail: impl Into<String>) -> Status {
    refuse_with(reason, detail, &[])
}

/// A refusal with metadata, such as the leader's address.
pub fn refuse_with(reason: Reason, detail: impl Into<String>, metadata: &[(&str, &str)]) -> Status {
    let metadata: HashMap<String, String> =
        metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let details = ErrorDetails::with_error_info(reason.as_str(), DOMAIN, metadata);
    Status::with_error_details(reason.code(), detail, details)
}

/// A refusal that may be tried again after a delay; it had no effect.
pub fn refuse_for(reason: Reason, detail: impl Into<String>, delay: Duration) -> Status {
    let mut details = ErrorDetails::with_error_info(reason.as_str(), DOMAIN, HashMap::new());
    details.set_retry_info(Some(delay));
    Status::with_error_details(reason.code(), detail, details)
}

/// How long the server asks to wait before another try.
pub fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_error_details().retry_info()?.retry_delay
}

/// A refusal of records that are older than what is kept.
pub fn before_start(first_offset: u64, message: impl Into<String>) -> Status {
    let first = first_offset.to_string();
    refuse_with(Reason::BeforeStart, message, &[(FIRST_OFFSET, first.as_str())])
}

/// The first offset that there is, if `status` refuses older records.
pub fn first_offset(status: &Status) -> Option<u64> {
    let (reason, metadata) = Reason::of(status)?;
    let named = metadata.get(FIRST_OFFSET).filter(|_| reason == Reason::BeforeStart)?;
    named.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_distinct_and_survive_the_wire_form() {
        for reason in Reason::ALL {
            let status = refuse_with(reason, "no", &[("leader", "h:1")]);
            let (read, metadata) = Reason::of(&status).unwrap();
            assert_eq!((read, metadata["leader"].as_str()), (reason, "h:1"));
        }
        let status = refuse_for(Reason::Overloaded, "busy", Duration::from_millis(20));
        assert_eq!(retry_delay(&status), Some(Duration::from_millis(20)));
        assert_eq!(Reason::of(&Status::internal("x")), None);
    }

    #[test]
    fn every_reason_is_in_the_documentation_with_its_code() {
        let page = include_str!("../../docs/errors.md");
        for reason in Reason::ALL {
            let row = format!("| `{}` | {:?} | ", reason.as_str(), reason.code());
            assert!(page.contains(&row), "docs/errors.md lacks the row {row}");
        }
    }
}
