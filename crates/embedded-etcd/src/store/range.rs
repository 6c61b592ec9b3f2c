//! Reads: ranges at a revision, with pages, sorting and filters.

use etcd_client::proto::{PbKeyValue, PbRangeRequest, PbRangeResponse};
use tonic::Status;

use super::Store;
use crate::faults;
use crate::keys::KeyRange;

impl Store {
    pub(crate) fn range(&self, request: &PbRangeRequest) -> Result<PbRangeResponse, Status> {
        self.check_range(request)?;
        let range = KeyRange::new(&request.key, &request.range_end);
        let plain = request.sort_order == 0 && !has_filter(request) && !request.count_only;
        let wanted = match usize::try_from(request.limit) {
            // One more tells whether there is more; nothing else of the range is cloned.
            Ok(limit) if limit > 0 && plain => limit + 1,
            _ => usize::MAX,
        };
        let (mut kvs, count) = self.read(&range, request.revision, wanted);
        kvs.retain(|kv| passes(request, kv));
        sort(request, &mut kvs);
        let limit = usize::try_from(request.limit).unwrap_or(0);
        let more = limit > 0 && kvs.len() > limit;
        if more {
            kvs.truncate(limit);
        }
        if request.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        if request.count_only {
            kvs.clear();
        }
        Ok(PbRangeResponse { header: Some(self.header()), kvs, more, count })
    }

    pub(super) fn check_range(&self, request: &PbRangeRequest) -> Result<(), Status> {
        if request.key.is_empty() {
            return Err(faults::empty_key());
        }
        if request.revision > self.revision {
            return Err(faults::future_revision());
        }
        if request.revision > 0 && request.revision < self.compacted {
            return Err(faults::compacted());
        }
        Ok(())
    }

    /// At most `wanted` values of the range at a revision (0: now), and how many there are.
    fn read(&self, range: &KeyRange, revision: i64, wanted: usize) -> (Vec<PbKeyValue>, i64) {
        let Some(bounds) = range.bounds() else { return (Vec::new(), 0) };
        let mut count = 0;
        let mut kvs = Vec::new();
        let mut take = |kv: &PbKeyValue| {
            count += 1;
            if kvs.len() < wanted {
                kvs.push(kv.clone());
            }
        };
        // Within a transaction, what is current is already ahead of the present revision.
        if revision <= 0 {
            self.current.range(bounds).for_each(|(_, kv)| take(kv));
        } else {
            for (_, versions) in self.history.range(bounds) {
                let version = versions.iter().rev().find(|(r, _)| *r <= revision);
                if let Some((_, Some(kv))) = version {
                    take(kv);
                }
            }
        }
        (kvs, count)
    }
}

fn has_filter(r: &PbRangeRequest) -> bool {
    [r.min_mod_revision, r.max_mod_revision, r.min_create_revision, r.max_create_revision]
        .iter()
        .any(|bound| *bound != 0)
}

fn passes(r: &PbRangeRequest, kv: &PbKeyValue) -> bool {
    let within = |value: i64, min: i64, max: i64| value >= min && (max == 0 || value <= max);
    within(kv.mod_revision, r.min_mod_revision, r.max_mod_revision)
        && within(kv.create_revision, r.min_create_revision, r.max_create_revision)
}

fn sort(request: &PbRangeRequest, kvs: &mut [PbKeyValue]) {
    const DESCENDING: i32 = 2;
    // No order given means ascending once a target other than the key is named.
    if request.sort_order == 0 && request.sort_target == 0 {
        return;
    }
    match request.sort_target {
        1 => kvs.sort_by_key(|kv| kv.version),
        2 => kvs.sort_by_key(|kv| kv.create_revision),
        3 => kvs.sort_by_key(|kv| kv.mod_revision),
        4 => kvs.sort_by(|a, b| a.value.cmp(&b.value)),
        _ => {}
    }
    if request.sort_order == DESCENDING {
        kvs.reverse();
    }
}
