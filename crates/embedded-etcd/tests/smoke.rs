//! The server answers etcd's own client over loopback, and watches see what leases expire.

use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, EventType, GetOptions, PutOptions, Txn, TxnOp, WatchOptions,
};
use evenkeel_embedded_etcd::EmbeddedEtcd;

#[tokio::test]
async fn a_client_puts_watches_and_loses_a_lease() {
    let (etcd, address) = EmbeddedEtcd::listen("127.0.0.1:0", 1).await.unwrap();
    let mut client = Client::connect([address], None).await.unwrap();
    let mut events = client.watch("/a/", Some(WatchOptions::new().with_prefix())).await.unwrap();
    assert!(events.message().await.unwrap().unwrap().created());
    let lease = client.lease_grant(1, None).await.unwrap();
    assert_eq!(lease.ttl(), 2);
    let put = TxnOp::put("/a/x", "1", Some(PutOptions::new().with_lease(lease.id())));
    let absent = Compare::create_revision("/a/x", CompareOp::Equal, 0);
    let txn = Txn::new().when([absent]).and_then([put]);
    assert!(client.txn(txn.clone()).await.unwrap().succeeded());
    assert!(!client.txn(txn).await.unwrap().succeeded());
    let put = events.message().await.unwrap().unwrap();
    assert_eq!(put.events()[0].event_type(), EventType::Put);
    let expired = tokio::time::timeout(Duration::from_secs(5), events.message()).await.unwrap();
    assert_eq!(expired.unwrap().unwrap().events()[0].event_type(), EventType::Delete);
    let left = client.get("/a/", Some(GetOptions::new().with_prefix())).await.unwrap();
    assert!(left.kvs().is_empty());
    assert!(etcd.inspect("/a/").is_empty() && etcd.leases().is_empty());
}
