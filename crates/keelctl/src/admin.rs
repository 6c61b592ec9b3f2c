//! The load managers: the elected one is found and followed.

use std::future::Future;
use std::time::Duration;

use evenkeel_proto::admin::admin_client::AdminClient;
use evenkeel_proto::admin::{JsonDocument, StatusRequest};
use evenkeel_proto::refusal::{Reason, retry_delay};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use crate::Failure;

const MAX_MESSAGE_BYTES: usize = 256 << 20;
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// A process that answers no ping for so long is frozen or cut off, however long its call may take.
const SILENCE: Duration = Duration::from_secs(1);

/// Asks the elected load manager, wherever it is.
pub struct Admin {
    addresses: Vec<String>,
    /// Who answered last, or was said to lead.
    current: Mutex<String>,
    patience: Duration,
}

impl Admin {
    /// Load managers to ask, and how long to look for the elected one.
    pub fn new(addresses: &[String], patience: Duration) -> Result<Self, Failure> {
        let Some(first) = addresses.first() else {
            let what = "no load manager address was given: use --admin host:port or EVENKEEL_ADMIN";
            return Err(Failure::Input(what.to_owned()));
        };
        for address in addresses {
            endpoint(address)?;
        }
        Ok(Self { addresses: addresses.to_vec(), current: Mutex::new(first.clone()), patience })
    }

    /// Sends a call to the elected load manager. `action` names it in errors, such as
    /// `drain broker b1`. What had no effect is sent again within the patience; a call whose
    /// answer was lost is sent again only if it is `repeatable`.
    pub async fn call<T, F, Fut>(
        &self,
        action: &str,
        repeatable: bool,
        send: F,
    ) -> Result<T, Failure>
    where
        F: Fn(AdminClient<Channel>) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let began = Instant::now();
        let mut refused = 0;
        loop {
            let address = self.current.lock().await.clone();
            let attempt = self.attempt(&address, repeatable, &send);
            let status = match tokio::time::timeout(ATTEMPT_TIMEOUT, attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded(format!("{address} did not answer in time")),
            };
            let next = self.judge(&status, &address, repeatable);
            let Next::Ask { address: next, pause } = next else {
                return Err(Failure::of_status(action, &status));
            };
            refused = if connection_failed(&status) { refused + 1 } else { 0 };
            // Nobody listens anywhere: that is not an election, which someone would report.
            let hopeless =
                refused >= 3 * self.addresses.len().max(2) && began.elapsed() > PAUSE * 10;
            if began.elapsed() >= self.patience || hopeless && self.patience < PATIENT {
                return Err(self.unreachable(action, &status));
            }
            *self.current.lock().await = next;
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a call that answers with a JSON document.
    pub async fn document<F, Fut>(&self, action: &str, send: F) -> Result<Value, Failure>
    where
        F: Fn(AdminClient<Channel>) -> Fut,
        Fut: Future<Output = Result<Response<JsonDocument>, Status>>,
    {
        let answer = self.call(action, true, send).await?;
        serde_json::from_str(&answer.json).map_err(|e| {
            Failure::Unreachable(format!("cannot {action}: the answer is not JSON: {e}"))
        })
    }

    async fn attempt<T, F, Fut>(
        &self,
        address: &str,
        repeatable: bool,
        send: &F,
    ) -> Result<T, Status>
    where
        F: Fn(AdminClient<Channel>) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let endpoint = endpoint(address).map_err(|e| Status::internal(e.to_string()))?;
        let channel = endpoint.connect().await.map_err(|e| {
            Status::new(Code::Unavailable, format!("{NO_CONNECTION} {address}: {}", root(&e)))
        })?;
        let mut client = AdminClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        if !repeatable {
            // A connection to a frozen process opens all the same, and what is lost in it cannot be
            // sent again: it shows itself with a question first.
            let lost = |e: Status| match Reason::of(&e) {
                Some(_) => e,
                None => Status::unavailable(format!("{NO_CONNECTION} {address}: {}", e.message())),
            };
            client.status(StatusRequest {}).await.map_err(lost)?;
        }
        send(client).await.map(Response::into_inner)
    }

    fn judge(&self, status: &Status, address: &str, repeatable: bool) -> Next {
        let pause = retry_delay(status).unwrap_or(PAUSE).min(Duration::from_secs(2));
        match Reason::of(status) {
            Some((Reason::NotLeader, metadata)) => {
                let leader = metadata.get("leader").filter(|l| !l.is_empty() && *l != address);
                match leader {
                    Some(leader) => {
                        Next::Ask { address: leader.clone(), pause: Duration::from_millis(1) }
                    }
                    None => Next::Ask { address: self.after(address), pause },
                }
            }
            Some((Reason::NoLeader | Reason::StoreUnavailable, _)) => {
                Next::Ask { address: self.after(address), pause }
            }
            Some(_) => Next::Stop,
            None => match status.code() {
                Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded
                    if repeatable || connection_failed(status) =>
                {
                    Next::Ask { address: self.after(address), pause }
                }
                _ => Next::Stop,
            },
        }
    }

    /// The address to ask after `address`, in turn.
    fn after(&self, address: &str) -> String {
        let at = self.addresses.iter().position(|a| a == address);
        let next = at.map_or(0, |at| (at + 1) % self.addresses.len());
        self.addresses[next].clone()
    }

    fn unreachable(&self, action: &str, status: &Status) -> Failure {
        let asked = self.addresses.join(", ");
        let why = status.message();
        Failure::Unreachable(format!(
            "cannot {action}: no elected load manager answered at {asked} ({why}); \
             check --admin, or that a load manager runs"
        ))
    }
}

/// A caller with this much patience rides out restarts too.
const PATIENT: Duration = Duration::from_secs(15);

const NO_CONNECTION: &str = "no connection to";

enum Next {
    Ask { address: String, pause: Duration },
    Stop,
}

fn connection_failed(status: &Status) -> bool {
    status.code() == Code::Unavailable && status.message().starts_with(NO_CONNECTION)
}

fn endpoint(address: &str) -> Result<Endpoint, Failure> {
    let bad = || {
        Failure::Input(format!("load manager address '{address}' is not valid: expected host:port"))
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
    if host.is_empty() || host.contains('/') || !port.parse::<u16>().is_ok_and(|p| p > 0) {
        return Err(bad());
    }
    Ok(Endpoint::from_shared(format!("http://{address}"))
        .map_err(|_| bad())?
        .connect_timeout(Duration::from_secs(2))
        .http2_keep_alive_interval(SILENCE)
        .keep_alive_timeout(SILENCE)
        .tcp_nodelay(true))
}

/// The innermost cause, which says most.
pub fn root(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_there_is_said_within_seconds_with_what_to_check() {
        let admin = Admin::new(&["127.0.0.1:1".into()], Duration::from_secs(5)).unwrap();
        let request = evenkeel_proto::admin::StatusRequest {};
        let failure = admin
            .call("show the status", true, |mut c| async move { c.status(request).await })
            .await
            .unwrap_err();
        let text = failure.to_string();
        assert!(
            text.starts_with(
                "cannot show the status: no elected load manager answered at 127.0.0.1:1"
            ),
            "{text}"
        );
        assert!(matches!(failure, Failure::Unreachable(_)));
    }

    #[test]
    fn addresses_are_checked_before_anything_is_sent() {
        for bad in ["", "here", "a:b", "http://a:1"] {
            let error = Admin::new(&[bad.to_owned()], PAUSE).err().map(|e| e.to_string());
            let expected = format!("load manager address '{bad}' is not valid: expected host:port");
            assert_eq!(error, Some(expected));
        }
    }
}
