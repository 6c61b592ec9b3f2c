//! What compaction forgets, and what it keeps.

use etcd_client::{Client, CompactionOptions, EventType, GetOptions, WatchOptions};
use tonic::Code;

use crate::server::{Server, assert_refused, assert_silent, next, next_events};

const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

/// Puts one key `count` times; the revision of the first.
async fn write(client: &mut Client, key: &str, count: i64) -> i64 {
    let first = client.put(key, "0", None).await.unwrap().header().unwrap().revision();
    for value in 1..count {
        client.put(key, value.to_string(), None).await.unwrap();
    }
    first
}

async fn a_compacted_revision_cannot_be_read_but_the_border_can(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    let first = write(&mut client, &key, 5).await;
    let compacted = client.compact(first + 2, None).await.unwrap();
    assert_eq!(compacted.header().unwrap().revision(), first + 4);

    let at = |revision| Some(GetOptions::new().with_revision(revision));
    assert_refused(client.get(key.as_str(), at(first + 1)).await, Code::OutOfRange, COMPACTED);
    for (revision, value) in [(first + 2, "2"), (first + 3, "3")] {
        let got = client.get(key.as_str(), at(revision)).await.unwrap();
        assert_eq!(got.kvs()[0].value_str().unwrap(), value);
    }
    let got = client.get(key.as_str(), None).await.unwrap();
    assert_eq!((got.kvs()[0].version(), got.kvs()[0].create_revision()), (5, first));
}

async fn a_key_not_changed_since_is_kept_through_compaction(etcd: Server) {
    let mut client = etcd.client().await;
    let old = write(&mut client, &etcd.key("old"), 1).await;
    client.put(etcd.key("gone"), "", None).await.unwrap();
    client.delete(etcd.key("gone"), None).await.unwrap();
    let last = write(&mut client, &etcd.key("new"), 3).await + 2;
    client.compact(last, None).await.unwrap();
    let options = GetOptions::new().with_prefix().with_revision(last);
    let got = client.get(etcd.key(""), Some(options)).await.unwrap();
    let keys: Vec<&str> = got.kvs().iter().map(|kv| kv.key_str().unwrap()).collect();
    assert_eq!(keys, [etcd.key("new"), etcd.key("old")]);
    assert_eq!(got.kvs()[1].mod_revision(), old);
}

async fn compacting_the_past_again_or_the_future_is_refused(etcd: Server) {
    let mut client = etcd.client().await;
    let first = write(&mut client, &etcd.key("a"), 3).await;
    let physical = CompactionOptions::new().with_physical();
    client.compact(first + 1, Some(physical)).await.unwrap();
    assert_refused(client.compact(first + 1, None).await, Code::OutOfRange, COMPACTED);
    assert_refused(client.compact(first, None).await, Code::OutOfRange, COMPACTED);
    let text = "etcdserver: mvcc: required revision is a future revision";
    assert_refused(client.compact(first + 3, None).await, Code::OutOfRange, text);
    client.compact(first + 2, None).await.unwrap();
}

async fn a_watch_from_a_compacted_revision_is_created_then_cancelled(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    let first = write(&mut client, &key, 5).await;
    client.compact(first + 3, None).await.unwrap();

    let options = WatchOptions::new().with_start_revision(first + 1);
    let mut stream = client.watch(key.as_str(), Some(options)).await.unwrap();
    let created = next(&mut stream).await;
    assert!(created.created() && !created.canceled());
    let cancelled = next(&mut stream).await;
    assert!(cancelled.canceled() && !cancelled.created());
    assert_eq!((cancelled.compact_revision(), cancelled.cancel_reason()), (first + 3, ""));
    assert_eq!(cancelled.watch_id(), created.watch_id());
    let header = cancelled.header().unwrap();
    assert_eq!(header.revision(), 0, "the one message without the store's revision");
    assert_eq!(header.cluster_id(), created.header().unwrap().cluster_id());

    // The stream stays open: silent for this watch, good for another.
    client.put(key.as_str(), "silent", None).await.unwrap();
    assert_silent(&mut stream).await;
    stream.watch(key.as_str(), None).await.unwrap();
    assert!(next(&mut stream).await.created());
    client.put(key, "heard", None).await.unwrap();
    assert_eq!(next_events(&mut stream, 1).await[0].kv().unwrap().value(), b"heard");
}

async fn a_watch_from_the_compacted_revision_itself_is_served(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    let first = write(&mut client, &key, 4).await;
    client.compact(first + 2, None).await.unwrap();
    let options = WatchOptions::new().with_start_revision(first + 2);
    let mut stream = client.watch(key.as_str(), Some(options)).await.unwrap();
    assert!(next(&mut stream).await.created());
    let events = next_events(&mut stream, 2).await;
    let revisions: Vec<i64> = events.iter().map(|e| e.kv().unwrap().mod_revision()).collect();
    assert_eq!(revisions, [first + 2, first + 3]);
}

async fn an_open_watch_outlives_compaction(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    let (mut stream, _) = etcd.watch_all(WatchOptions::new()).await;
    let first = write(&mut client, &key, 3).await;
    client.compact(first + 2, None).await.unwrap();
    client.delete(key, None).await.unwrap();
    let events = next_events(&mut stream, 4).await;
    assert_eq!(events[3].event_type(), EventType::Delete);
    assert_eq!(events[3].kv().unwrap().mod_revision(), first + 3);
}

cases! {
    shared {}
    own {
        a_compacted_revision_cannot_be_read_but_the_border_can
        a_key_not_changed_since_is_kept_through_compaction
        compacting_the_past_again_or_the_future_is_refused
        a_watch_from_a_compacted_revision_is_created_then_cancelled
        a_watch_from_the_compacted_revision_itself_is_served
        an_open_watch_outlives_compaction
    }
}
