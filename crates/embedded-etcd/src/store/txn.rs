//! Transactions: limits first, then the branch that holds, as one revision.

use std::collections::BTreeSet;

use etcd_client::proto::{
    PbResponseOp, PbTxnOpRequest, PbTxnOpResponse, PbTxnRequest, PbTxnRequestOp, PbTxnResponse,
};
use tonic::Status;

use super::{Draft, Store};
use crate::faults;
use crate::keys::KeyRange;

/// Most comparisons, and most operations of each branch.
const MAX_OPERATIONS: usize = 128;

impl Store {
    pub(crate) fn txn(&mut self, request: &PbTxnRequest) -> Result<PbTxnResponse, Status> {
        check_size(request)?;
        check_duplicates(&request.success)?;
        check_duplicates(&request.failure)?;
        self.check_chosen(request)?;
        let mut draft = Draft::default();
        let mut response = self.apply(request, &mut draft)?;
        self.commit(draft);
        response.header = Some(self.header());
        Ok(response)
    }

    fn chosen<'a>(&self, request: &'a PbTxnRequest) -> (bool, &'a [PbTxnRequestOp]) {
        let holds = request.compare.iter().all(|c| self.holds(c));
        (holds, if holds { &request.success } else { &request.failure })
    }

    /// Everything that can fail is looked at before anything is applied.
    fn check_chosen(&self, request: &PbTxnRequest) -> Result<(), Status> {
        for operation in self.chosen(request).1 {
            match &operation.request {
                Some(PbTxnOpRequest::RequestPut(put)) => {
                    self.check_put(put)?;
                    let needs_previous = put.ignore_value || put.ignore_lease;
                    if needs_previous && !self.current.contains_key(&put.key) {
                        return Err(faults::key_not_found());
                    }
                }
                Some(PbTxnOpRequest::RequestRange(range)) => self.check_range(range)?,
                Some(PbTxnOpRequest::RequestDeleteRange(delete)) if delete.key.is_empty() => {
                    return Err(faults::empty_key());
                }
                Some(PbTxnOpRequest::RequestTxn(nested)) => self.check_chosen(nested)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn apply(
        &mut self,
        request: &PbTxnRequest,
        draft: &mut Draft,
    ) -> Result<PbTxnResponse, Status> {
        let (succeeded, operations) = self.chosen(request);
        let mut responses = Vec::with_capacity(operations.len());
        for operation in operations {
            let response = match &operation.request {
                Some(PbTxnOpRequest::RequestPut(put)) => {
                    PbTxnOpResponse::ResponsePut(self.draft_put(put.clone(), draft)?)
                }
                Some(PbTxnOpRequest::RequestRange(range)) => {
                    PbTxnOpResponse::ResponseRange(self.range(range)?)
                }
                Some(PbTxnOpRequest::RequestDeleteRange(delete)) => {
                    PbTxnOpResponse::ResponseDeleteRange(self.draft_delete(delete, draft))
                }
                Some(PbTxnOpRequest::RequestTxn(nested)) => {
                    PbTxnOpResponse::ResponseTxn(self.apply(nested, draft)?)
                }
                None => continue,
            };
            responses.push(PbResponseOp { response: Some(response) });
        }
        Ok(PbTxnResponse { header: None, succeeded, responses })
    }
}

/// Each level of a nested transaction is counted alone.
fn check_size(request: &PbTxnRequest) -> Result<(), Status> {
    let lengths = [request.compare.len(), request.success.len(), request.failure.len()];
    if lengths.iter().any(|length| *length > MAX_OPERATIONS) {
        return Err(faults::too_many_operations());
    }
    for operation in request.success.iter().chain(&request.failure) {
        if let Some(PbTxnOpRequest::RequestTxn(nested)) = &operation.request {
            check_size(nested)?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Touched {
    puts: BTreeSet<Vec<u8>>,
    deletes: Vec<KeyRange>,
}

/// No key may be put twice in one branch, nor be put and deleted.
fn check_duplicates(operations: &[PbTxnRequestOp]) -> Result<Touched, Status> {
    let mut touched = Touched::default();
    for operation in operations {
        match &operation.request {
            Some(PbTxnOpRequest::RequestPut(put)) => {
                if !touched.puts.insert(put.key.clone()) {
                    return Err(faults::duplicate_key());
                }
            }
            Some(PbTxnOpRequest::RequestDeleteRange(delete)) => {
                touched.deletes.push(KeyRange::new(&delete.key, &delete.range_end));
            }
            Some(PbTxnOpRequest::RequestTxn(nested)) => {
                // Only one branch will run, so the two may touch the same keys.
                let (success, failure) =
                    (check_duplicates(&nested.success)?, check_duplicates(&nested.failure)?);
                let nested: BTreeSet<Vec<u8>> =
                    success.puts.union(&failure.puts).cloned().collect();
                if nested.iter().any(|key| touched.puts.contains(key)) {
                    return Err(faults::duplicate_key());
                }
                touched.puts.extend(nested);
                touched.deletes.extend(success.deletes);
                touched.deletes.extend(failure.deletes);
            }
            _ => {}
        }
    }
    let clash = touched.deletes.iter().any(|r| touched.puts.iter().any(|key| r.contains(key)));
    if clash { Err(faults::duplicate_key()) } else { Ok(touched) }
}
