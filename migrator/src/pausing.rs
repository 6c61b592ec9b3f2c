//! Operators' pauses of copies: asked for, stored, ended.

use evenkeel_coordination::{Guarded, Write};
use evenkeel_model::{CopyClass, CopyPauseRecord, Millis, PauseScope, RECORD_VERSION};
use evenkeel_proto::migrations::{
    PauseCopiesRequest, PauseCopiesResponse, ResumeCopiesRequest, ResumeCopiesResponse,
};
use evenkeel_proto::refusal::{Reason, refuse};
use tonic::Status;

use crate::desk::Ask;
use crate::engine;
use crate::service::MigrationsService;

/// What is paused when nothing is named: never a repair.
const ROUTINE: [CopyClass; 4] =
    [CopyClass::Drain, CopyClass::Spread, CopyClass::Balance, CopyClass::Maintenance];

/// Scopes in one request: they are one transaction.
const SCOPES_MAX: usize = 50;

/// A pause that ended so long ago tells nobody anything any more.
const KEPT_MS: Millis = 24 * 3600 * 1000;

impl MigrationsService {
    pub(crate) async fn pause(
        &self,
        request: PauseCopiesRequest,
    ) -> Result<PauseCopiesResponse, Status> {
        let scopes = scopes_of(&request)?;
        if request.by.is_empty() {
            return Err(invalid("by: it is empty: expected who pauses copies"));
        }
        if let Some(for_ms) = request.for_ms.filter(|ms| *ms <= 0) {
            let detail = format!("for_ms: {for_ms} is out of range: expected at least 1");
            return Err(invalid(detail));
        }
        let desk = self.desk()?;
        let now_ms = self.clock.now_ms();
        let pauses: Vec<CopyPauseRecord> = scopes
            .into_iter()
            .map(|scope| CopyPauseRecord {
                v: RECORD_VERSION,
                scope,
                by: request.by.clone(),
                reason: request.reason.clone(),
                at_ms: now_ms,
                until_ms: request.for_ms.map(|ms| now_ms.saturating_add(ms)),
            })
            .collect();
        let stored = desk.question(Ask::Pauses).await?;
        let mut writes: Vec<Write> = pauses.iter().map(|pause| self.put(pause)).collect();
        let long_over = stored.into_iter().filter(|old| {
            let replaced = pauses.iter().any(|pause| pause.scope == old.scope);
            !replaced && old.until_ms.is_some_and(|until| until < now_ms - KEPT_MS)
        });
        let delete = |old: CopyPauseRecord| Write::Delete { key: self.keys.copy_pause(&old.scope) };
        writes.extend(long_over.take(SCOPES_MAX).map(delete));
        let txn = Guarded { token: Some(desk.token), guards: Vec::new(), writes };
        self.commit(txn, "copies may or may not be paused").await?;
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
        let stored = desk.question(Ask::Pauses).await?;
        let named = |pause: &CopyPauseRecord| scopes.is_empty() || scopes.contains(&pause.scope);
        let ended: Vec<CopyPauseRecord> = stored
            .into_iter()
            .filter(|pause| pause.is_on(now_ms) && named(pause))
            .map(|pause| CopyPauseRecord { until_ms: Some(now_ms), ..pause })
            .collect();
        for batch in ended.chunks(SCOPES_MAX) {
            // The record stays for a while: the time of the pause does not count against moves.
            let writes = batch.iter().map(|pause| self.put(pause)).collect();
            let txn = Guarded { token: Some(desk.token.clone()), guards: Vec::new(), writes };
            self.commit(txn, "pauses may or may not have ended").await?;
        }
        for pause in &ended {
            tracing::info!(scope = %pause.scope, by = request.by, "copies go on");
        }
        Ok(ResumeCopiesResponse { ended: ended.iter().map(engine::pause).collect() })
    }

    fn put(&self, pause: &CopyPauseRecord) -> Write {
        let key = self.keys.copy_pause(&pause.scope);
        Write::Put { key, value: evenkeel_model::encode(pause), lease: None }
    }
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
