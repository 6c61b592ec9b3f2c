//! Leaving: shards are handed over while the broker still serves, then it says farewell.

use std::time::Duration;

use evenkeel_model::BrokerId;
use evenkeel_proto::admin::DeregisterBrokerRequest;
use evenkeel_proto::admin::admin_client::AdminClient;
use evenkeel_runtime::Network;
use tokio::time::timeout;

use crate::routes::Routes;

/// Limit of the farewell call. Without it the broker counts as lost instead of left.
const CALL_LIMIT: Duration = Duration::from_secs(2);

/// Waits until the broker leads nothing by the stored assignments. `false` if that takes longer
/// than the limit, or if there is no broker that could take over.
pub(crate) async fn leads_nothing(routes: &Routes, me: &BrokerId, limit: Duration) -> bool {
    let mut changes = routes.changes();
    let handed_over = async {
        while routes.led_by(me) > 0 {
            if !routes.has_others(me) || changes.changed().await.is_err() {
                return false;
            }
        }
        true
    };
    timeout(limit, handed_over).await.unwrap_or(false)
}

/// Tells the load manager that this start of the broker is over.
pub(crate) async fn say_farewell(
    routes: &Routes,
    network: &Network,
    me: &BrokerId,
    incarnation: u64,
) {
    let Some(elected) = routes.load_manager() else {
        tracing::warn!("no load manager to say farewell to");
        return;
    };
    let mut admin = AdminClient::new(network.channel(&elected.record.address));
    let request = DeregisterBrokerRequest { broker: me.to_string(), incarnation };
    match timeout(CALL_LIMIT, admin.deregister_broker(request)).await {
        Ok(Ok(_)) => tracing::info!("said farewell"),
        Ok(Err(status)) => tracing::warn!(reason = status.message(), "farewell was refused"),
        Err(_) => tracing::warn!("farewell was not answered"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::Fact;
    use evenkeel_model::{Assignment, Registration, ShardKey};
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn it_waits_for_the_last_shard_and_no_longer_than_the_limit() {
        let me: BrokerId = "b1".parse().unwrap();
        let shard: ShardKey = "stream/d/s/0".parse().unwrap();
        let routes = Routes::default();
        let limit = Duration::from_secs(30);
        assert!(leads_nothing(&routes, &me, Duration::ZERO).await);
        let led = Assignment::new(shard.clone(), me.clone(), Vec::new());
        routes.learn([Fact::Assignment(shard.clone(), Some(Arc::new(led)))]);
        let before = tokio::time::Instant::now();
        assert!(!leads_nothing(&routes, &me, limit).await);
        assert!(before.elapsed().is_zero(), "nobody is there to take over");
        let other = r#"{"broker":"b2","address":"h:2","incarnation":1}"#;
        let other: Registration = serde_json::from_str(other).unwrap();
        routes.learn([Fact::Broker(other.broker.clone(), Some(Box::new(other)))]);
        assert!(!leads_nothing(&routes, &me, limit).await);
        assert_eq!(before.elapsed(), limit);
        let waiting = tokio::spawn({
            let (routes, me) = (routes.clone(), me.clone());
            async move { leads_nothing(&routes, &me, limit).await }
        });
        tokio::task::yield_now().await;
        routes.learn([Fact::Assignment(shard, None)]);
        assert!(waiting.await.unwrap());
    }
}
