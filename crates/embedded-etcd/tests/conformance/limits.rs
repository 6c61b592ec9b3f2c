//! Where requests and answers become too large.

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use tonic::Code;

use crate::server::{Server, assert_refused};

const TOO_MANY: &str = "etcdserver: too many operations in txn request";
const TOO_LARGE: &str = "etcdserver: request is too large";

async fn a_transaction_has_128_of_each_at_most(etcd: Server) {
    let mut client = etcd.client().await;
    let puts = |count: usize| -> Vec<TxnOp> {
        (0..count).map(|at| TxnOp::put(etcd.key(&format!("{at}")), "", None)).collect()
    };
    let compares = |count: usize| -> Vec<Compare> {
        (0..count)
            .map(|at| Compare::version(etcd.key(&format!("none-{at}")), CompareOp::Equal, 0))
            .collect()
    };
    let full = Txn::new().when(compares(128)).and_then(puts(128)).or_else(puts(128));
    assert!(client.txn(full).await.unwrap().succeeded());
    for above in [
        Txn::new().when(compares(129)),
        Txn::new().and_then(puts(129)),
        Txn::new().or_else(puts(129)),
        Txn::new().and_then([TxnOp::txn(Txn::new().and_then(puts(129)))]),
    ] {
        assert_refused(client.txn(above).await, Code::InvalidArgument, TOO_MANY);
    }
}

async fn each_level_of_a_nested_transaction_counts_alone(etcd: Server) {
    let mut client = etcd.client().await;
    let nested = |from: usize| {
        let puts: Vec<TxnOp> =
            (from..from + 100).map(|at| TxnOp::put(etcd.key(&format!("{at}")), "", None)).collect();
        TxnOp::txn(Txn::new().and_then(puts))
    };
    let done = client.txn(Txn::new().and_then([nested(0), nested(100)])).await.unwrap();
    assert_eq!(done.op_responses().len(), 2);
    let options = GetOptions::new().with_prefix().with_count_only();
    let got = client.get(etcd.key(""), Some(options)).await.unwrap();
    assert_eq!(got.count(), 200);
}

async fn a_request_of_a_megabyte_and_a_half_is_too_large(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    client.put(key.as_str(), vec![b'x'; 1_572_800], None).await.unwrap();
    let refused = client.put(key.as_str(), vec![b'y'; 1_572_864], None).await;
    assert_refused(refused, Code::InvalidArgument, TOO_LARGE);
    let puts: Vec<TxnOp> = (0..40)
        .map(|at| TxnOp::put(etcd.key(&format!("{at}")), vec![b'x'; 50_000], None))
        .collect();
    let refused = client.txn(Txn::new().and_then(puts)).await;
    assert_refused(refused, Code::InvalidArgument, TOO_LARGE);
    let got = client.get(key, None).await.unwrap();
    assert_eq!((got.kvs()[0].value().len(), got.kvs()[0].value()[0]), (1_572_800, b'x'));
}

async fn a_message_of_two_megabytes_does_not_even_arrive(etcd: Server) {
    let mut client = etcd.client().await;
    let outcome = client.put(etcd.key("a"), vec![b'x'; 2_200_000], None).await;
    let Err(etcd_client::Error::GRpcStatus(status)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(status.code(), Code::ResourceExhausted);
    let text = "grpc: received message larger than max (";
    assert!(status.message().starts_with(text), "{status:?}");
    assert!(status.message().ends_with(" vs. 2097152)"), "{status:?}");
}

async fn an_answer_above_four_megabytes_is_refused_by_the_client_unless_it_says_so(etcd: Server) {
    let mut client = etcd.client().await;
    for at in 0..5 {
        client.put(etcd.key(&format!("{at}")), vec![b'x'; 1_000_000], None).await.unwrap();
    }
    let all = || Some(GetOptions::new().with_prefix());
    let outcome = client.get(etcd.key(""), all()).await;
    let Err(etcd_client::Error::GRpcStatus(status)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(status.code(), Code::OutOfRange);
    assert!(status.message().contains("decoded message length too large"), "{status:?}");
    let mut patient = client.kv_client().max_decoding_message_size(16 << 20);
    assert_eq!(patient.get(etcd.key(""), all()).await.unwrap().kvs().len(), 5);
}

cases! {
    shared {
        a_transaction_has_128_of_each_at_most
        each_level_of_a_nested_transaction_counts_alone
        a_request_of_a_megabyte_and_a_half_is_too_large
        a_message_of_two_megabytes_does_not_even_arrive
        an_answer_above_four_megabytes_is_refused_by_the_client_unless_it_says_so
    }
}
