//! Operators' pauses of copies: asked for, stored, ended.

use evenkeel_coordination::{Guard, Guarded, Outcome, Revision, Write};
use evenkeel_model::{CopyClass, CopyPauseRecord, Millis, PauseScope, RECORD_VERSION};
use evenkeel_proto::migrations::{
    PauseCopiesRequest, PauseCopiesResponse, ResumeCopiesRequest, ResumeCopiesResponse,
};
use evenkeel_proto::refusal::{Reason, refuse};
use tonic::Status;

use crate::desk::{Desk, over};
use crate::engine;
use crate::service::MigrationsService;

/// What is paused when nothing is named: never a repair.
const ROUTINE: [CopyClass; 4] =
    [CopyClass::Drain, CopyClass::Spread, CopyClass::Balance, CopyClass::Maintenance];

/// Scopes in one request: they are one transaction.
const SCOPES_MAX: usize = 50;

/// Others may change pauses while they are read; more often than this it is given up.
const TRIES: u32 = 5;

/// A pause that ended so long ago tells nobody anything any more.
const KEPT_MS: Millis = 24 * 3600 * 1000;

/// Everybody who looks at copies reads it.
const REASON_MAX: usize = 200;

impl MigrationsService {
    pub(crate) async fn pause(
        &self,
        request: PauseCopiesRequest,
    ) -> Result<PauseCopiesResponse, Status> {
        let scopes = scopes_of(&request)?;
        if request.by.is_empty() {
            return Err(invalid("by: it is empty: expected who pauses copies"));
        }
        let reason = request.reason.trim();
        let length = reason.chars().count();
        if !(1..=REASON_MAX).contains(&length) || reason.chars().any(char::is_control) {
            let detail = format!(
                "reason: {length} characters are not valid: expected 1 to {REASON_MAX} printable ones"
            );
            return Err(invalid(detail));
        }
        if let Some(for_ms) = request.for_ms.filter(|ms| *ms <= 0) {
            let detail = format!("for_ms: {for_ms} is out of range: expected at least 1");
            return Err(invalid(detail));
        }
        let desk = self.desk()?;
        self.check_shards(&scopes).await?;
        let now_ms = self.clock.now_ms();
        let pauses: Vec<CopyPauseRecord> = scopes
            .into_iter()
            .map(|scope| CopyPauseRecord {
                v: RECORD_VERSION,
                scope,
                by: request.by.clone(),
                reason: reason.to_owned(),
                at_ms: now_ms,
                until_ms: request.for_ms.map(|ms| now_ms.saturating_add(ms)),
            })
            .collect();
        self.store_pauses(&desk, &pauses, now_ms).await?;
        for pause in &pauses {
            let (by, reason) = (&pause.by, &pause.reason);
            tracing::warn!(scope = %pause.scope, by, reason, until_ms = pause.until_ms, "copies paused");
        }
        Ok(PauseCopiesResponse { pauses: pauses.iter().map(engine::pause).collect() })
    }

    pub(crate) async fn resume(
        &self,
        request: ResumeCopiesRequest,
    ) -> Result<ResumeCopiesResponse, Status> {
        let scopes = parse_scopes(&request.scopes)?;
        let desk = self.desk()?;
        let now_ms = self.clock.now_ms();
        let ended = self.end_pauses(&desk, &scopes, now_ms).await?;
        for pause in &ended {
            tracing::info!(scope = %pause.scope, by = request.by, "copies go on");
        }
        Ok(ResumeCopiesResponse { ended: ended.iter().map(engine::pause).collect() })
    }

    /// A pause of a shard that is not there would hold nothing, and nobody would notice.
    async fn check_shards(&self, scopes: &[PauseScope]) -> Result<(), Status> {
        for scope in scopes {
            let PauseScope::Shard(shard) = scope else { continue };
            let found = self.store.get(&self.keys.assignment(shard)).await.map_err(|error| {
                let detail = format!("cannot look for shard {shard}: {error}");
                refuse(Reason::StoreUnavailable, detail)
            })?;
            if found.is_none() {
                return Err(refuse(Reason::NotFound, format!("there is no shard {shard}")));
            }
        }
        Ok(())
    }

    /// Stores pauses, and removes those that have long been over.
    async fn store_pauses(
        &self,
        desk: &Desk,
        pauses: &[CopyPauseRecord],
        now_ms: Millis,
    ) -> Result<(), Status> {
        for _ in 0..TRIES {
            let stored = self.stored().await?;
            let keys: Vec<String> =
                pauses.iter().map(|pause| self.keys.copy_pause(&pause.scope)).collect();
            let long_over = stored.iter().filter(|old| {
                let until = old.pause.as_ref().and_then(|pause| pause.until_ms);
                !keys.contains(&old.key) && until.is_some_and(|until| until < now_ms - KEPT_MS)
            });
            let mut txn = guarded(desk);
            for old in long_over.take(SCOPES_MAX) {
                txn.guards.push(guard(&old.key, old.revision));
                txn.writes.push(Write::Delete { key: old.key.clone() });
            }
            for (key, pause) in keys.iter().zip(pauses) {
                let known = stored.iter().find(|old| old.key == *key);
                txn.guards.push(guard(key, known.map_or(0, |old| old.revision)));
                txn.writes.push(put(key.clone(), pause));
            }
            if self.committed(txn, "copies may or may not be paused").await? {
                return Ok(());
            }
        }
        Err(contested())
    }

