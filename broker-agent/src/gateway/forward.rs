//! Sending a publish on to the shard's leader, once.

use std::error::Error as _;
use std::time::Duration;

use evenkeel_proto::data::shards_client::ShardsClient;
use evenkeel_proto::data::{PublishRequest, PublishResponse};
use evenkeel_proto::refusal::Reason;
use evenkeel_runtime::Network;
use tonic::Status;

use super::direction::Waiting;
use crate::metrics;

/// A leader that does not answer for so long is given up on.
const LIMIT: Duration = Duration::from_secs(5);

/// What came of it.
#[derive(Debug)]
pub(super) enum Forwarded {
    /// Committed.
    Done(PublishResponse),
    /// Not written; the other broker is not (yet, or any more) able to take it.
    NotYet(Waiting, String),
    /// Not written, and that is final.
    Refused(Status),
    /// It may have been written.
    Uncertain(String),
}

/// Sends it to the broker at an address.
pub(super) async fn forward(
    network: &Network,
    address: &str,
    mut request: PublishRequest,
) -> Forwarded {
    request.forwarded = true;
    metrics::forwarded();
    let mut client = ShardsClient::new(network.channel(address));
    match tokio::time::timeout(LIMIT, client.publish(request)).await {
        Ok(Ok(response)) => Forwarded::Done(response.into_inner()),
        Ok(Err(status)) => judge(status),
        Err(_) => Forwarded::Uncertain(format!("no answer within {} ms", LIMIT.as_millis())),
    }
}

fn judge(status: Status) -> Forwarded {
    match Reason::of(&status) {
        Some((Reason::Moving, _)) => {
            Forwarded::NotYet(Waiting::Moving, status.message().to_owned())
        }
        Some((Reason::ShardUnavailable, _)) => {
            Forwarded::NotYet(Waiting::Unavailable, status.message().to_owned())
        }
        Some(_) => Forwarded::Refused(status),
        None if never_sent(&status) => {
            Forwarded::NotYet(Waiting::Unavailable, "the leader cannot be reached".to_owned())
        }
        None => Forwarded::Uncertain(status.message().to_owned()),
    }
}

/// A connection that was never made carried nothing.
fn never_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return matches!(
                io.kind(),
                std::io::ErrorKind::ConnectionRefused
                    | std::io::ErrorKind::HostUnreachable
                    | std::io::ErrorKind::NetworkUnreachable
            );
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_proto::refusal::refuse;

    #[test]
    fn answers_are_told_apart_by_whether_something_was_written() {
        let judged = |status| judge(status);
        assert!(matches!(
            judged(refuse(Reason::Moving, "m")),
            Forwarded::NotYet(Waiting::Moving, _)
        ));
        assert!(matches!(
            judged(refuse(Reason::ShardUnavailable, "m")),
            Forwarded::NotYet(Waiting::Unavailable, _)
        ));
        assert!(matches!(judged(refuse(Reason::DiskFull, "m")), Forwarded::Refused(_)));
        assert!(matches!(judged(Status::unavailable("broken pipe")), Forwarded::Uncertain(_)));
    }

    #[tokio::test]
    async fn a_leader_that_is_not_there_was_sent_nothing() {
        let network = Network::tcp();
        let listener = network.listen("127.0.0.1:0").await.unwrap();
        let address = listener.address().to_owned();
        drop(listener);
        let forwarded = forward(&network, &address, PublishRequest::default()).await;
        assert!(matches!(forwarded, Forwarded::NotYet(Waiting::Unavailable, _)), "{forwarded:?}");
    }
}
