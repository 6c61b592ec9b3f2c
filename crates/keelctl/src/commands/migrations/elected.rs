//! The elected migrator, found and followed.

use std::future::Future;

use evenkeel_proto::admin::StatusRequest;
use evenkeel_proto::migrations::migrations_client::MigrationsClient;
use evenkeel_proto::refusal::Reason;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use super::Where;
use crate::Failure;
use crate::cli::Global;

/// Instances that may name one another before it is called a circle.
const HOPS: usize = 3;

/// Where to ask.
pub(super) struct Elected {
    address: String,
}

impl Elected {
    /// The address that was given, else what a load manager knows.
    pub(super) async fn find(global: &Global, at: &Where) -> Result<Self, Failure> {
        if let Some(address) = &at.migrator {
            return Ok(Self { address: address.clone() });
        }
        let admin = global.admin()?;
        let status = admin
            .call(
                "find the migrator",
                true,
                |mut c| async move { c.status(StatusRequest {}).await },
            )
            .await?;
        if status.migrator_address.is_empty() {
            let what = "no migrator is elected, so nothing can say what is copied";
            return Err(Failure::Unreachable(format!("{what}: check that one runs")));
        }
        Ok(Self { address: status.migrator_address })
    }

    /// Sends a call. Who is not the elected one names it, and it is asked instead.
    pub(super) async fn call<T, F, Fut>(&self, action: &str, send: F) -> Result<T, Failure>
    where
        F: Fn(MigrationsClient<Channel>) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut address = self.address.clone();
        for _ in 0..HOPS {
            let status = match send(connect(&address).await?).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            let leader = match Reason::of(&status) {
                Some((Reason::NotLeader, metadata)) => metadata.get("leader").cloned(),
                _ => None,
            };
            match leader.filter(|leader| *leader != address) {
                Some(leader) => address = leader,
                None => return Err(Failure::of_status(action, &status)),
            }
        }
        Err(Failure::Unreachable(format!("cannot {action}: an election is under way; try again")))
    }
}

async fn connect(address: &str) -> Result<MigrationsClient<Channel>, Failure> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| {
        Failure::Input(format!("migrator address '{address}' is not valid: expected host:port"))
    })?;
    let channel = endpoint.connect().await.map_err(|e| {
        let why = crate::admin::root(&e);
        Failure::Unreachable(format!("cannot reach the migrator at {address}: {why}"))
    })?;
    Ok(MigrationsClient::new(channel))
}
