//! What a watch says about keys.

use etcd_client::{
    Compare, CompareOp, DeleteOptions, EventType, Txn, TxnOp, WatchFilterType, WatchOptions,
};

use crate::server::{Server, assert_silent, next, next_events};

async fn a_watch_is_created_first_and_then_says_each_change(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    let (mut stream, created_at) = etcd.watch_all(WatchOptions::new()).await;
    assert_silent(&mut stream).await;

    let put = client.put(key.as_str(), "one", None).await.unwrap();
    let message = next(&mut stream).await;
    let revision = put.header().unwrap().revision();
    assert!(!message.created() && !message.canceled() && message.compact_revision() == 0);
    assert_eq!(message.header().unwrap().revision(), revision);
    assert!(revision > created_at);
    let [event] = message.events() else { panic!("{message:?}") };
    assert_eq!(event.event_type(), EventType::Put);
    assert!(event.prev_kv().is_none());
    let kv = event.kv().unwrap();
    assert_eq!((kv.key(), kv.value(), kv.version()), (key.as_bytes(), b"one".as_slice(), 1));
    assert_eq!((kv.mod_revision(), kv.create_revision()), (revision, revision));

    let deleted = client.delete(key.as_str(), None).await.unwrap();
    let event = next_events(&mut stream, 1).await.remove(0);
    assert_eq!(event.event_type(), EventType::Delete);
    let kv = event.kv().unwrap();
    assert_eq!((kv.key(), kv.value()), (key.as_bytes(), b"".as_slice()));
    assert_eq!(kv.mod_revision(), deleted.header().unwrap().revision());
    assert_eq!((kv.create_revision(), kv.version()), (0, 0), "a delete carries only its revision");
}

async fn a_watch_of_one_key_says_nothing_of_its_neighbours(etcd: Server) {
    let mut client = etcd.client().await;
    let mut stream = client.watch(etcd.key("a"), None).await.unwrap();
    assert!(next(&mut stream).await.created());
    client.put(etcd.key("ab"), "", None).await.unwrap();
    client.put(etcd.key(""), "", None).await.unwrap();
    client.put(etcd.key("a"), "mine", None).await.unwrap();
    let message = next(&mut stream).await;
    assert_eq!(message.events().len(), 1);
    assert_eq!(message.events()[0].kv().unwrap().value(), b"mine");
}

async fn a_watch_may_be_of_a_range_or_of_everything_after_a_key(etcd: Server) {
    let mut client = etcd.client().await;
    let range = WatchOptions::new().with_range(etcd.key("d"));
    let mut ranged = client.watch(etcd.key("b"), Some(range)).await.unwrap();
    assert!(next(&mut ranged).await.created());
    let from = WatchOptions::new().with_from_key();
    let mut open = client.watch(etcd.key("c"), Some(from)).await.unwrap();
    assert!(next(&mut open).await.created());
    let all = WatchOptions::new().with_all_keys();
    let mut everything = client.watch("", Some(all)).await.unwrap();
    assert!(next(&mut everything).await.created());
    for name in ["a", "b", "c", "d"] {
        client.put(etcd.key(name), name, None).await.unwrap();
    }
    for (stream, expected) in [(&mut ranged, "bc"), (&mut open, "cd"), (&mut everything, "abcd")] {
        let events = next_events(stream, expected.len()).await;
        let said: String = events.iter().map(|e| e.kv().unwrap().value_str().unwrap()).collect();
        assert_eq!(said, expected);
    }
}

async fn a_previous_value_comes_when_asked_for(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    let (mut stream, _) = etcd.watch_all(WatchOptions::new().with_prev_key()).await;
    client.put(key.as_str(), "one", None).await.unwrap();
    client.put(key.as_str(), "two", None).await.unwrap();
    client.delete(key.as_str(), None).await.unwrap();
    client.put(key.as_str(), "three", None).await.unwrap();
    let events = next_events(&mut stream, 4).await;
    let previous: Vec<Option<&str>> =
        events.iter().map(|e| e.prev_kv().map(|kv| kv.value_str().unwrap())).collect();
    assert_eq!(previous, [None, Some("one"), Some("two"), None]);
}

async fn a_transaction_is_one_message_in_the_order_of_its_operations(etcd: Server) {
    let mut client = etcd.client().await;
    for name in ["old/1", "old/2"] {
        client.put(etcd.key(name), "", None).await.unwrap();
    }
    let (mut stream, _) = etcd.watch_all(WatchOptions::new()).await;
    let operations = [
        TxnOp::put(etcd.key("z"), "", None),
        TxnOp::delete(etcd.key("old/"), Some(DeleteOptions::new().with_prefix())),
        TxnOp::put(etcd.key("a"), "", None),
    ];
    let done = client.txn(Txn::new().and_then(operations)).await.unwrap();
    let message = next(&mut stream).await;
    let said: Vec<&str> =
        message.events().iter().map(|e| e.kv().unwrap().key_str().unwrap()).collect();
    assert_eq!(said, ["z", "old/1", "old/2", "a"].map(|name| etcd.key(name)));
    let revision = done.header().unwrap().revision();
    assert!(message.events().iter().all(|e| e.kv().unwrap().mod_revision() == revision));
}

