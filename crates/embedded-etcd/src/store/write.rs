//! Puts and deletes.

use etcd_client::proto::{
    PbDeleteRequest, PbDeleteResponse, PbEvent, PbKeyValue, PbPutRequest, PbPutResponse,
};
use tonic::Status;

use super::{Draft, Store};
use crate::faults;
use crate::keys::KeyRange;

const PUT: i32 = 0;
const DELETE: i32 = 1;

impl Store {
    pub(crate) fn put(&mut self, request: PbPutRequest) -> Result<PbPutResponse, Status> {
        self.check_put(&request)?;
        let mut draft = Draft::default();
        let mut response = self.draft_put(request, &mut draft)?;
        self.commit(draft);
        response.header = Some(self.header());
        Ok(response)
    }

    pub(crate) fn delete_range(
        &mut self,
        request: &PbDeleteRequest,
    ) -> Result<PbDeleteResponse, Status> {
        if request.key.is_empty() {
            return Err(faults::empty_key());
        }
        let mut draft = Draft::default();
        let mut response = self.draft_delete(request, &mut draft);
        self.commit(draft);
        response.header = Some(self.header());
        Ok(response)
    }

    /// What can be told before anything is applied.
    pub(super) fn check_put(&self, request: &PbPutRequest) -> Result<(), Status> {
        if request.key.is_empty() {
            return Err(faults::empty_key());
        }
        if request.ignore_value && !request.value.is_empty() {
            return Err(faults::value_provided());
        }
        if request.ignore_lease && request.lease != 0 {
            return Err(faults::lease_provided());
        }
        if request.lease != 0 && !self.leases.exists(request.lease) {
            return Err(faults::lease_not_found());
        }
        Ok(())
    }

    pub(super) fn draft_put(
        &mut self,
        request: PbPutRequest,
        draft: &mut Draft,
    ) -> Result<PbPutResponse, Status> {
        let revision = self.revision + 1;
        let previous = self.current.get(&request.key).cloned();
        let needs_previous = request.ignore_value || request.ignore_lease;
        let (value, lease) = match &previous {
            None if needs_previous => return Err(faults::key_not_found()),
            None => (request.value, request.lease),
            Some(p) => (
                if request.ignore_value { p.value.clone() } else { request.value },
                if request.ignore_lease { p.lease } else { request.lease },
            ),
        };
        if let Some(p) = &previous {
            self.leases.detach(p.lease, &request.key);
        }
        self.leases.attach(lease, &request.key);
        let kv = PbKeyValue {
            key: request.key.clone(),
            value,
            lease,
            mod_revision: revision,
            create_revision: previous.as_ref().map_or(revision, |p| p.create_revision),
            version: previous.as_ref().map_or(1, |p| p.version + 1),
        };
        self.current.insert(request.key.clone(), kv.clone());
        self.history.entry(request.key).or_default().push((revision, Some(kv.clone())));
        draft.events.push(PbEvent { r#type: PUT, kv: Some(kv), prev_kv: previous.clone() });
        let prev_kv = if request.prev_kv { previous } else { None };
        Ok(PbPutResponse { header: None, prev_kv })
    }

    pub(super) fn draft_delete(
        &mut self,
        request: &PbDeleteRequest,
        draft: &mut Draft,
    ) -> PbDeleteResponse {
        let removed = self.remove(&KeyRange::new(&request.key, &request.range_end), draft);
        PbDeleteResponse {
            header: None,
            deleted: i64::try_from(removed.len()).unwrap_or(i64::MAX),
            prev_kvs: if request.prev_kv { removed } else { Vec::new() },
        }
    }

    pub(super) fn remove(&mut self, range: &KeyRange, draft: &mut Draft) -> Vec<PbKeyValue> {
        let revision = self.revision + 1;
        let Some(bounds) = range.bounds() else { return Vec::new() };
        let keys: Vec<Vec<u8>> = self.current.range(bounds).map(|(key, _)| key.clone()).collect();
        let mut removed = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(previous) = self.current.remove(&key) else { continue };
            self.leases.detach(previous.lease, &key);
            self.history.entry(key.clone()).or_default().push((revision, None));
            let kv = PbKeyValue { key, mod_revision: revision, ..Default::default() };
            draft.events.push(PbEvent {
                r#type: DELETE,
                kv: Some(kv),
                prev_kv: Some(previous.clone()),
            });
            removed.push(previous);
        }
        removed
    }
}
