//! Several watches on one stream: their ids, cancels, progress, fragments.

use etcd_client::{WatchOptions, WatchStream};
use tonic::Code;

use crate::server::{Server, assert_silent, next, next_events};

fn id(id: i64) -> Option<WatchOptions> {
    Some(WatchOptions::new().with_watch_id(id))
}

async fn created(stream: &mut WatchStream) -> i64 {
    let message = next(stream).await;
    assert!(message.created() && !message.canceled(), "{message:?}");
    message.watch_id()
}

async fn watches_of_a_stream_are_numbered_and_apart(etcd: Server) {
    let mut client = etcd.client().await;
    let mut stream = client.watch(etcd.key("a"), None).await.unwrap();
    assert_eq!(created(&mut stream).await, 0);
    stream.watch(etcd.key("b"), None).await.unwrap();
    assert_eq!(created(&mut stream).await, 1);
    client.put(etcd.key("b"), "", None).await.unwrap();
    assert_eq!(next(&mut stream).await.watch_id(), 1);
    client.put(etcd.key("a"), "", None).await.unwrap();
    assert_eq!(next(&mut stream).await.watch_id(), 0);
}

async fn a_given_id_is_taken_and_stepped_over(etcd: Server) {
    let mut client = etcd.client().await;
    let mut stream = client.watch(etcd.key("a"), id(1)).await.unwrap();
    assert_eq!(created(&mut stream).await, 1);
    for expected in [0, 2, 3] {
        stream.watch(etcd.key("a"), None).await.unwrap();
        assert_eq!(created(&mut stream).await, expected);
    }
    stream.watch(etcd.key("a"), id(70)).await.unwrap();
    assert_eq!(created(&mut stream).await, 70);
}

async fn an_id_given_twice_is_refused_alone(etcd: Server) {
    let mut client = etcd.client().await;
    let mut stream = client.watch(etcd.key("a"), id(7)).await.unwrap();
    assert_eq!(created(&mut stream).await, 7);
    stream.watch(etcd.key("b"), id(7)).await.unwrap();
    let refusal = next(&mut stream).await;
    assert!(refusal.created() && refusal.canceled());
    assert_eq!(refusal.watch_id(), -1);
    let reason = refusal.cancel_reason();
    assert_eq!(reason, "mvcc: duplicate watch ID provided on the WatchStream");
    client.put(etcd.key("a"), "", None).await.unwrap();
    assert_eq!(next_events(&mut stream, 1).await.len(), 1, "the first one goes on");
}

async fn a_cancelled_watch_says_so_and_no_more(etcd: Server) {
    let mut client = etcd.client().await;
    let mut stream = client.watch(etcd.key("a"), None).await.unwrap();
    created(&mut stream).await;
    stream.watch(etcd.key("b"), None).await.unwrap();
    created(&mut stream).await;
    stream.cancel(0).await.unwrap();
    let cancelled = next(&mut stream).await;
    assert!(cancelled.canceled() && !cancelled.created());
    assert_eq!((cancelled.watch_id(), cancelled.cancel_reason()), (0, ""));
    assert_eq!(cancelled.compact_revision(), 0);
    client.put(etcd.key("a"), "", None).await.unwrap();
    assert_silent(&mut stream).await;
    client.put(etcd.key("b"), "", None).await.unwrap();
    assert_eq!(next(&mut stream).await.watch_id(), 1);
    stream.watch(etcd.key("a"), None).await.unwrap();
    assert_eq!(created(&mut stream).await, 2, "an id is not used twice");
}

async fn cancelling_an_unknown_watch_is_not_answered(etcd: Server) {
    let mut client = etcd.client().await;
    let mut stream = client.watch(etcd.key("a"), None).await.unwrap();
    created(&mut stream).await;
    stream.cancel(99).await.unwrap();
    assert_silent(&mut stream).await;
    client.put(etcd.key("a"), "", None).await.unwrap();
    assert_eq!(next_events(&mut stream, 1).await.len(), 1);
}