async fn a_transaction_that_changes_nothing_is_not_said(etcd: Server) {
    let mut client = etcd.client().await;
    let (mut stream, _) = etcd.watch_all(WatchOptions::new()).await;
    let never = Compare::version(etcd.key("a"), CompareOp::Equal, 9);
    let put = TxnOp::put(etcd.key("a"), "", None);
    client.txn(Txn::new().when([never]).and_then([put])).await.unwrap();
    client.delete(etcd.key("none"), None).await.unwrap();
    assert_silent(&mut stream).await;
}

async fn a_watch_from_a_past_revision_says_what_happened_since(etcd: Server) {
    let mut client = etcd.client().await;
    let key = etcd.key("a");
    client.put(key.as_str(), "before", None).await.unwrap();
    let first = client.put(key.as_str(), "one", None).await.unwrap();
    let first = first.header().unwrap().revision();
    client.put(etcd.key("b"), "two", None).await.unwrap();
    client.delete(key.as_str(), None).await.unwrap();
    let options = WatchOptions::new().with_start_revision(first).with_prev_key();
    let (mut stream, _) = etcd.watch_all(options).await;
    client.put(key.as_str(), "three", None).await.unwrap();

    let events = next_events(&mut stream, 4).await;
    let said: Vec<(EventType, &[u8])> =
        events.iter().map(|e| (e.event_type(), e.kv().unwrap().value())).collect();
    let expected: [(EventType, &[u8]); 4] = [
        (EventType::Put, b"one"),
        (EventType::Put, b"two"),
        (EventType::Delete, b""),
        (EventType::Put, b"three"),
    ];
    assert_eq!(said, expected);
    let revisions: Vec<i64> = events.iter().map(|e| e.kv().unwrap().mod_revision()).collect();
    assert!(revisions[0] == first && revisions.is_sorted(), "{revisions:?}");
    assert_eq!(events[0].prev_kv().unwrap().value(), b"before");
    assert_eq!(events[2].prev_kv().unwrap().value(), b"one");
}

async fn a_watch_from_a_future_revision_is_silent_until_then(etcd: Server) {
    let mut client = etcd.client().await;
    let put = client.put(etcd.key("a"), "0", None).await.unwrap();
    let now = put.header().unwrap().revision();
    let options = WatchOptions::new().with_start_revision(now + 3);
    let (mut stream, _) = etcd.watch_all(options).await;
    for value in ["1", "2"] {
        client.put(etcd.key("a"), value, None).await.unwrap();
    }
    assert_silent(&mut stream).await;
    client.put(etcd.key("a"), "3", None).await.unwrap();
    let message = next(&mut stream).await;
    assert_eq!(message.events().len(), 1);
    assert_eq!(message.events()[0].kv().unwrap().mod_revision(), now + 3);
}

async fn puts_or_deletes_may_be_left_out(etcd: Server) {
    let mut client = etcd.client().await;
    let without = |filter| WatchOptions::new().with_filters([filter]);
    let (mut deletes, _) = etcd.watch_all(without(WatchFilterType::NoPut)).await;
    let (mut puts, _) = etcd.watch_all(without(WatchFilterType::NoDelete)).await;
    client.put(etcd.key("a"), "one", None).await.unwrap();
    client.delete(etcd.key("a"), None).await.unwrap();
    client.put(etcd.key("a"), "two", None).await.unwrap();
    let deleted = next_events(&mut deletes, 1).await;
    assert_eq!(deleted[0].event_type(), EventType::Delete);
    assert_silent(&mut deletes).await;
    let put = next_events(&mut puts, 2).await;
    assert!(put.iter().all(|event| event.event_type() == EventType::Put));
}

async fn watches_of_the_same_keys_all_hear(etcd: Server) {
    let mut client = etcd.client().await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(etcd.watch_all(WatchOptions::new()).await.0);
    }
    client.put(etcd.key("a"), "all", None).await.unwrap();
    for stream in &mut streams {
        assert_eq!(next_events(stream, 1).await[0].kv().unwrap().value(), b"all");
    }
}

cases! {
    shared {
        a_watch_is_created_first_and_then_says_each_change
        a_watch_of_one_key_says_nothing_of_its_neighbours
        a_previous_value_comes_when_asked_for
        a_transaction_is_one_message_in_the_order_of_its_operations
        a_transaction_that_changes_nothing_is_not_said
        a_watch_from_a_past_revision_says_what_happened_since
        puts_or_deletes_may_be_left_out
        watches_of_the_same_keys_all_hear
    }
    own {
        a_watch_may_be_of_a_range_or_of_everything_after_a_key
        a_watch_from_a_future_revision_is_silent_until_then
    }
}
