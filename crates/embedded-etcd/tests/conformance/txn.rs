//! Transactions: conditions, branches, one revision.

use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse,
};
use tonic::Code;

use crate::server::{Server, assert_refused};

use CompareOp::{Equal, Greater, Less, NotEqual};

async fn holds(client: &mut Client, compares: Vec<Compare>) -> bool {
    client.txn(Txn::new().when(compares)).await.unwrap().succeeded()
}

fn put(key: String, value: &str) -> TxnOp {
    TxnOp::put(key, value, None)
}

async fn value(client: &mut Client, key: String) -> Option<String> {
    let got = client.get(key, None).await.unwrap();
    got.kvs().first().map(|kv| kv.value_str().unwrap().to_owned())
}

type Comparing = fn(String, CompareOp, i64) -> Compare;

async fn every_target_is_compared_in_every_way(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    let lease = client.lease_grant(600, None).await.unwrap();
    let created = client.put(key.as_str(), "m", None).await.unwrap();
    let created = created.header().unwrap().revision();
    let options = PutOptions::new().with_lease(lease.id());
    let changed = client.put(key.as_str(), "m", Some(options)).await.unwrap();
    let changed = changed.header().unwrap().revision();

    let numbers: [(Comparing, i64); 4] = [
        (|k, op, v| Compare::version(k, op, v), 2),
        (|k, op, v| Compare::create_revision(k, op, v), created),
        (|k, op, v| Compare::mod_revision(k, op, v), changed),
        (|k, op, v| Compare::lease(k, op, v), lease.id()),
    ];
    for (compare, actual) in numbers {
        for (op, with_less, with_same, with_more) in [
            (Equal, false, true, false),
            (NotEqual, true, false, true),
            (Greater, true, false, false),
            (Less, false, false, true),
        ] {
            for (v, expected) in
                [(actual - 1, with_less), (actual, with_same), (actual + 1, with_more)]
            {
                let got = holds(&mut client, vec![compare(key.clone(), op, v)]).await;
                assert_eq!(got, expected, "{:?}", compare(key.clone(), op, v));
            }
        }
    }
    for (op, v, expected) in [
        (Equal, "m", true),
        (Equal, "", false),
        (NotEqual, "n", true),
        (Greater, "a", true),
        (Greater, "m", false),
        (Less, "n", true),
    ] {
        assert_eq!(holds(&mut client, vec![Compare::value(key.as_str(), op, v)]).await, expected);
    }
}

async fn a_key_that_does_not_exist_has_zeros_but_no_value(etcd: Server) {
    let mut client = etcd.client().await;
    let key = || etcd.key("none");
    for (compare, expected) in [
        (Compare::version(key(), Equal, 0), true),
        (Compare::create_revision(key(), Equal, 0), true),
        (Compare::mod_revision(key(), Less, 1), true),
        (Compare::lease(key(), Equal, 0), true),
        (Compare::version(key(), Greater, 0), false),
        (Compare::value(key(), Equal, ""), false),
        (Compare::value(key(), NotEqual, "x"), false),
        (Compare::value(key(), Less, "x"), false),
    ] {
        assert_eq!(holds(&mut client, vec![compare.clone()]).await, expected, "{compare:?}");
    }
}

async fn a_comparison_of_a_prefix_is_of_every_key_in_it(etcd: Server) {
    let mut client = etcd.client().await;
    let prefix = || etcd.key("p/");
    let empty = |op| Compare::version(prefix(), op, 0).with_prefix();
    // An empty prefix is compared like a key that does not exist: the guard "nothing here yet".
    assert!(holds(&mut client, vec![empty(Equal)]).await);
    assert!(!holds(&mut client, vec![empty(Greater)]).await);
    client.put(etcd.key("p/1"), "x", None).await.unwrap();
    client.put(etcd.key("p/2"), "x", None).await.unwrap();
    assert!(!holds(&mut client, vec![empty(Equal)]).await);
    assert!(holds(&mut client, vec![empty(Greater)]).await);
    let all_x = || Compare::value(prefix(), Equal, "x").with_prefix();
    assert!(holds(&mut client, vec![all_x()]).await);
    client.put(etcd.key("p/2"), "y", None).await.unwrap();
    assert!(!holds(&mut client, vec![all_x()]).await);
    assert!(holds(&mut client, vec![all_x().with_range(etcd.key("p/2"))]).await);
}

