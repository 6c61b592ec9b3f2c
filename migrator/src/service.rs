//! The gRPC service: sessions with agents, and what people ask.

use std::pin::Pin;

use evenkeel_coordination::{Guarded, Outcome, Store, Write};
use evenkeel_model::keys::Keys;
use evenkeel_model::{BrokerId, CopyClass, LimitRecord, RECORD_VERSION, ShardKey};
use evenkeel_proto::migrations::migrations_server::Migrations;
use evenkeel_proto::migrations::{
    AgentMessage, ListLimitsRequest, ListLimitsResponse, ListMigrationsRequest,
    ListMigrationsResponse, MigratorMessage, PauseCopiesRequest, PauseCopiesResponse,
    ResumeCopiesRequest, ResumeCopiesResponse, SetLimitRequest, SetLimitResponse,
    ShowMigrationRequest, ShowMigrationResponse,
};
use evenkeel_proto::refusal::{Reason, refuse};
use evenkeel_runtime::Clock;
use futures_util::Stream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::desk::{Ask, Desk, Front};
use crate::engine::Page;
use crate::sessions::converse;

/// Copies in one answer, if the request does not say, and at most.
const PAGE: u32 = 500;
const PAGE_MAX: u32 = 10_000;

/// The lowest cap: a chunk a second. Below it a copy does not end, and is better paused.
const LEAST_LIMIT: u64 = 64 << 10;

/// Messages that may wait for an agent: some seconds of grants.
const OUTBOUND: usize = 512;

/// See the module.
pub struct MigrationsService {
    /// Who leads.
    pub front: Front,
    /// For operators' caps.
    pub store: Store,
    /// Key paths.
    pub keys: Keys,
    /// For records.
    pub clock: Clock,
}

#[tonic::async_trait]
impl Migrations for MigrationsService {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<MigratorMessage, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let desk = self.front.desk()?;
        let (outbound, messages) = mpsc::channel(OUTBOUND);
        // The answer must not wait for the first message: a client may send it only then.
        tokio::spawn(converse(desk, request.into_inner(), outbound));
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }

    async fn list_migrations(
        &self,
        request: Request<ListMigrationsRequest>,
    ) -> Result<Response<ListMigrationsResponse>, Status> {
        let page = page_of(&request.into_inner())?;
        let answer = self.front.desk()?.question(|answer| Ask::Migrations(page, answer)).await?;
        Ok(Response::new(answer))
    }

    async fn show_migration(
        &self,
        request: Request<ShowMigrationRequest>,
    ) -> Result<Response<ShowMigrationResponse>, Status> {
        let shard = shard_of("shard", &request.into_inner().shard)?;
        let desk = self.front.desk()?;
        match desk.question(|answer| Ask::Show(shard.clone(), answer)).await? {
            Some(shown) => Ok(Response::new(*shown)),
            None => Err(refuse(Reason::NotFound, format!("nothing of {shard} is being copied"))),
        }
    }

    async fn list_limits(
        &self,
        _: Request<ListLimitsRequest>,
    ) -> Result<Response<ListLimitsResponse>, Status> {
        let limits = self.front.desk()?.question(Ask::Limits).await?;
        Ok(Response::new(ListLimitsResponse { limits }))
    }

    async fn set_limit(
        &self,
        request: Request<SetLimitRequest>,
    ) -> Result<Response<SetLimitResponse>, Status> {
        let SetLimitRequest { broker, bytes_per_second } = request.into_inner();
        let broker = broker_of(&broker)?;
        let desk = self.front.desk()?;
        if !desk.question(|answer| Ask::Knows(broker.clone(), answer)).await? {
            return Err(refuse(Reason::NotFound, format!("there is no broker {broker}")));
        }
        if (1..LEAST_LIMIT).contains(&bytes_per_second) {
            let detail = format!(
                "bytes_per_second: {bytes_per_second} is too low: expected at least {LEAST_LIMIT}, or \
                 0, which lifts the cap; a pause is what stops copies"
            );
            return Err(refuse(Reason::InvalidArgument, detail));
        }
        let key = self.keys.limit(&broker);
        let write = match bytes_per_second {
            0 => Write::Delete { key },
            _ => {
                let at_ms = self.clock.now_ms();
                let record = LimitRecord {
                    v: RECORD_VERSION,
                    broker: broker.clone(),
                    bytes_per_second,
                    at_ms,
                };
                Write::Put { key, value: evenkeel_model::encode(&record), lease: None }
            }
        };
        let txn = Guarded { token: Some(desk.token), guards: Vec::new(), writes: vec![write] };
        self.commit(txn, "the limit may or may not be set").await?;
        tracing::info!(%broker, bytes_per_second, "limit set");
        Ok(Response::new(SetLimitResponse {}))
    }

    async fn pause_copies(
        &self,
        request: Request<PauseCopiesRequest>,
    ) -> Result<Response<PauseCopiesResponse>, Status> {
        self.pause(request.into_inner()).await.map(Response::new)
    }

    async fn resume_copies(
        &self,
        request: Request<ResumeCopiesRequest>,
    ) -> Result<Response<ResumeCopiesResponse>, Status> {
        self.resume(request.into_inner()).await.map(Response::new)
    }
}

impl MigrationsService {
    /// Writes under the leader's token; `doubt` is what is told when the outcome is not known.
    pub(crate) async fn commit(&self, txn: Guarded, doubt: &str) -> Result<(), Status> {
        match self.store.commit(txn).await {
            Outcome::Written { .. } => Ok(()),
            Outcome::Deposed | Outcome::Stale { .. } => Err(crate::desk::over()),
            Outcome::Unknown(error) => {
                Err(refuse(Reason::StoreUnavailable, format!("{doubt}: {error}")))
            }
        }
    }

    pub(crate) fn desk(&self) -> Result<Desk, Status> {
        self.front.desk()
    }
}

fn page_of(request: &ListMigrationsRequest) -> Result<Page, Status> {
    let size = match request.page_size {
        0 => PAGE,
        size => size.min(PAGE_MAX),
    };
    let after = match request.page_token.as_str() {
        "" => None,
        token => Some(shard_of("page_token", token)?),
    };
    let class = match request.class.as_deref() {
        None => None,
        Some(word) => Some(
            word.parse::<CopyClass>()
                .map_err(|error| refuse(Reason::InvalidArgument, format!("class: {error}")))?,
        ),
    };
    Ok(Page { after, class, size: size as usize })
}

fn shard_of(field: &str, text: &str) -> Result<ShardKey, Status> {
    text.parse().map_err(|error| refuse(Reason::InvalidArgument, format!("{field}: {error}")))
}

pub(crate) fn broker_of(text: &str) -> Result<BrokerId, Status> {
    text.parse().map_err(|error| refuse(Reason::InvalidArgument, format!("broker: {error}")))
}
