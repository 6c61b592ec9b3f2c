//! Transactions: limits first, then the branch that holds, as one revision.

use std::collections::BTreeSet;

use etcd_client::proto::{
    PbDeleteRequest, PbPutRequest, PbRangeRequest, PbResponseOp, PbTxnOpRequest, PbTxnOpResponse,
    PbTxnRequest, PbTxnRequestOp, PbTxnResponse,
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
        let branch = self.choose(request)?;
        let mut draft = Draft::default();
        let mut response = self.apply(&branch, &mut draft)?;
        self.commit(draft);
        response.header = Some(self.header());
        Ok(response)
    }

    /// Decides every condition, nested ones too, by the state before the transaction, and looks at
    /// everything that can fail before anything is applied.
    fn choose<'a>(&self, request: &'a PbTxnRequest) -> Result<Branch<'a>, Status> {
        let succeeded = request.compare.iter().all(|c| self.holds(c));
        let chosen = if succeeded { &request.success } else { &request.failure };
        let mut steps = Vec::with_capacity(chosen.len());
        for operation in chosen.iter().filter_map(|operation| operation.request.as_ref()) {
            steps.push(match operation {
                PbTxnOpRequest::RequestPut(put) => {
                    self.check_put(put)?;
                    let needs_previous = put.ignore_value || put.ignore_lease;
                    if needs_previous && !self.current.contains_key(&put.key) {
                        return Err(faults::key_not_found());
                    }
                    Step::Put(put)
                }
                PbTxnOpRequest::RequestRange(range) => {
                    self.check_range(range)?;
                    Step::Range(range)
                }
                PbTxnOpRequest::RequestDeleteRange(delete) if delete.key.is_empty() => {
                    return Err(faults::empty_key());
                }
                PbTxnOpRequest::RequestDeleteRange(delete) => Step::Delete(delete),
                PbTxnOpRequest::RequestTxn(nested) => Step::Nested(self.choose(nested)?),
            });
        }
        Ok(Branch { succeeded, steps })
    }

    fn apply(&mut self, branch: &Branch<'_>, draft: &mut Draft) -> Result<PbTxnResponse, Status> {
        let mut responses = Vec::with_capacity(branch.steps.len());
        for step in &branch.steps {
            let response = match step {
                Step::Put(put) => {
                    PbTxnOpResponse::ResponsePut(self.draft_put((*put).clone(), draft)?)
                }
                Step::Range(range) => PbTxnOpResponse::ResponseRange(self.range(range)?),
                Step::Delete(delete) => {
                    PbTxnOpResponse::ResponseDeleteRange(self.draft_delete(delete, draft))
                }
                Step::Nested(nested) => PbTxnOpResponse::ResponseTxn(self.apply(nested, draft)?),
            };
            responses.push(PbResponseOp { response: Some(response) });
        }
        Ok(PbTxnResponse { header: None, succeeded: branch.succeeded, responses })
    }
}

/// The operations that will run.
struct Branch<'a> {
    succeeded: bool,
    steps: Vec<Step<'a>>,
}

enum Step<'a> {
    Put(&'a PbPutRequest),
    Range(&'a PbRangeRequest),
    Delete(&'a PbDeleteRequest),
    Nested(Branch<'a>),
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
                let first = touched.puts.insert(put.key.clone());
                if !first {
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
