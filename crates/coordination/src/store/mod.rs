//! Calls to etcd that stick to one endpoint and survive its failures.

mod batch;
mod commit;
mod config;
mod listing;
mod maintenance;
mod pool;

use std::sync::Arc;

use etcd_client::{DeleteOptions, PutOptions};

pub use config::{Endpoint, StoreConfig, Tls};
pub(crate) use listing::prefix_end;
pub use maintenance::Status;
pub(crate) use pool::{Lane, Pool, Ticket};

use crate::metrics::Op;
use crate::{Entry, LeaseId, Revision, StoreError};

/// Largest answer that is read; a page of a listing that is larger is asked for in smaller ones.
const ANSWER_MAX_BYTES: usize = 32 << 20;

/// A handle on the store. Clones share connections and the choice of endpoint.
///
/// Reads are linearizable. Every call is limited in time: one attempt by
/// [`StoreConfig::request_timeout`], a call that is repeated by [`StoreConfig::patience`] plus one
/// attempt.
#[derive(Clone)]
pub struct Store {
    pub(crate) pool: Arc<Pool>,
}

impl Store {
    /// Checks the settings. Connects with the first call.
    ///
    /// # Errors
    /// [`crate::ErrorClass::Fatal`] naming the setting, its value and what was expected.
    pub fn open(config: StoreConfig) -> Result<Self, StoreError> {
        config.check()?;
        Ok(Self { pool: Arc::new(Pool::new(config)) })
    }

    /// The entry of a key, read with the current leader's agreement.
    pub async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.get_at_head(key).await.map(|(entry, _)| entry)
    }

    /// The entry and the store's revision when it was read.
    pub(crate) async fn get_at_head(
        &self,
        key: &str,
    ) -> Result<(Option<Entry>, Revision), StoreError> {
        let answer = self
            .pool
            .repeat(Op::Get, |client| async move {
                client.kv_client().max_decoding_message_size(ANSWER_MAX_BYTES).get(key, None).await
            })
            .await?;
        let header = answer.header().ok_or_else(|| StoreError::malformed("get without header"))?;
        Ok((answer.kvs().first().and_then(Entry::from_etcd), header.revision()))
    }

    /// Stores a value. Repeated on failure, so use it only for keys that nobody else writes; an
    /// error may leave the value stored.
    pub async fn put(
        &self,
        key: &str,
        value: Vec<u8>,
        lease: Option<LeaseId>,
    ) -> Result<Revision, StoreError> {
        let value = &value;
        let answer = self
            .pool
            .repeat(Op::Put, |mut client| async move {
                let options = lease.map(|lease| PutOptions::new().with_lease(lease));
                client.put(key, value.clone(), options).await
            })
            .await?;
        let header = answer.header().ok_or_else(|| StoreError::malformed("put without header"))?;
        Ok(header.revision())
    }

    /// Removes a key. Repeated on failure; `false` may then also mean that an earlier attempt had
    /// removed it.
    pub async fn delete(&self, key: &str) -> Result<bool, StoreError> {
        let answer = self
            .pool
            .repeat(Op::Delete, |mut client| async move { client.delete(key, None).await })
            .await?;
        Ok(answer.deleted() > 0)
    }

    /// Removes all keys under a prefix, at once. Returns how many there were.
    pub async fn delete_prefix(&self, prefix: &str) -> Result<u64, StoreError> {
        let answer = self
            .pool
            .repeat(Op::Delete, |mut client| async move {
                client.delete(prefix, Some(DeleteOptions::new().with_prefix())).await
            })
            .await?;
        Ok(u64::try_from(answer.deleted()).unwrap_or(0))
    }

    /// The endpoints, for messages.
    pub fn endpoints(&self) -> String {
        self.pool.endpoints()
    }
}