async fn all_conditions_must_hold_and_one_branch_runs(etcd: Server) {
    let mut client = etcd.client().await;
    client.put(etcd.key("a"), "1", None).await.unwrap();
    let txn = |expected: &str| {
        let compares = [
            Compare::value(etcd.key("a"), Equal, expected),
            Compare::version(etcd.key("none"), Equal, 0),
        ];
        Txn::new()
            .when(compares)
            .and_then([put(etcd.key("then"), "x")])
            .or_else([put(etcd.key("else"), "x"), TxnOp::get(etcd.key("a"), None)])
    };
    let refused = client.txn(txn("2")).await.unwrap();
    assert!(!refused.succeeded());
    let responses = refused.op_responses();
    assert!(matches!(responses[0], TxnOpResponse::Put(_)));
    let TxnOpResponse::Get(seen) = &responses[1] else { panic!("{responses:?}") };
    assert_eq!(seen.kvs()[0].value(), b"1");
    assert_eq!(value(&mut client, etcd.key("then")).await, None);

    let done = client.txn(txn("1")).await.unwrap();
    assert!(done.succeeded() && done.op_responses().len() == 1);
    assert_eq!(value(&mut client, etcd.key("then")).await.as_deref(), Some("x"));
    assert!(client.txn(Txn::new()).await.unwrap().succeeded(), "no condition holds");
}

async fn a_transaction_is_one_revision(etcd: Server) {
    let mut client = etcd.client().await;
    let before = client.put(etcd.key("a"), "0", None).await.unwrap();
    let before = before.header().unwrap().revision();
    let operations =
        [put(etcd.key("b"), "1"), TxnOp::delete(etcd.key("a"), None), put(etcd.key("c"), "1")];
    let done = client.txn(Txn::new().and_then(operations)).await.unwrap();
    assert_eq!(done.header().unwrap().revision(), before + 1);
    for name in ["b", "c"] {
        let got = client.get(etcd.key(name), None).await.unwrap();
        assert_eq!(got.kvs()[0].mod_revision(), before + 1);
        assert_eq!(got.kvs()[0].create_revision(), before + 1);
    }
    for read_only in [
        Txn::new().and_then([TxnOp::get(etcd.key("b"), None)]),
        Txn::new().and_then([TxnOp::delete(etcd.key("none"), None)]),
        Txn::new().when([Compare::version(etcd.key("b"), Equal, 9)]),
    ] {
        let read = client.txn(read_only).await.unwrap();
        assert_eq!(read.header().unwrap().revision(), before + 1);
    }
}

async fn operations_see_the_ones_before_them(etcd: Server) {
    let mut client = etcd.client().await;
    client.put(etcd.key("a"), "old", None).await.unwrap();
    let prefix = GetOptions::new().with_prefix();
    let operations = [
        put(etcd.key("b"), "1"),
        TxnOp::get(etcd.key(""), Some(prefix.clone())),
        TxnOp::delete(etcd.key("a"), Some(DeleteOptions::new().with_prev_key())),
        TxnOp::get(etcd.key(""), Some(prefix)),
    ];
    let done = client.txn(Txn::new().and_then(operations)).await.unwrap();
    let responses = done.op_responses();
    let TxnOpResponse::Get(first) = &responses[1] else { panic!("{responses:?}") };
    assert_eq!((first.count(), first.kvs()[1].value()), (2, b"1".as_slice()));
    let TxnOpResponse::Delete(deleted) = &responses[2] else { panic!("{responses:?}") };
    assert_eq!((deleted.deleted(), deleted.prev_kvs()[0].value()), (1, b"old".as_slice()));
    let TxnOpResponse::Get(second) = &responses[3] else { panic!("{responses:?}") };
    assert_eq!((second.count(), second.kvs()[0].key()), (1, etcd.key("b").as_bytes()));
}

async fn a_refused_operation_undoes_the_whole_transaction(etcd: Server) {
    let mut client = etcd.client().await;
    let lease_gone = TxnOp::put(etcd.key("b"), "1", Some(PutOptions::new().with_lease(77)));
    let text = "etcdserver: requested lease not found";
    let refused = client.txn(Txn::new().and_then([put(etcd.key("a"), "1"), lease_gone])).await;
    assert_refused(refused, Code::NotFound, text);
    let future = TxnOp::get(etcd.key("a"), Some(GetOptions::new().with_revision(1_000_000_000)));
    let refused = client.txn(Txn::new().and_then([put(etcd.key("a"), "1"), future])).await;
    let text = "etcdserver: mvcc: required revision is a future revision";
    assert_refused(refused, Code::OutOfRange, text);
    let keep = TxnOp::put(etcd.key("b"), "", Some(PutOptions::new().with_ignore_value()));
    let refused = client.txn(Txn::new().and_then([put(etcd.key("a"), "1"), keep])).await;
    assert_refused(refused, Code::InvalidArgument, "etcdserver: key not found");
    let empty = TxnOp::get("", None);
    let refused = client.txn(Txn::new().and_then([put(etcd.key("a"), "1"), empty])).await;
    assert_refused(refused, Code::InvalidArgument, "etcdserver: key is not provided");
    assert_eq!(value(&mut client, etcd.key("a")).await, None);
}

