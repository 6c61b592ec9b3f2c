//! The elected migrator, found and followed.

use std::future::Future;
use std::time::Duration;

use evenkeel_proto::admin::StatusRequest;
use evenkeel_proto::migrations::migrations_client::MigrationsClient;
use evenkeel_proto::refusal::Reason;
use tokio::time::{Instant, sleep};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use super::Where;
use crate::Failure;
use crate::cli::Global;

/// Instances that may name one another before it is called a circle.
const HOPS: usize = 3;

/// Between two looks for the elected one.
const PAUSE: Duration = Duration::from_millis(200);

/// Who waits longer is told what for.
const SILENT: Duration = Duration::from_millis(700);

/// What an attempt came to.
enum Missed {
    /// Nobody did anything: ask again, for this reason.
    Again(String),
    /// That is the answer.
    Final(Failure),
}

/// Asks the elected migrator, wherever it is.
pub(super) struct Elected<'a> {
    global: &'a Global,
    at: &'a Where,
}

impl<'a> Elected<'a> {
    /// At the address that was given, else where a load manager knows it.
    pub(super) fn new(global: &'a Global, at: &'a Where) -> Self {
        Self { global, at }
    }

    /// Sends a call. While no migrator is elected or none can be reached it is tried again, for as
    /// long as a load manager would be looked for, and standard error says so. A call whose answer
    /// was lost is sent again only if it is `repeatable`.
    pub(super) async fn call<T, F, Fut>(
        &self,
        action: &str,
        repeatable: bool,
        send: F,
    ) -> Result<T, Failure>
    where
        F: Fn(MigrationsClient<Channel>) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let (began, patience) = (Instant::now(), Duration::from_secs(self.global.timeout));
        let mut told = false;
        loop {
            let why = match self.attempt(action, repeatable, &send).await {
                Ok(answer) => return Ok(answer),
                Err(Missed::Final(failure)) => return Err(failure),
                Err(Missed::Again(why)) => why,
            };
            if began.elapsed() >= patience {
                let waited =
                    format!("no elected migrator answered within {} s", patience.as_secs());
                let what = format!("cannot {action}: {waited} ({why}); check that one runs");
                return Err(Failure::Unreachable(what));
            }
            if !told && began.elapsed() >= SILENT {
                crate::output::note(format!("waiting for a migrator: {why}"));
                told = true;
            }
            sleep(PAUSE).await;
        }
    }

    /// Asks once. Who is not the elected one names it, and it is asked instead.
    async fn attempt<T, F, Fut>(
        &self,
        action: &str,
        repeatable: bool,
        send: &F,
    ) -> Result<T, Missed>
    where
        F: Fn(MigrationsClient<Channel>) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut address = self.address().await?;
        for _ in 0..HOPS {
            let status = match send(connect(&address).await?).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            let named = match Reason::of(&status) {
                Some((Reason::NotLeader, metadata)) => metadata.get("leader").cloned(),
                Some((Reason::NoLeader, _)) => None,
                Some(_) => return Err(Missed::Final(Failure::of_status(action, &status))),
                None if repeatable && is_lost(&status) => None,
                None => return Err(Missed::Final(Failure::of_status(action, &status))),
            };
            match named.filter(|named| *named != address) {
                Some(named) => address = named,
                None => return Err(Missed::Again(status.message().to_owned())),
            }
        }
        Err(Missed::Again("an election is under way".to_owned()))
    }

    async fn address(&self) -> Result<String, Missed> {
        if let Some(address) = &self.at.migrator {
            return Ok(address.clone());
        }
        let admin = self.global.admin().map_err(Missed::Final)?;
        let status = admin
            .call(
                "find the migrator",
                true,
                |mut c| async move { c.status(StatusRequest {}).await },
            )
            .await
            .map_err(Missed::Final)?;
        match status.migrator_address {
            address if address.is_empty() => Err(Missed::Again("none is elected".to_owned())),
            address => Ok(address),
        }
    }
}

/// The answer did not come, whether or not something was done.
fn is_lost(status: &Status) -> bool {
    let codes = [Code::Unavailable, Code::Unknown, Code::Cancelled, Code::DeadlineExceeded];
    codes.contains(&status.code())
}

async fn connect(address: &str) -> Result<MigrationsClient<Channel>, Missed> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| {
        let what = format!("migrator address '{address}' is not valid: expected host:port");
        Missed::Final(Failure::Input(what))
    })?;
    let channel = endpoint.connect_timeout(Duration::from_secs(2)).connect().await;
    let channel = channel.map_err(|e| {
        let why = crate::admin::root(&e);
        Missed::Again(format!("cannot reach the migrator at {address}: {why}"))
    })?;
    Ok(MigrationsClient::new(channel))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use clap::Parser;
    use evenkeel_proto::refusal::refuse;
    use tokio::net::TcpListener;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        global: Global,
        #[command(flatten)]
        at: Where,
    }

    fn line(address: &str, timeout: &str) -> Line {
        Line::parse_from(["keelctl", "--timeout", timeout, "--migrator", address])
    }

    #[tokio::test]
    async fn while_nobody_is_elected_the_call_is_tried_again_and_lost_answers_only_if_harmless() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let line = line(&listener.local_addr().unwrap().to_string(), "10");
        let elected = Elected::new(&line.global, &line.at);
        let asked = AtomicU32::new(0);
        let third = |failure: fn() -> Status| {
            let nth = asked.fetch_add(1, Ordering::Relaxed);
            async move { if nth < 2 { Err(failure()) } else { Ok(Response::new(nth)) } }
        };
        let none = || refuse(Reason::NoLeader, "no migrator is elected now");
        assert_eq!(elected.call("look", false, |_| third(none)).await, Ok(2));
        asked.store(0, Ordering::Relaxed);
        let lost = || Status::unavailable("connection reset");
        assert_eq!(elected.call("look", true, |_| third(lost)).await, Ok(2));
        asked.store(0, Ordering::Relaxed);
        let failure = elected.call("end it", false, |_| third(lost)).await.unwrap_err();
        assert_eq!(failure, Failure::Unreachable("cannot end it: connection reset".to_owned()));
        asked.store(0, Ordering::Relaxed);
        let bad = || refuse(Reason::InvalidArgument, "shard: no");
        let failure = elected.call("look", true, |_| third(bad)).await.unwrap_err();
        assert_eq!(failure, Failure::Input("cannot look: shard: no".to_owned()));
    }

    #[tokio::test]
    async fn who_cannot_be_reached_in_time_is_named() {
        let line = line("127.0.0.1:1", "1");
        let elected = Elected::new(&line.global, &line.at);
        let began = Instant::now();
        let failure = elected.call("look", true, |_| async { Ok(Response::new(())) }).await;
        let text = failure.unwrap_err().to_string();
        let expected = "cannot look: no elected migrator answered within 1 s (cannot reach the \
                        migrator at 127.0.0.1:1: ";
        assert!(text.starts_with(expected), "{text}");
        assert!(began.elapsed() < Duration::from_secs(4));
    }
}
