//! The migrator's end of the agents' sessions, played by the test.

use evenkeel_model::{LeaderRecord, encode};
use evenkeel_proto::migrations::agent_message::Message as Up;
use evenkeel_proto::migrations::migrations_server::{Migrations, MigrationsServer};
use evenkeel_proto::migrations::migrator_message::Message as Down;
use evenkeel_proto::migrations::{
    AgentMessage, CopyProgress, Grant, ListLimitsRequest, ListLimitsResponse,
    ListMigrationsRequest, ListMigrationsResponse, MigratorMessage, NodeStatus, PauseCopiesRequest,
    PauseCopiesResponse, ResumeCopiesRequest, ResumeCopiesResponse, SetLimitRequest,
    SetLimitResponse, ShowMigrationRequest, ShowMigrationResponse, Welcome,
};
use evenkeel_runtime::{Health, Network, Shutdown, grpc};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{Cluster, PATIENCE, shard};

/// One broker's session.
pub(crate) struct Line {
    pub(crate) broker: String,
    pub(crate) up: mpsc::UnboundedReceiver<Up>,
    pub(crate) down: mpsc::Sender<Result<MigratorMessage, Status>>,
}

/// The migrator's end of the sessions.
struct Desk {
    token: i64,
    lines: mpsc::UnboundedSender<Line>,
}

#[tonic::async_trait]
impl Migrations for Desk {
    type SessionStream = ReceiverStream<Result<MigratorMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let mut messages = request.into_inner();
        let (down, stream) = mpsc::channel(64);
        let (token, lines) = (self.token, self.lines.clone());
        tokio::spawn(async move {
            let first = messages.message().await.unwrap().unwrap().message;
            let Some(Up::Hello(hello)) = first else { panic!("no greeting: {first:?}") };
            let welcome = Down::Welcome(Welcome { instance: "m".to_owned(), token });
            down.send(Ok(MigratorMessage { message: Some(welcome) })).await.unwrap();
            let (up_tx, up) = mpsc::unbounded_channel();
            let _ = lines.send(Line { broker: hello.broker, up, down });
            while let Ok(Some(AgentMessage { message: Some(message) })) = messages.message().await {
                if up_tx.send(message).is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn list_migrations(
        &self,
        _: Request<ListMigrationsRequest>,
    ) -> Result<Response<ListMigrationsResponse>, Status> {
        Ok(Response::new(ListMigrationsResponse::default()))
    }

    async fn show_migration(
        &self,
        _: Request<ShowMigrationRequest>,
    ) -> Result<Response<ShowMigrationResponse>, Status> {
        Ok(Response::new(ShowMigrationResponse::default()))
    }

    async fn pause_copies(
        &self,
        _: Request<PauseCopiesRequest>,
    ) -> Result<Response<PauseCopiesResponse>, Status> {
        Ok(Response::new(PauseCopiesResponse::default()))
    }

    async fn resume_copies(
        &self,
        _: Request<ResumeCopiesRequest>,
    ) -> Result<Response<ResumeCopiesResponse>, Status> {
        Ok(Response::new(ResumeCopiesResponse::default()))
    }

    async fn list_limits(
        &self,
        _: Request<ListLimitsRequest>,
    ) -> Result<Response<ListLimitsResponse>, Status> {
        Ok(Response::new(ListLimitsResponse::default()))
    }

    async fn set_limit(
        &self,
        _: Request<SetLimitRequest>,
    ) -> Result<Response<SetLimitResponse>, Status> {
        Ok(Response::new(SetLimitResponse {}))
    }
}

/// Serves as the elected migrator; sessions arrive on the channel.
pub(crate) async fn migrator(
    cluster: &Cluster,
    token: i64,
) -> (mpsc::UnboundedReceiver<Line>, Shutdown) {
    let incoming = Network::tcp().listen("127.0.0.1:0").await.unwrap();
    let record = LeaderRecord {
        v: 1,
        instance: format!("m{token}"),
        address: incoming.address().to_owned(),
        elected_at_ms: 0,
    };
    let (lines, sessions) = mpsc::unbounded_channel();
    let server = grpc::Server::new(evenkeel_proto::DESCRIPTORS)
        .unwrap()
        .add(MigrationsServer::new(Desk { token, lines }));
    let shutdown = Shutdown::new();
    tokio::spawn(server.serve(incoming, Health::new(), shutdown.clone()));
    let key = cluster.keys.migrator_leader();
    cluster.store.delete(&key).await.unwrap();
    cluster.store.put(&key, encode(&record), None).await.unwrap();
    (sessions, shutdown)
}

pub(crate) async fn line_of(sessions: &mut mpsc::UnboundedReceiver<Line>, broker: &str) -> Line {
    timeout(PATIENCE, async {
        loop {
            let line = sessions.recv().await.unwrap();
            if line.broker == broker {
                return line;
            }
        }
    })
    .await
    .unwrap()
}

impl Line {
    pub(crate) async fn tell(&self, message: Down) {
        self.down.send(Ok(MigratorMessage { message: Some(message) })).await.unwrap();
    }

    pub(crate) async fn grant(&self, generation: u64, bytes: u64) {
        let shard = shard(0).to_string();
        self.tell(Down::Grant(Grant { shard, generation, bytes, expires_in_ms: 500 })).await;
    }

    /// The next progress that satisfies a condition.
    pub(crate) async fn progress(
        &mut self,
        mut holds: impl FnMut(&CopyProgress) -> bool,
    ) -> CopyProgress {
        timeout(PATIENCE, async {
            loop {
                if let Up::Progress(progress) = self.up.recv().await.unwrap()
                    && holds(&progress)
                {
                    return progress;
                }
            }
        })
        .await
        .expect("progress")
    }

    /// The next status that satisfies a condition.
    pub(crate) async fn status(
        &mut self,
        mut holds: impl FnMut(&NodeStatus) -> bool,
    ) -> NodeStatus {
        timeout(PATIENCE, async {
            loop {
                if let Up::Status(status) = self.up.recv().await.unwrap()
                    && holds(&status)
                {
                    return status;
                }
            }
        })
        .await
        .expect("status")
    }
}