async fn progress_asked_for_is_answered_once_for_the_stream(etcd: Server) {
    let mut client = etcd.client().await;
    let mut stream = client.watch(etcd.key("a"), None).await.unwrap();
    created(&mut stream).await;
    stream.watch(etcd.key("b"), None).await.unwrap();
    created(&mut stream).await;
    let put = client.put(etcd.key("elsewhere"), "", None).await.unwrap();
    stream.request_progress().await.unwrap();
    let answer = next(&mut stream).await;
    assert_eq!((answer.watch_id(), answer.events().len()), (-1, 0));
    assert!(!answer.created() && !answer.canceled());
    assert!(answer.header().unwrap().revision() >= put.header().unwrap().revision());
    assert_silent(&mut stream).await;
}

/// Writes 6 MB, more than a client takes in one message; the revision to watch from.
async fn write_much(etcd: &Server) -> i64 {
    let mut client = etcd.client().await;
    let value = vec![b'x'; 100_000];
    let mut first = 0;
    for at in 0..60 {
        let put = client.put(etcd.key(&format!("{at:02}")), value.clone(), None).await.unwrap();
        if at == 0 {
            first = put.header().unwrap().revision();
        }
    }
    first
}

async fn much_that_was_missed_is_too_large_for_one_message(etcd: Server) {
    let first = write_much(&etcd).await;
    let options = WatchOptions::new().with_start_revision(first);
    let (mut stream, _) = etcd.watch_all(options).await;
    let error = stream.message().await.unwrap_err();
    let etcd_client::Error::GRpcStatus(status) = error else { panic!("{error:?}") };
    assert_eq!(status.code(), Code::OutOfRange);
    let text = "Error, decoded message length too large: found ";
    assert!(status.message().starts_with(text), "{status:?}");
    assert!(status.message().ends_with(", the limit is: 4194304 bytes"), "{status:?}");
}

async fn much_that_was_missed_comes_in_fragments_when_asked_for(etcd: Server) {
    let first = write_much(&etcd).await;
    let options = WatchOptions::new().with_start_revision(first).with_fragment();
    let (mut stream, _) = etcd.watch_all(options).await;
    let mut parts = Vec::new();
    let mut revisions = Vec::new();
    while revisions.len() < 60 {
        let message = next(&mut stream).await;
        parts.push((message.events().len(), message.0.fragment));
        revisions.extend(message.events().iter().map(|e| e.kv().unwrap().mod_revision()));
    }
    assert_eq!(parts, [(20, true), (20, true), (20, false)]);
    assert!(revisions.is_sorted());
}

async fn a_watch_that_asked_hears_of_progress_from_time_to_time(etcd: Server) {
    let mut client = etcd.client().await;
    let options = WatchOptions::new().with_progress_notify();
    let mut stream = client.watch(etcd.key("a"), Some(options)).await.unwrap();
    created(&mut stream).await;
    let put = client.put(etcd.key("b"), "", None).await.unwrap();
    etcd.let_ten_minutes_pass().await;
    let said = next(&mut stream).await;
    assert_eq!((said.watch_id(), said.events().len()), (0, 0));
    assert!(said.header().unwrap().revision() >= put.header().unwrap().revision());
}

cases! {
    shared {
        watches_of_a_stream_are_numbered_and_apart
        a_given_id_is_taken_and_stepped_over
        an_id_given_twice_is_refused_alone
        a_cancelled_watch_says_so_and_no_more
        cancelling_an_unknown_watch_is_not_answered
        progress_asked_for_is_answered_once_for_the_stream
        much_that_was_missed_is_too_large_for_one_message
        much_that_was_missed_comes_in_fragments_when_asked_for
    }
    with ["--experimental-watch-progress-notify-interval", "200ms"] {
        a_watch_that_asked_hears_of_progress_from_time_to_time
    }
}
