//! Puts, gets and deletes of single keys.

use etcd_client::{DeleteOptions, GetOptions, PutOptions};
use tonic::Code;

use crate::server::{Server, assert_refused};

async fn a_put_makes_a_key_at_the_revision_it_answers(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    let put = client.put(key.as_str(), "one", None).await.unwrap();
    let revision = put.header().unwrap().revision();
    assert!(put.prev_key().is_none());

    let got = client.get(key.as_str(), None).await.unwrap();
    assert_eq!((got.count(), got.more(), got.kvs().len()), (1, false, 1));
    let kv = &got.kvs()[0];
    assert_eq!((kv.key(), kv.value()), (key.as_bytes(), b"one".as_slice()));
    assert_eq!((kv.create_revision(), kv.mod_revision()), (revision, revision));
    assert_eq!((kv.version(), kv.lease()), (1, 0));
}

async fn a_second_put_keeps_the_creation_and_counts_the_version(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    let created = client.put(key.as_str(), "one", None).await.unwrap();
    let created = created.header().unwrap().revision();
    let put = client.put(key.as_str(), "two", Some(PutOptions::new().with_prev_key())).await;
    let put = put.unwrap();
    let previous = put.prev_key().unwrap();
    assert_eq!((previous.value(), previous.mod_revision()), (b"one".as_slice(), created));

    let got = client.get(key, None).await.unwrap();
    let kv = &got.kvs()[0];
    assert_eq!((kv.value(), kv.version()), (b"two".as_slice(), 2));
    assert_eq!(kv.create_revision(), created);
    assert_eq!(kv.mod_revision(), put.header().unwrap().revision());
}

async fn a_deleted_key_starts_anew(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    client.put(key.as_str(), "one", None).await.unwrap();
    client.put(key.as_str(), "two", None).await.unwrap();
    let options = DeleteOptions::new().with_prev_key();
    let deleted = client.delete(key.as_str(), Some(options)).await.unwrap();
    assert_eq!((deleted.deleted(), deleted.prev_kvs()[0].version()), (1, 2));
    let got = client.get(key.as_str(), None).await.unwrap();
    assert_eq!((got.count(), got.kvs().len()), (0, 0));

    let put = client.put(key.as_str(), "three", None).await.unwrap();
    let got = client.get(key, None).await.unwrap();
    assert_eq!(got.kvs()[0].version(), 1);
    assert_eq!(got.kvs()[0].create_revision(), put.header().unwrap().revision());
}

async fn only_a_change_raises_the_revision(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    let get = client.get(key.as_str(), None).await.unwrap();
    let first = get.header().unwrap().revision();
    assert_eq!(first, 1, "the revision of an empty store");
    let delete = client.delete(key.as_str(), None).await.unwrap();
    assert_eq!((delete.deleted(), delete.header().unwrap().revision()), (0, first));
    let put = client.put(key.as_str(), "", None).await.unwrap();
    assert_eq!(put.header().unwrap().revision(), first + 1);
    // The same value again is a change too.
    let put = client.put(key.as_str(), "", None).await.unwrap();
    assert_eq!(put.header().unwrap().revision(), first + 2);
    let get = client.get(key.as_str(), None).await.unwrap();
    assert_eq!(get.header().unwrap().revision(), first + 2);
    let delete = client.delete(key, None).await.unwrap();
    assert_eq!(delete.header().unwrap().revision(), first + 3);
}

async fn a_range_of_keys_is_deleted_in_one_revision(etcd: Server) {
    let mut client = etcd.client().await;
    for name in ["a/1", "a/2", "b"] {
        client.put(etcd.key(name), name, None).await.unwrap();
    }
    let before = client.get(etcd.key("b"), None).await.unwrap().header().unwrap().revision();
    let options = DeleteOptions::new().with_prefix().with_prev_key();
    let deleted = client.delete(etcd.key("a/"), Some(options)).await.unwrap();
    let values: Vec<&[u8]> = deleted.prev_kvs().iter().map(|kv| kv.value()).collect();
    assert_eq!((deleted.deleted(), values), (2, vec![b"a/1".as_slice(), b"a/2"]));
    assert_eq!(deleted.header().unwrap().revision(), before + 1);
    let left = client.get(etcd.key(""), Some(GetOptions::new().with_prefix())).await.unwrap();
    assert_eq!(left.count(), 1);
}