    /// Ends the pauses that are on, of these scopes or of all, and answers which those were. Their
    /// records stay for a while: the time of a pause does not count against moves.
    async fn end_pauses(
        &self,
        desk: &Desk,
        scopes: &[PauseScope],
        now_ms: Millis,
    ) -> Result<Vec<CopyPauseRecord>, Status> {
        let named = |pause: &CopyPauseRecord| scopes.is_empty() || scopes.contains(&pause.scope);
        let mut ended = Vec::new();
        let mut tries = 0;
        loop {
            let stored = self.stored().await?;
            let on = stored.into_iter().filter_map(|old| {
                let pause = old.pause.filter(|pause| pause.is_on(now_ms) && named(pause))?;
                Some((old.key, old.revision, pause))
            });
            let mut txn = guarded(desk);
            let mut batch = Vec::new();
            for (key, revision, pause) in on.take(SCOPES_MAX) {
                let pause = CopyPauseRecord { until_ms: Some(now_ms), ..pause };
                txn.guards.push(guard(&key, revision));
                txn.writes.push(put(key, &pause));
                batch.push(pause);
            }
            if batch.is_empty() {
                return Ok(ended);
            }
            if self.committed(txn, "pauses may or may not have ended").await? {
                ended.extend(batch);
                continue;
            }
            tries += 1;
            if tries >= TRIES {
                return Err(contested());
            }
        }
    }

    /// Every pause as etcd holds it now: what the engine knows is as old as its last round.
    async fn stored(&self) -> Result<Vec<Stored>, Status> {
        let listing = self.store.list(&self.keys.copy_pauses()).await.map_err(|error| {
            refuse(Reason::StoreUnavailable, format!("pauses cannot be read: {error}"))
        })?;
        let stored = listing.entries.into_iter().map(|entry| {
            let decoded = evenkeel_model::decode(&entry.key, &entry.value);
            let decoded = decoded.inspect_err(|error| tracing::warn!(%error, "left out"));
            Stored { key: entry.key, revision: entry.mod_revision, pause: decoded.ok() }
        });
        Ok(stored.collect())
    }

    /// Whether it was written; not if a pause has changed since it was read.
    async fn committed(&self, txn: Guarded, doubt: &str) -> Result<bool, Status> {
        match self.store.commit(txn).await {
            Outcome::Written { .. } => Ok(true),
            Outcome::Stale { .. } => Ok(false),
            Outcome::Deposed => Err(over()),
            Outcome::Unknown(error) => {
                Err(refuse(Reason::StoreUnavailable, format!("{doubt}: {error}")))
            }
        }
    }
}

/// A pause and where it was read; none if it cannot be read.
struct Stored {
    key: String,
    revision: Revision,
    pause: Option<CopyPauseRecord>,
}

fn guard(key: &str, revision: Revision) -> Guard {
    Guard::ModRevision { key: key.to_owned(), revision }
}

fn put(key: String, pause: &CopyPauseRecord) -> Write {
    Write::Put { key, value: evenkeel_model::encode(pause), lease: None }
}

fn guarded(desk: &Desk) -> Guarded {
    Guarded { token: Some(desk.token.clone()), ..Guarded::default() }
}

fn contested() -> Status {
    refuse(Reason::Conflict, "pauses were changed at the same time; nothing more was written")
}

fn scopes_of(request: &PauseCopiesRequest) -> Result<Vec<PauseScope>, Status> {
    let scopes = parse_scopes(&request.scopes)?;
    match (scopes.is_empty(), request.all) {
        (false, false) => Ok(scopes),
        (true, false) => Ok(ROUTINE.into_iter().map(PauseScope::Class).collect()),
        (true, true) => Ok(CopyClass::ALL.into_iter().map(PauseScope::Class).collect()),
        (false, true) => Err(invalid("all: it was asked for beside scopes: expected one of them")),
    }
}

fn parse_scopes(texts: &[String]) -> Result<Vec<PauseScope>, Status> {
    if texts.len() > SCOPES_MAX {
        let detail = format!("scopes: there are {}: expected at most {SCOPES_MAX}", texts.len());
        return Err(invalid(detail));
    }
    let mut scopes = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        let scope: PauseScope =
            text.parse().map_err(|error| invalid(format!("scopes[{i}]: {error}")))?;
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    Ok(scopes)
}

fn invalid(detail: impl Into<String>) -> Status {
    refuse(Reason::InvalidArgument, detail)
}
