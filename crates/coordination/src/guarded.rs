//! A guarded transaction: what must hold, what is then written, and what came of it.

use crate::{Entry, LeaseId, Revision, StoreError};

/// etcd's default limit for each of the compares, the writes and the reads of a transaction.
pub(crate) const OPERATIONS_MAX: usize = 128;

/// Proof of having been elected: the leader key and the revision that created it.
///
/// Every write of a leader carries it, so that a leader that has lost its key without noticing
/// cannot write.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    /// The leader key.
    pub key: String,
    /// Create revision of the leader key.
    pub create_revision: Revision,
}

/// What must hold for the writes to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// The key was last written at this revision; revision 0 means that it does not exist.
    ModRevision { key: String, revision: Revision },
    /// The key was created at this revision.
    CreateRevision { key: String, revision: Revision },
    /// The key does not exist.
    Absent { key: String },
    /// The key exists.
    Exists { key: String },
}

impl Guard {
    /// The guarded key.
    pub fn key(&self) -> &str {
        match self {
            Self::ModRevision { key, .. }
            | Self::CreateRevision { key, .. }
            | Self::Absent { key }
            | Self::Exists { key } => key,
        }
    }
}

/// One write of a transaction. etcd refuses two writes of one key in the same transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Stores the value, on a lease if one is given.
    Put { key: String, value: Vec<u8>, lease: Option<LeaseId> },
    /// Removes the key; a key that does not exist is no error.
    Delete { key: String },
}

/// A transaction: all writes are made if the token and every guard hold, otherwise none.
///
/// Limits: 128 guards (the token counts), 128 writes, and at most 127 different guarded keys
/// beside a token. A transaction without token and guards is always made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Guarded {
    /// Leadership to prove, if this is a leader's write.
    pub token: Option<Token>,
    /// Further conditions.
    pub guards: Vec<Guard>,
    /// Made all together or not at all.
    pub writes: Vec<Write>,
}

/// What came of a guarded transaction. None of these is an error.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Every write was made, at this revision.
    Written { revision: Revision },
    /// A guard did not hold; nothing was written. The guarded keys as they are now, in key order,
    /// without those that do not exist.
    Stale { found: Vec<Entry> },
    /// The token's leadership is over; nothing was written.
    Deposed,
    /// It is not known whether the writes were made, unless
    /// [`StoreError::maybe_applied`] is false: then they were not.
    Unknown(StoreError),
}
