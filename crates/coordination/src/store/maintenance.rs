//! Start-up check, compaction, and making room in a store that has run out of it.

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, CompactionOptions};
use tokio::time::{Instant, sleep, timeout};

use super::{Lane, Store};
use crate::backoff::Backoff;
use crate::metrics::Op;
use crate::{ErrorClass, Revision, StoreError};

/// What the endpoint in use says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// etcd's version.
    pub version: String,
    /// Size of the database file, bytes.
    pub db_size: i64,
    /// Alarms and the like, such as `alarm:NOSPACE`; empty when all is well.
    pub errors: Vec<String>,
}

impl Store {
    /// Waits until the store answers a read; for start-up.
    ///
    /// # Errors
    /// What keeps it from answering: at once if trying again is useless, else after `patience`.
    pub async fn probe(&self, patience: Duration) -> Result<(), StoreError> {
        let give_up_at = Instant::now() + patience;
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        loop {
            let error = match self.try_read().await {
                Ok(()) => break,
                Err(error) => error,
            };
            let pause = backoff.pause(&self.pool.jitter);
            let hopeless = matches!(error.class, ErrorClass::Fatal | ErrorClass::Auth);
            if hopeless || Instant::now() + pause >= give_up_at {
                let detail = format!("no usable store at {}: {}", self.endpoints(), error.detail);
                return Err(StoreError::new(error.class, detail));
            }
            tracing::info!(endpoints = %self.endpoints(), %error, "waiting for etcd");
            sleep(pause).await;
        }
        // Only a warning: a user without rights to it may still use the store.
        if let Ok(status) = self.status().await {
            if unsafe_version(&status.version) {
                let version = &status.version;
                tracing::warn!(%version, "this etcd version can lose data; use 3.4.22+ or 3.5.6+");
            }
            if !status.errors.is_empty() {
                tracing::warn!(errors = ?status.errors, "etcd reports errors");
            }
        }
        Ok(())
    }

    /// One attempt only, so that what is wrong is told soon.
    async fn try_read(&self) -> Result<(), StoreError> {
        let key = self.pool.config.probe_key.as_str();
        let limit = self.pool.request_timeout();
        self.pool
            .once(Op::Get, Lane::Calls, limit, |client| async move {
                client.kv_client().get(key, None).await
            })
            .await
            .map(|_| ())
    }

    /// Version, size and alarms of the endpoint in use.
    pub async fn status(&self) -> Result<Status, StoreError> {
        let answer =
            self.pool.repeat(Op::Status, |mut client| async move { client.status().await }).await?;
        Ok(Status {
            version: answer.version().to_owned(),
            db_size: answer.db_size(),
            errors: answer.errors().to_vec(),
        })
    }

    /// Forgets history before `revision`. Compact some minutes behind the head, so that views
    /// that were cut off need not list again. Having been compacted already is no error.
    pub async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let done = self
            .pool
            .repeat(Op::Compact, |mut client| async move { client.compact(revision, None).await })
            .await;
        match done {
            Err(error) if error.detail.contains("has been compacted") => Ok(()),
            // A revision that does not exist yet: nothing that listing again would mend.
            Err(error) if error.class == ErrorClass::Compacted => {
                Err(StoreError::new(ErrorClass::Fatal, error.detail))
            }
            done => done.map(|_| ()),
        }
    }

    /// Makes room in a store whose quota is used up: compacts at `revision`, returns the freed
    /// pages of every member's file, and only then lifts the alarm. Each member stands still while
    /// its file is rewritten. `patience` limits each of these calls.
    pub async fn reclaim(&self, revision: Revision, patience: Duration) -> Result<(), StoreError> {
        let in_time = |result: Result<Result<(), etcd_client::Error>, _>| match result {
            Ok(done) => done.map_err(StoreError::classify),
            Err(_) => Err(StoreError::timed_out(patience)),
        };
        let compaction = timeout(patience, async {
            let options = CompactionOptions::new().with_physical();
            let mut client = self.pool.member(0).await?;
            client.compact(revision, Some(options)).await.map(|_| ())
        });
        match in_time(compaction.await) {
            Err(error) if error.class != ErrorClass::Compacted => return Err(error),
            _ => {}
        }
        for member in 0..self.pool.endpoint_count() {
            let defragmentation = timeout(patience, async {
                self.pool.member(member).await?.defragment().await.map(|_| ())
            });
            in_time(defragmentation.await)?;
        }
        self.lift_no_space_alarms().await
    }

    /// An alarm belongs to the member that raised it, and is lifted by naming that member.
    async fn lift_no_space_alarms(&self) -> Result<(), StoreError> {
        let answer = self
            .pool
            .repeat(Op::Maintain, |mut client| async move {
                client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await
            })
            .await?;
        for alarm in answer.alarms().iter().filter(|a| a.alarm() == AlarmType::Nospace) {
            let mut member = AlarmOptions::new();
            member.with_member(alarm.member_id());
            let member = &member;
            self.pool
                .repeat(Op::Maintain, |mut client| async move {
                    let lift = AlarmAction::Deactivate;
                    client.alarm(lift, AlarmType::Nospace, Some(member.clone())).await
                })
                .await?;
        }
        Ok(())
    }
}

/// 3.5.0 to 3.5.5 and 3.4 before 3.4.22 can lose or corrupt acknowledged writes.
fn unsafe_version(version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(u32::MAX));
    let mut next = || numbers.next().unwrap_or(0);
    match (next(), next(), next()) {
        (3, 5, patch) => patch < 6,
        (3, 4, patch) => patch < 22,
        (3, minor, _) => minor < 4,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_lose_writes_are_known() {
        for version in ["3.5.0", "3.5.5", "3.4.21", "3.3.9"] {
            assert!(unsafe_version(version), "{version}");
        }
        for version in ["3.5.6", "3.4.23", "3.6.0", "4.0.0", "3.5.21+embedded"] {
            assert!(!unsafe_version(version), "{version}");
        }
    }
}
