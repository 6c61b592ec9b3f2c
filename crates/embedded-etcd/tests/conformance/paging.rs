//! Reading a long range in pages at one revision.

use etcd_client::{Client, GetOptions};
use tonic::Code;

use crate::server::{Server, assert_refused};

async fn fill(etcd: &Server, count: usize) -> Client {
    let mut client = etcd.client().await;
    for at in 0..count {
        client.put(etcd.key(&format!("{at:02}")), "", None).await.unwrap();
    }
    client
}

/// The end of the range of all keys of the case.
fn end(etcd: &Server) -> String {
    let prefix = etcd.key("");
    format!("{}0", prefix.strip_suffix('/').unwrap())
}

/// The page after `last` (none: the first).
fn page(etcd: &Server, last: Option<&str>, revision: i64) -> (Vec<u8>, GetOptions) {
    let mut from = etcd.key(last.unwrap_or("")).into_bytes();
    if last.is_some() {
        from.push(0);
    }
    let options = GetOptions::new().with_range(end(etcd)).with_limit(3).with_revision(revision);
    (from, options)
}

async fn a_page_tells_what_is_left(etcd: Server) {
    let mut client = fill(&etcd, 7).await;
    let (from, options) = page(&etcd, None, 0);
    let first = client.get(from, Some(options)).await.unwrap();
    assert_eq!((first.kvs().len(), first.more(), first.count()), (3, true, 7));
    let revision = first.header().unwrap().revision();

    let (from, options) = page(&etcd, Some("02"), revision);
    let second = client.get(from, Some(options)).await.unwrap();
    assert_eq!((second.kvs().len(), second.more(), second.count()), (3, true, 4));
    assert_eq!(second.kvs()[0].key(), etcd.key("03").as_bytes());
    let (from, options) = page(&etcd, Some("05"), revision);
    let third = client.get(from, Some(options)).await.unwrap();
    assert_eq!((third.kvs().len(), third.more(), third.count()), (1, false, 1));
    let (from, options) = page(&etcd, Some("06"), revision);
    let fourth = client.get(from, Some(options)).await.unwrap();
    assert_eq!((fourth.kvs().len(), fourth.more(), fourth.count()), (0, false, 0));
}

async fn a_page_that_is_exactly_full_has_no_more(etcd: Server) {
    let mut client = fill(&etcd, 3).await;
    let (from, options) = page(&etcd, None, 0);
    let first = client.get(from, Some(options)).await.unwrap();
    assert_eq!((first.kvs().len(), first.more(), first.count()), (3, false, 3));
}

async fn pages_of_one_revision_do_not_see_what_happens_between_them(etcd: Server) {
    let mut client = fill(&etcd, 6).await;
    let (from, options) = page(&etcd, None, 0);
    let first = client.get(from, Some(options)).await.unwrap();
    let revision = first.header().unwrap().revision();

    client.put(etcd.key("03a"), "new", None).await.unwrap();
    client.put(etcd.key("04"), "changed", None).await.unwrap();
    client.delete(etcd.key("05"), None).await.unwrap();
    let (from, options) = page(&etcd, Some("02"), revision);
    let second = client.get(from, Some(options)).await.unwrap();
    let keys: Vec<&[u8]> = second.kvs().iter().map(|kv| kv.key()).collect();
    let expected = ["03", "04", "05"].map(|name| etcd.key(name));
    assert_eq!(keys, expected.each_ref().map(|key| key.as_bytes()));
    assert!(second.kvs().iter().all(|kv| kv.value().is_empty()));
    assert_eq!((second.more(), second.count()), (false, 3));
    assert!(second.header().unwrap().revision() > revision);
}

async fn a_compaction_between_pages_ends_them(etcd: Server) {
    let mut client = fill(&etcd, 6).await;
    let (from, options) = page(&etcd, None, 0);
    let first = client.get(from, Some(options)).await.unwrap();
    let revision = first.header().unwrap().revision();
    let put = client.put(etcd.key("07"), "", None).await.unwrap();
    client.compact(put.header().unwrap().revision(), None).await.unwrap();
    let (from, options) = page(&etcd, Some("02"), revision);
    let refused = client.get(from, Some(options)).await;
    let text = "etcdserver: mvcc: required revision has been compacted";
    assert_refused(refused, Code::OutOfRange, text);
}

cases! {
    shared {
        a_page_tells_what_is_left
        a_page_that_is_exactly_full_has_no_more
        pages_of_one_revision_do_not_see_what_happens_between_them
    }
    own {
        a_compaction_between_pages_ends_them
    }
}