async fn a_refusal_in_the_other_branch_does_not_matter(etcd: Server) {
    let mut client = etcd.client().await;
    let lease_gone = TxnOp::put(etcd.key("b"), "1", Some(PutOptions::new().with_lease(77)));
    let txn = Txn::new().and_then([put(etcd.key("a"), "1")]).or_else([lease_gone]);
    assert!(client.txn(txn).await.unwrap().succeeded());
}

async fn a_key_is_written_once_in_a_transaction(etcd: Server) {
    let mut client = etcd.client().await;
    let a = || put(etcd.key("a"), "1");
    let delete_all = || TxnOp::delete(etcd.key(""), Some(DeleteOptions::new().with_prefix()));
    let nested = |operations: Vec<TxnOp>| TxnOp::txn(Txn::new().and_then(operations));
    let text = "etcdserver: duplicate key given in txn request";
    for operations in [
        vec![a(), a()],
        vec![delete_all(), a()],
        vec![a(), delete_all()],
        vec![a(), TxnOp::delete(etcd.key("a"), None)],
        vec![a(), nested(vec![a()])],
        vec![nested(vec![a()]), nested(vec![a()])],
        vec![nested(vec![a()]), delete_all()],
    ] {
        let refused = client.txn(Txn::new().and_then(operations.clone())).await;
        assert_refused(refused, Code::InvalidArgument, text);
        let refused = client.txn(Txn::new().or_else(operations)).await;
        assert_refused(refused, Code::InvalidArgument, text);
    }
    for allowed in [
        Txn::new().and_then([a()]).or_else([a()]),
        Txn::new().and_then([delete_all(), TxnOp::delete(etcd.key("a"), None)]),
        Txn::new().and_then([TxnOp::txn(Txn::new().and_then([a()]).or_else([a()]))]),
        Txn::new().and_then([a(), TxnOp::get(etcd.key("a"), None)]),
    ] {
        client.txn(allowed).await.unwrap();
    }
}

async fn conditions_of_a_nested_transaction_are_of_the_state_before(etcd: Server) {
    let mut client = etcd.client().await;
    let inner = Txn::new()
        .when([Compare::version(etcd.key("a"), Equal, 0)])
        .and_then([put(etcd.key("then"), "x")])
        .or_else([put(etcd.key("else"), "x")]);
    let outer = Txn::new().and_then([put(etcd.key("a"), "1"), TxnOp::txn(inner)]);
    let done = client.txn(outer).await.unwrap();
    let responses = done.op_responses();
    let TxnOpResponse::Txn(inner) = &responses[1] else { panic!("{responses:?}") };
    assert!(inner.succeeded());
    assert_eq!(value(&mut client, etcd.key("then")).await.as_deref(), Some("x"));
    assert_eq!(value(&mut client, etcd.key("else")).await, None);
    let got = client.get(etcd.key("then"), None).await.unwrap();
    assert_eq!(got.kvs()[0].mod_revision(), done.header().unwrap().revision());
}

async fn a_read_at_a_pinned_revision_does_not_see_its_own_transaction(etcd: Server) {
    let mut client = etcd.client().await;
    let before = client.put(etcd.key("a"), "old", None).await.unwrap();
    let pinned = GetOptions::new().with_revision(before.header().unwrap().revision());
    let operations = [put(etcd.key("a"), "new"), TxnOp::get(etcd.key("a"), Some(pinned))];
    let done = client.txn(Txn::new().and_then(operations)).await.unwrap();
    let responses = done.op_responses();
    let TxnOpResponse::Get(read) = &responses[1] else { panic!("{responses:?}") };
    assert_eq!(read.kvs()[0].value(), b"old");
}

cases! {
    shared {
        every_target_is_compared_in_every_way
        a_key_that_does_not_exist_has_zeros_but_no_value
        a_comparison_of_a_prefix_is_of_every_key_in_it
        all_conditions_must_hold_and_one_branch_runs
        operations_see_the_ones_before_them
        a_refused_operation_undoes_the_whole_transaction
        a_refusal_in_the_other_branch_does_not_matter
        a_key_is_written_once_in_a_transaction
        conditions_of_a_nested_transaction_are_of_the_state_before
        a_read_at_a_pinned_revision_does_not_see_its_own_transaction
    }
    own {
        a_transaction_is_one_revision
    }
}
