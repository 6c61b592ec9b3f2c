//! Lists, watches, and starts over whenever it must.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{WatchOptions, WatchStream};
use tokio::time::{Instant, sleep, timeout};

use super::ViewConfig;
use super::cursor::{Cursor, Message, Relist, Reopen, Verdict};
use super::shared::Shared;
use crate::backoff::Backoff;
use crate::metrics::{self, Op};
use crate::store::{Lane, Ticket, prefix_end};
use crate::turn::until;
use crate::{Store, StoreError};

/// Which part of the view a feed keeps.
pub(super) struct Scope {
    pub(super) index: usize,
    pub(super) prefixes: Vec<String>,
}

pub(super) struct Feed {
    store: Store,
    shared: Arc<Shared>,
    config: ViewConfig,
    scope: Scope,
    backoff: Backoff,
    relist_at: Option<Instant>,
}

/// Why a watch ended.
enum Ended {
    Relist(Relist),
    Reopen(Reopen),
}

enum Turn {
    Relist,
    Message(Result<Option<etcd_client::WatchResponse>, etcd_client::Error>),
    Silence,
}

impl Feed {
    pub(super) fn new(store: Store, shared: Arc<Shared>, config: ViewConfig, scope: Scope) -> Self {
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        Self { store, shared, config, scope, backoff, relist_at: None }
    }

    pub(super) async fn run(mut self) {
        let mut cursor = self.relist_until_done(Relist::Start, None).await;
        loop {
            match self.follow(&mut cursor).await {
                Ended::Relist(reason) => {
                    tracing::info!(prefixes = ?self.scope.prefixes, reason = reason.label(),
                        "view lists again");
                    if reason == Relist::Regressed {
                        // A member that is far behind would only send us back here.
                        self.pause().await;
                    }
                    cursor = self.relist_until_done(reason, Some(&cursor)).await;
                }
                Ended::Reopen(reason) => {
                    metrics::reopened(reason.label());
                    tracing::debug!(prefixes = ?self.scope.prefixes, reason = reason.label(),
                        "watch is opened again");
                    cursor.reopened();
                    self.pause().await;
                }
            }
        }
    }

    async fn pause(&mut self) {
        sleep(self.backoff.pause(&self.store.pool.jitter)).await;
    }

    async fn relist_until_done(&mut self, reason: Relist, old: Option<&Cursor>) -> Cursor {
        loop {
            match self.relist(reason, old).await {
                Ok(cursor) => return cursor,
                Err(error) => {
                    let prefixes = &self.scope.prefixes;
                    tracing::warn!(?prefixes, %error, "view cannot list; trying again");
                    self.pause().await;
                }
            }
        }
    }

    async fn relist(&mut self, reason: Relist, old: Option<&Cursor>) -> Result<Cursor, StoreError> {
        let prefixes: Vec<&str> = self.scope.prefixes.iter().map(String::as_str).collect();
        let listings = self.store.list_together(&prefixes).await?;
        let first = listings.first().ok_or_else(|| StoreError::malformed("no listing"))?;
        let cursor = Cursor::after(first.cluster_id, first.revision);
        // A store may be wiped and keep its cluster's identity; then its revisions go back.
        let same_store =
            old.is_none_or(|old| old.cluster_id == cursor.cluster_id && old.next <= cursor.next);
        let index = self.scope.index;
        let drifted = self.shared.replace(index, &self.scope.prefixes, listings, same_store);
        if drifted > 0 && reason == Relist::Periodic {
            metrics::drifted(drifted);
            tracing::warn!(prefixes = ?self.scope.prefixes, drifted, "watch had missed events");
        }
        metrics::relisted(reason.label());
        self.shared.heard(index);
        self.relist_at = self
            .config
            .relist_every
            .map(|every| Instant::now() + self.store.pool.jitter.spread(every));
        Ok(cursor)
    }

