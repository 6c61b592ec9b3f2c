//! Many own keys at once, in as few transactions as etcd's limits allow.

use std::collections::BTreeMap;

use etcd_client::{PutOptions, Txn, TxnOp, TxnResponse};

use super::Store;
use crate::guarded::OPERATIONS_MAX;
use crate::metrics::Op;
use crate::{LeaseId, Revision, StoreError};

/// Kept well below etcd's 1.5 MiB for a request.
const BATCH_MAX_BYTES: usize = 1 << 20;

/// What an entry takes in a request beside its key and value.
const ENTRY_OVERHEAD_BYTES: usize = 32;

impl Store {
    /// Stores many values, each as [`Store::put`] would. Up to 128 keys and 1 MiB are written
    /// together; beyond that an error may leave some written and others not. Of a key given twice
    /// the last value counts. Returns the revision of the last write; 0 if there was none.
    pub async fn put_all(
        &self,
        entries: Vec<(String, Vec<u8>)>,
        lease: Option<LeaseId>,
    ) -> Result<Revision, StoreError> {
        let mut revision = 0;
        for batch in batches(entries) {
            let options = lease.map(|lease| PutOptions::new().with_lease(lease));
            let puts: Vec<TxnOp> = batch
                .into_iter()
                .map(|(key, value)| TxnOp::put(key, value, options.clone()))
                .collect();
            revision = self.write_batch(Op::Put, puts).await?.0;
        }
        Ok(revision)
    }

    /// Removes many keys, up to 128 together. Returns how many there were; fewer if an attempt
    /// had to be repeated.
    pub async fn delete_all(&self, keys: Vec<String>) -> Result<u64, StoreError> {
        let mut deleted = 0;
        for batch in batches(keys.into_iter().map(|key| (key, Vec::new())).collect()) {
            let deletes = batch.into_iter().map(|(key, _)| TxnOp::delete(key, None)).collect();
            let (_, answer) = self.write_batch(Op::Delete, deletes).await?;
            for response in answer.op_responses() {
                if let etcd_client::TxnOpResponse::Delete(one) = response {
                    deleted += u64::try_from(one.deleted()).unwrap_or(0);
                }
            }
        }
        Ok(deleted)
    }

    async fn write_batch(
        &self,
        op: Op,
        writes: Vec<TxnOp>,
    ) -> Result<(Revision, TxnResponse), StoreError> {
        let request = Txn::new().and_then(writes);
        let answer = self
            .pool
            .repeat(op, |mut client| {
                let request = request.clone();
                async move { client.txn(request).await }
            })
            .await?;
        let header =
            answer.header().ok_or_else(|| StoreError::malformed("batch without header"))?;
        Ok((header.revision(), answer))
    }
}

fn batches(entries: Vec<(String, Vec<u8>)>) -> Vec<Vec<(String, Vec<u8>)>> {
    let unique: BTreeMap<String, Vec<u8>> = entries.into_iter().collect();
    let mut batches: Vec<Vec<(String, Vec<u8>)>> = Vec::new();
    let mut bytes = 0;
    for (key, value) in unique {
        let size = key.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        match batches.last_mut() {
            Some(batch) if batch.len() < OPERATIONS_MAX && bytes + size <= BATCH_MAX_BYTES => {
                bytes += size;
                batch.push((key, value));
            }
            _ => {
                bytes = size;
                batches.push(vec![(key, value)]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(entries: Vec<(String, Vec<u8>)>) -> Vec<usize> {
        batches(entries).iter().map(Vec::len).collect()
    }

    #[test]
    fn batches_hold_at_most_128_keys_and_one_mebibyte() {
        let small = |n: usize| (0..n).map(|i| (format!("k{i:04}"), vec![0])).collect::<Vec<_>>();
        assert_eq!(sizes(small(0)), Vec::<usize>::new());
        assert_eq!(sizes(small(128)), vec![128]);
        assert_eq!(sizes(small(300)), vec![128, 128, 44]);
        let large = (0..5).map(|i| (format!("k{i}"), vec![0; 400 << 10])).collect();
        assert_eq!(sizes(large), vec![2, 2, 1]);
    }

    #[test]
    fn of_a_key_given_twice_the_last_value_is_written_once() {
        let twice = vec![("k".to_owned(), vec![1]), ("k".to_owned(), vec![2])];
        assert_eq!(batches(twice), vec![vec![("k".to_owned(), vec![2])]]);
    }
}
