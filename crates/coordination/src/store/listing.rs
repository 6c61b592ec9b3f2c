//! All keys under a prefix, page by page, as they were at one revision.

use etcd_client::{GetOptions, GetResponse};

use super::{ANSWER_MAX_BYTES, Store};
use crate::metrics::Op;
use crate::{Entry, ErrorClass, Listing, Revision, StoreError};

/// A listing is begun again this often if its revision is compacted, or the store replaced, below
/// it.
const STARTS_MAX: u32 = 5;

impl Store {
    /// Lists a prefix at one revision, in key order.
    pub async fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        let mut listings = self.list_together(&[prefix]).await?;
        listings.pop().ok_or_else(|| StoreError::malformed("no listing"))
    }

    /// Lists several prefixes, all at the same revision.
    pub(crate) async fn list_together(
        &self,
        prefixes: &[&str],
    ) -> Result<Vec<Listing>, StoreError> {
        let mut starts = 0;
        loop {
            starts += 1;
            match self.try_list_together(prefixes).await {
                Err(error) if error.class == ErrorClass::Compacted && starts < STARTS_MAX => {
                    tracing::debug!(%error, "listing begins again");
                }
                result => return result,
            }
        }
    }

    /// What the store holds under a prefix beyond a revision; reads no values.
    pub(crate) async fn beyond(
        &self,
        prefix: &str,
        revision: Revision,
    ) -> Result<Beyond, StoreError> {
        let answer = self
            .pool
            .repeat(Op::List, |client| async move {
                let options = GetOptions::new()
                    .with_prefix()
                    .with_min_mod_revision(revision + 1)
                    .with_limit(1)
                    .with_keys_only();
                client.kv_client().get(prefix, Some(options)).await
            })
            .await?;
        let header = answer.header().ok_or_else(|| StoreError::malformed("get without header"))?;
        Ok(Beyond {
            revision: header.revision(),
            count: usize::try_from(answer.count()).unwrap_or(0),
            newer: !answer.kvs().is_empty(),
        })
    }

    async fn try_list_together(&self, prefixes: &[&str]) -> Result<Vec<Listing>, StoreError> {
        let mut position: Option<Position> = None;
        let mut listings = Vec::with_capacity(prefixes.len());
        for prefix in prefixes {
            let entries = self.list_pages(prefix, &mut position).await?;
            let Position { revision, cluster_id } =
                position.ok_or_else(|| StoreError::malformed("listing without header"))?;
            listings.push(Listing { revision, cluster_id, entries });
        }
        Ok(listings)
    }

    async fn list_pages(
        &self,
        prefix: &str,
        position: &mut Option<Position>,
    ) -> Result<Vec<Entry>, StoreError> {
        let end = prefix_end(prefix.as_bytes());
        let mut from = prefix.as_bytes().to_vec();
        if from.is_empty() {
            from.push(0);
        }
        let mut limit = self.pool.config.page_size;
        let mut entries = Vec::new();
        loop {
            let revision = position.map(|p| p.revision);
            let page = match self.page(&from, &end, limit, revision).await {
                // Entries that are large together may fit in smaller pages.
                Err(error) if error.class == ErrorClass::TooLarge && limit > 1 => {
                    limit = (limit / 4).max(1);
                    continue;
                }
                page => page?,
            };
            let header =
                page.header().ok_or_else(|| StoreError::malformed("page without header"))?;
            let first = *position.get_or_insert(Position {
                revision: header.revision(),
                cluster_id: header.cluster_id(),
            });
            if first.cluster_id != header.cluster_id() {
                let detail = "the store was replaced during a listing";
                return Err(StoreError::new(ErrorClass::Compacted, detail));
            }
            entries.extend(page.kvs().iter().filter_map(Entry::from_etcd));
            match page.kvs().last() {
                Some(last) if page.more() => {
                    from = last.key().to_vec();
                    from.push(0);
                }
                _ => return Ok(entries),
            }
        }
    }

    async fn page(
        &self,
        from: &[u8],
        end: &[u8],
        limit: i64,
        revision: Option<Revision>,
    ) -> Result<GetResponse, StoreError> {
        self.pool
            .repeat(Op::List, |client| async move {
                let mut options = GetOptions::new().with_range(end).with_limit(limit);
                if let Some(revision) = revision {
                    options = options.with_revision(revision);
                }
                let mut kv = client.kv_client().max_decoding_message_size(ANSWER_MAX_BYTES);
                kv.get(from, Some(options)).await
            })
            .await
    }
}

/// See [`Store::beyond`].
pub(crate) struct Beyond {
    /// When it was read.
    pub(crate) revision: Revision,
    /// All keys under the prefix.
    pub(crate) count: usize,
    /// Whether any was written later.
    pub(crate) newer: bool,
}

#[derive(Clone, Copy)]
struct Position {
    revision: Revision,
    cluster_id: u64,
}

/// The first key after all keys with this prefix; `\0` means the end of the key space.
pub(crate) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return end;
        }
        end.pop();
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_next_key_that_lacks_it() {
        assert_eq!(prefix_end(b"/cluster/"), b"/cluster0");
        assert_eq!(prefix_end(b"a\xff"), b"b");
        assert_eq!(prefix_end(b"\xff\xff"), b"\0");
        assert_eq!(prefix_end(b""), b"\0");
    }
}
