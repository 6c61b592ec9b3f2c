//! Guarded transactions, never repeated once they may have been applied.

use std::collections::BTreeSet;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse};

use super::pool::{Lane, Retry};
use super::{ANSWER_MAX_BYTES, Store};
use crate::guarded::OPERATIONS_MAX;
use crate::metrics::Op;
use crate::{Entry, ErrorClass, Guard, Guarded, Outcome, StoreError, Write};

impl Store {
    /// Makes the writes if the token and all guards hold.
    ///
    /// An attempt that certainly was not applied (refused connection, busy store, expired login)
    /// is repeated within [`super::StoreConfig::patience`]; any other failure is
    /// [`Outcome::Unknown`] at once, and only a new read can tell.
    pub async fn commit(&self, txn: Guarded) -> Outcome {
        let reads = guarded_keys(&txn);
        if let Err(error) = check_size(&txn, reads.len()) {
            return Outcome::Unknown(error);
        }
        let request = request(&txn, &reads);
        let limit = self.pool.request_timeout();
        let mut retry = Retry::new(&self.pool);
        loop {
            let attempt = self.pool.once(Op::Txn, Lane::Calls, limit, |client| {
                let request = request.clone();
                async move {
                    let mut kv = client.kv_client().max_decoding_message_size(ANSWER_MAX_BYTES);
                    kv.txn(request).await
                }
            });
            match attempt.await {
                Ok((answer, _)) => return outcome(&txn, &answer),
                Err(error) if error.maybe_applied() => return Outcome::Unknown(error),
                Err(error) => {
                    if let Err(error) = retry.after(error).await {
                        return Outcome::Unknown(error);
                    }
                }
            }
        }
    }
}

fn check_size(txn: &Guarded, reads: usize) -> Result<(), StoreError> {
    let token = usize::from(txn.token.is_some());
    for (what, count) in [
        ("guards", txn.guards.len() + token),
        ("guarded keys", reads + token),
        ("writes", txn.writes.len()),
    ] {
        if count > OPERATIONS_MAX {
            let detail = format!("{count} {what} in one transaction; expected <= {OPERATIONS_MAX}");
            return Err(StoreError::new(ErrorClass::TooLarge, detail));
        }
    }
    Ok(())
}

/// Each guarded key once; the token's key is read apart.
fn guarded_keys(txn: &Guarded) -> BTreeSet<String> {
    let token = txn.token.as_ref().map(|token| token.key.as_str());
    txn.guards.iter().map(Guard::key).filter(|key| Some(*key) != token).map(str::to_owned).collect()
}

fn request(txn: &Guarded, reads: &BTreeSet<String>) -> Txn {
    let token = txn.token.iter();
    let mut compares: Vec<Compare> = token
        .clone()
        .map(|t| Compare::create_revision(t.key.as_str(), CompareOp::Equal, t.create_revision))
        .collect();
    compares.extend(txn.guards.iter().map(compare));
    let writes: Vec<TxnOp> = txn.writes.iter().map(write).collect();
    let mut otherwise: Vec<TxnOp> =
        token.map(|token| TxnOp::get(token.key.as_str(), None)).collect();
    otherwise.extend(reads.iter().map(|key| TxnOp::get(key.as_str(), None)));
    Txn::new().when(compares).and_then(writes).or_else(otherwise)
}

fn compare(guard: &Guard) -> Compare {
    match guard {
        Guard::ModRevision { key, revision } => {
            Compare::mod_revision(key.as_str(), CompareOp::Equal, *revision)
        }
        Guard::CreateRevision { key, revision } => {
            Compare::create_revision(key.as_str(), CompareOp::Equal, *revision)
        }
        Guard::Absent { key } => Compare::create_revision(key.as_str(), CompareOp::Equal, 0),
        Guard::Exists { key } => Compare::create_revision(key.as_str(), CompareOp::Greater, 0),
    }
}

fn write(write: &Write) -> TxnOp {
    match write {
        Write::Put { key, value, lease } => {
            let options = lease.map(|lease| PutOptions::new().with_lease(lease));
            TxnOp::put(key.as_str(), value.clone(), options)
        }
        Write::Delete { key } => TxnOp::delete(key.as_str(), None),
    }
}

fn outcome(txn: &Guarded, answer: &TxnResponse) -> Outcome {
    let Some(header) = answer.header() else {
        return Outcome::Unknown(StoreError::malformed("transaction without header"));
    };
    if answer.succeeded() {
        return Outcome::Written { revision: header.revision() };
    }
    let mut found = Vec::new();
    for read in answer.op_responses() {
        if let TxnOpResponse::Get(get) = read {
            found.extend(get.kvs().iter().filter_map(Entry::from_etcd));
        }
    }
    if let Some(token) = &txn.token {
        let holder = found.iter().position(|entry| entry.key == token.key);
        let held = holder.map(|at| found.remove(at).create_revision);
        if held != Some(token.create_revision) {
            return Outcome::Deposed;
        }
    }
    Outcome::Stale { found }
}
