//! The transaction an election is made of, and the guard its winner puts on each write.

use etcd_client::{
    Client, Compare, CompareOp, EventType, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse,
    WatchOptions,
};

use crate::server::{Server, next_events};

/// Takes the leader's key if nobody has it. Its create revision, and whose it is.
async fn contend(client: &mut Client, key: &str, name: &str, lease: i64) -> (i64, String) {
    let put = TxnOp::put(key, name, Some(PutOptions::new().with_lease(lease)));
    let txn = Txn::new()
        .when([Compare::create_revision(key, CompareOp::Equal, 0)])
        .and_then([put])
        .or_else([TxnOp::get(key, Some(GetOptions::new()))]);
    let done = client.txn(txn).await.unwrap();
    if done.succeeded() {
        return (done.header().unwrap().revision(), name.to_owned());
    }
    let responses = done.op_responses();
    let TxnOpResponse::Get(found) = &responses[0] else { panic!("{responses:?}") };
    let kv = &found.kvs()[0];
    (kv.create_revision(), kv.value_str().unwrap().to_owned())
}

async fn guarded_put(client: &mut Client, leader: &str, token: i64, key: String) -> bool {
    let txn = Txn::new()
        .when([Compare::create_revision(leader, CompareOp::Equal, token)])
        .and_then([TxnOp::put(key, "x", None)]);
    client.txn(txn).await.unwrap().succeeded()
}

async fn one_contender_wins_and_the_other_learns_who(etcd: Server) {
    let leader = etcd.key("leader");
    let (mut one, mut two) = (etcd.client().await, etcd.client().await);
    let first = one.lease_grant(60, None).await.unwrap().id();
    let second = two.lease_grant(60, None).await.unwrap().id();
    let (token, name) = contend(&mut one, &leader, "one", first).await;
    assert_eq!(name, "one");
    assert_eq!(contend(&mut two, &leader, "two", second).await, (token, "one".to_owned()));
    // A winner whose answer was lost finds itself by asking again.
    assert_eq!(contend(&mut one, &leader, "one", first).await, (token, "one".to_owned()));
}

async fn a_deposed_leader_writes_nothing_behind_its_guard(etcd: Server) {
    let leader = etcd.key("leader");
    let (mut one, mut two) = (etcd.client().await, etcd.client().await);
    let first = one.lease_grant(60, None).await.unwrap().id();
    let second = two.lease_grant(60, None).await.unwrap().id();
    let (old, _) = contend(&mut one, &leader, "one", first).await;
    assert!(guarded_put(&mut one, &leader, old, etcd.key("a")).await);

    let (mut stream, _) = etcd.watch_all(WatchOptions::new()).await;
    two.lease_revoke(first).await.unwrap();
    assert_eq!(next_events(&mut stream, 1).await[0].event_type(), EventType::Delete);
    let refused = guarded_put(&mut one, &leader, old, etcd.key("b")).await;
    assert!(!refused, "nobody leads");
    let (new, name) = contend(&mut two, &leader, "two", second).await;
    assert!(name == "two" && new > old);
    assert!(!guarded_put(&mut one, &leader, old, etcd.key("b")).await, "another leads");
    assert!(guarded_put(&mut two, &leader, new, etcd.key("b")).await);
}

async fn resigning_frees_the_key_only_if_it_is_still_ones_own(etcd: Server) {
    let leader = etcd.key("leader");
    let mut client = etcd.client().await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let (token, _) = contend(&mut client, &leader, "one", lease).await;
    let resign = |token| {
        Txn::new()
            .when([Compare::create_revision(leader.as_str(), CompareOp::Equal, token)])
            .and_then([TxnOp::delete(leader.as_str(), None)])
    };
    assert!(!client.txn(resign(token - 1)).await.unwrap().succeeded());
    assert!(client.txn(resign(token)).await.unwrap().succeeded());
    let (next, _) = contend(&mut client, &leader, "one", lease).await;
    assert!(next > token, "the same lease leads again with another token");
}

cases! {
    shared {
        one_contender_wins_and_the_other_learns_who
        a_deposed_leader_writes_nothing_behind_its_guard
        resigning_frees_the_key_only_if_it_is_still_ones_own
    }
}
