//! The conditions of a transaction.

use std::cmp::Ordering;

use etcd_client::proto::{PbCompare, PbKeyValue, PbTargetUnion};

use super::Store;
use crate::keys::KeyRange;

impl Store {
    /// Whether the comparison holds for every key of its range. On an empty range it is made with
    /// a key that does not exist.
    pub(super) fn holds(&self, compare: &PbCompare) -> bool {
        let range = KeyRange::new(&compare.key, &compare.range_end);
        let Some(bounds) = range.bounds() else { return holds_for(compare, None) };
        let mut found = self.current.range(bounds).map(|(_, kv)| kv).peekable();
        if found.peek().is_none() {
            return holds_for(compare, None);
        }
        found.all(|kv| holds_for(compare, Some(kv)))
    }
}

fn holds_for(compare: &PbCompare, found: Option<&PbKeyValue>) -> bool {
    const EQUAL: i32 = 0;
    const GREATER: i32 = 1;
    const LESS: i32 = 2;
    let absent = PbKeyValue::default();
    let kv = found.unwrap_or(&absent);
    let order = match &compare.target_union {
        Some(PbTargetUnion::Version(v)) => kv.version.cmp(v),
        Some(PbTargetUnion::CreateRevision(v)) => kv.create_revision.cmp(v),
        Some(PbTargetUnion::ModRevision(v)) => kv.mod_revision.cmp(v),
        // A key that does not exist has no value, not an empty one.
        Some(PbTargetUnion::Value(_)) if found.is_none() => return false,
        Some(PbTargetUnion::Value(v)) => kv.value.cmp(v),
        Some(PbTargetUnion::Lease(v)) => kv.lease.cmp(v),
        None => Ordering::Equal,
    };
    match compare.result {
        EQUAL => order == Ordering::Equal,
        GREATER => order == Ordering::Greater,
        LESS => order == Ordering::Less,
        _ => order != Ordering::Equal,
    }
}