async fn an_empty_key_is_refused(etcd: Server) {
    let mut client = etcd.client().await;
    let text = "etcdserver: key is not provided";
    assert_refused(client.put("", "x", None).await, Code::InvalidArgument, text);
    assert_refused(client.get("", None).await, Code::InvalidArgument, text);
    assert_refused(client.delete("", None).await, Code::InvalidArgument, text);
}

async fn a_put_may_keep_the_value_or_the_lease(etcd: Server) {
    let mut client = etcd.client().await;
    let lease = client.lease_grant(600, None).await.unwrap().id();
    let key = etcd.key("a");
    let with_lease = PutOptions::new().with_lease(lease);
    client.put(key.as_str(), "one", Some(with_lease.clone())).await.unwrap();

    client.put(key.as_str(), "two", Some(PutOptions::new().with_ignore_lease())).await.unwrap();
    let got = client.get(key.as_str(), None).await.unwrap();
    assert_eq!((got.kvs()[0].value(), got.kvs()[0].lease()), (b"two".as_slice(), lease));
    client.put(key.as_str(), "", Some(PutOptions::new().with_ignore_value())).await.unwrap();
    let got = client.get(key.as_str(), None).await.unwrap();
    assert_eq!((got.kvs()[0].value(), got.kvs()[0].lease()), (b"two".as_slice(), 0));

    let refused = client.put(key.as_str(), "x", Some(PutOptions::new().with_ignore_value())).await;
    assert_refused(refused, Code::InvalidArgument, "etcdserver: value is provided");
    let refused = client.put(key.as_str(), "x", Some(with_lease.with_ignore_lease())).await;
    assert_refused(refused, Code::InvalidArgument, "etcdserver: lease is provided");
    for options in [PutOptions::new().with_ignore_value(), PutOptions::new().with_ignore_lease()] {
        let refused = client.put(etcd.key("none"), "", Some(options)).await;
        assert_refused(refused, Code::InvalidArgument, "etcdserver: key not found");
    }
}

async fn a_past_revision_is_still_to_be_read(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    let mut revisions = Vec::new();
    for value in ["one", "two"] {
        let put = client.put(key.as_str(), value, None).await.unwrap();
        revisions.push(put.header().unwrap().revision());
    }
    let deleted = client.delete(key.as_str(), None).await.unwrap();
    revisions.push(deleted.header().unwrap().revision());
    client.put(key.as_str(), "three", None).await.unwrap();

    let mut at = async |revision: i64| {
        let options = GetOptions::new().with_revision(revision);
        let got = client.get(key.as_str(), Some(options)).await.unwrap();
        assert!(got.header().unwrap().revision() >= revisions[2]);
        got.kvs().first().map(|kv| kv.value_str().unwrap().to_owned())
    };
    assert_eq!(at(revisions[0]).await.as_deref(), Some("one"));
    assert_eq!(at(revisions[1]).await.as_deref(), Some("two"));
    assert_eq!(at(revisions[2]).await, None);
    assert_eq!(at(revisions[2] + 1).await.as_deref(), Some("three"));
    assert_eq!(at(revisions[0] - 1).await, None);
}

async fn a_future_revision_is_refused(etcd: Server) {
    let mut client = etcd.client().await;
    let options = GetOptions::new().with_revision(1_000_000_000);
    let refused = client.get(etcd.key("a"), Some(options)).await;
    let text = "etcdserver: mvcc: required revision is a future revision";
    assert_refused(refused, Code::OutOfRange, text);
}

async fn keys_and_values_are_any_bytes(etcd: Server) {
    let mut client = etcd.client().await;
    let mut key = etcd.key("").into_bytes();
    key.extend([0, 0xff, 0, b'\n']);
    let value = vec![0xff, 0, 0xfe];
    client.put(key.clone(), value.clone(), None).await.unwrap();
    let got = client.get(key.clone(), None).await.unwrap();
    assert_eq!((got.kvs()[0].key(), got.kvs()[0].value()), (&*key, &*value));
    let got = client.get(etcd.key(""), Some(GetOptions::new().with_prefix())).await.unwrap();
    assert_eq!(got.count(), 1);
}

cases! {
    shared {
        a_put_makes_a_key_at_the_revision_it_answers
        a_second_put_keeps_the_creation_and_counts_the_version
        a_deleted_key_starts_anew
        an_empty_key_is_refused
        a_put_may_keep_the_value_or_the_lease
        a_past_revision_is_still_to_be_read
        a_future_revision_is_refused
        keys_and_values_are_any_bytes
    }
    own {
        only_a_change_raises_the_revision
        a_range_of_keys_is_deleted_in_one_revision
    }
}
