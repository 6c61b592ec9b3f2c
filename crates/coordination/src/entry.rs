//! One stored key, and what a listing of a prefix returns.

/// etcd's revision: rises by one with every transaction that changes the store.
pub type Revision = i64;

/// etcd's lease identifier.
pub type LeaseId = i64;

/// A key with its value and its place in the store's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The whole key.
    pub key: String,
    /// The stored bytes.
    pub value: Vec<u8>,
    /// Revision that created the key; 0 never occurs.
    pub create_revision: Revision,
    /// Revision of the last write of the key.
    pub mod_revision: Revision,
    /// The lease that the key lives on, if any.
    pub lease: Option<LeaseId>,
}

impl Entry {
    /// `None` if the key is not UTF-8: such a key is not ours, whoever wrote it.
    pub(crate) fn from_etcd(kv: &etcd_client::KeyValue) -> Option<Self> {
        let Ok(key) = std::str::from_utf8(kv.key()) else {
            tracing::warn!(key = ?kv.key(), "key is not UTF-8; it is left out");
            return None;
        };
        Some(Self {
            key: key.to_owned(),
            value: kv.value().to_vec(),
            create_revision: kv.create_revision(),
            mod_revision: kv.mod_revision(),
            lease: (kv.lease() != 0).then(|| kv.lease()),
        })
    }
}

/// All keys under a prefix as they were at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The revision that every entry was read at.
    pub revision: Revision,
    /// Which etcd cluster answered. A store that was replaced has another.
    pub cluster_id: u64,
    /// In key order.
    pub entries: Vec<Entry>,
}