    /// Watches from the cursor until something is wrong.
    async fn follow(&mut self, cursor: &mut Cursor) -> Ended {
        // A failure shows in the opening that follows.
        let _ = self.store.pool.refresh_token().await;
        let (mut watch, ticket) = match self.open(cursor).await {
            Ok(opened) => opened,
            Err(_) => return Ended::Reopen(Reopen::Error),
        };
        let mut asked = false;
        loop {
            let patience = if asked { self.config.answer_timeout } else { self.config.silence };
            let relist_at = self.relist_at;
            let turn = tokio::select! {
                biased;
                () = until(relist_at) => Turn::Relist,
                read = timeout(patience, watch.message()) => match read {
                    Ok(message) => Turn::Message(message),
                    Err(_) => Turn::Silence,
                },
            };
            match turn {
                Turn::Relist => {
                    if let Some(ended) = self.compare(cursor).await {
                        return ended;
                    }
                }
                Turn::Silence if asked => {
                    self.store.pool.blame(ticket, true);
                    return Ended::Reopen(Reopen::Silent);
                }
                Turn::Silence => {
                    asked = true;
                    let request = timeout(self.config.answer_timeout, watch.request_progress());
                    if !matches!(request.await, Ok(Ok(()))) {
                        self.store.pool.blame(ticket, true);
                        return Ended::Reopen(Reopen::Silent);
                    }
                }
                Turn::Message(Ok(Some(message))) => {
                    asked = false;
                    if let Some(ended) = self.take(cursor, Message::from_etcd(&message), ticket) {
                        return ended;
                    }
                }
                Turn::Message(Ok(None)) => {
                    self.store.pool.blame(ticket, false);
                    return Ended::Reopen(Reopen::Closed);
                }
                Turn::Message(Err(error)) => {
                    let error = StoreError::classify(error);
                    metrics::failed(error.class);
                    self.store.pool.blame(ticket, false);
                    return Ended::Reopen(Reopen::Error);
                }
            }
        }
    }

    fn take(&mut self, cursor: &mut Cursor, message: Message, ticket: Ticket) -> Option<Ended> {
        let index = self.scope.index;
        self.shared.heard(index);
        match cursor.accept(message) {
            Verdict::Alive => {}
            Verdict::Apply { changes, revision } => {
                // Joint watches see more than the view's prefixes.
                let prefixes = &self.scope.prefixes;
                let ours = changes.into_iter().filter(|change| within(prefixes, change)).collect();
                self.shared.apply(index, ours, revision);
                self.backoff.reset();
            }
            Verdict::Relist(reason) => {
                if reason == Relist::Regressed {
                    self.store.pool.blame(ticket, false);
                }
                return Some(Ended::Relist(reason));
            }
            Verdict::Reopen(reason) => return Some(Ended::Reopen(reason)),
        }
        None
    }

    /// The periodic listing. The open watch goes on: what the listing has seen already is skipped.
    async fn compare(&mut self, cursor: &mut Cursor) -> Option<Ended> {
        match self.relist(Relist::Periodic, Some(cursor)).await {
            Ok(listed) => {
                let same_store =
                    listed.cluster_id == cursor.cluster_id && listed.next >= cursor.next;
                *cursor = listed;
                (!same_store).then_some(Ended::Reopen(Reopen::Closed))
            }
            Err(error) => {
                tracing::debug!(%error, "periodic listing failed");
                self.relist_at = self.config.relist_every.map(|every| Instant::now() + every / 10);
                None
            }
        }
    }

    async fn open(&self, cursor: &Cursor) -> Result<(WatchStream, Ticket), StoreError> {
        let prefix = common_prefix(&self.scope.prefixes);
        let mut options = WatchOptions::new()
            .with_start_revision(cursor.next)
            .with_fragment()
            .with_progress_notify();
        options = if prefix.is_empty() {
            options.with_all_keys()
        } else {
            options.with_range(prefix_end(prefix.as_bytes()))
        };
        let limit = self.store.pool.request_timeout();
        self.store
            .pool
            .once(Op::Watch, Lane::Streams, limit, |mut client| async move {
                client.watch(prefix, Some(options)).await
            })
            .await
    }
}

fn within(prefixes: &[String], change: &super::Change) -> bool {
    let key = match change {
        super::Change::Put(entry) => &entry.key,
        super::Change::Delete { key, .. } => key,
        super::Change::Reset => return true,
    };
    prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()))
}

/// The longest text that all prefixes begin with.
fn common_prefix(prefixes: &[String]) -> String {
    let Some(first) = prefixes.first() else { return String::new() };
    let shared = |prefix: &String| {
        let pairs = first.char_indices().zip(prefix.chars());
        pairs.take_while(|((_, a), b)| a == b).map(|((at, a), _)| at + a.len_utf8()).last()
    };
    let length = prefixes.iter().map(|prefix| shared(prefix).unwrap_or(0)).min().unwrap_or(0);
    first[..length].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watch_covers_what_all_prefixes_share() {
        let common = |prefixes: &[&str]| {
            common_prefix(&prefixes.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(common(&["/c/shards/", "/c/streams/"]), "/c/s");
        assert_eq!(common(&["/c/leader/"]), "/c/leader/");
        assert_eq!(common(&["/a", "b"]), "");
        assert_eq!(common(&["é/1", "ê/2"]), "");
        assert_eq!(common(&[]), "");
    }
}
