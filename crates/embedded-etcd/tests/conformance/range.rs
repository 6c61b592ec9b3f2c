//! Ranges of keys: bounds, order, filters.

use etcd_client::{Client, GetOptions, SortOrder, SortTarget};

use crate::server::Server;

/// Four keys, made in the order c, a, b, d; a is put twice more, b is deleted and made again.
async fn fill(etcd: &Server) -> Client {
    let mut client = etcd.client().await;
    for (name, value) in [("c", "3"), ("a", "9"), ("b", "0"), ("d", "1"), ("a", "8"), ("a", "2")] {
        client.put(etcd.key(name), value, None).await.unwrap();
    }
    client.delete(etcd.key("b"), None).await.unwrap();
    client.put(etcd.key("b"), "5", None).await.unwrap();
    client
}

async fn names(client: &mut Client, etcd: &Server, from: &str, options: GetOptions) -> String {
    let got = client.get(etcd.key(from), Some(options)).await.unwrap();
    let prefix = etcd.key("");
    got.kvs().iter().map(|kv| kv.key_str().unwrap().strip_prefix(&prefix).unwrap()).collect()
}

async fn a_range_holds_its_start_but_not_its_end(etcd: Server) {
    let mut client = fill(&etcd).await;
    let to = |end: &str| GetOptions::new().with_range(etcd.key(end));
    assert_eq!(names(&mut client, &etcd, "b", to("d")).await, "bc");
    assert_eq!(names(&mut client, &etcd, "a", to("zz")).await, "abcd");
    assert_eq!(names(&mut client, &etcd, "bb", to("c")).await, "");
    assert_eq!(names(&mut client, &etcd, "d", to("b")).await, "", "an upside-down range is empty");
    assert_eq!(names(&mut client, &etcd, "d", to("d")).await, "", "and so is one without length");
    assert_eq!(names(&mut client, &etcd, "", GetOptions::new().with_prefix()).await, "abcd");
}

async fn a_range_without_end_goes_to_the_last_key(etcd: Server) {
    let mut client = fill(&etcd).await;
    let got = client.get(etcd.key("c"), Some(GetOptions::new().with_from_key())).await.unwrap();
    assert_eq!(got.kvs()[0].key(), etcd.key("c").as_bytes());
    assert_eq!(got.kvs()[1].key(), etcd.key("d").as_bytes());
    let all = client.get("", Some(GetOptions::new().with_all_keys())).await.unwrap();
    assert!(all.count() >= 4);
}

async fn keys_come_in_byte_order_or_in_the_one_asked_for(etcd: Server) {
    let mut client = fill(&etcd).await;
    let sorted = |target, order| GetOptions::new().with_prefix().with_sort(target, order);
    for (target, order, expected) in [
        (SortTarget::Key, SortOrder::None, "abcd"),
        (SortTarget::Key, SortOrder::Ascend, "abcd"),
        (SortTarget::Key, SortOrder::Descend, "dcba"),
        (SortTarget::Value, SortOrder::Ascend, "dacb"),
        (SortTarget::Value, SortOrder::Descend, "bcad"),
        (SortTarget::Create, SortOrder::Ascend, "cadb"),
        (SortTarget::Mod, SortOrder::Ascend, "cdab"),
        (SortTarget::Mod, SortOrder::Descend, "badc"),
        // A target without an order means ascending, except for keys, which are so anyway.
        (SortTarget::Mod, SortOrder::None, "cdab"),
    ] {
        let got = names(&mut client, &etcd, "", sorted(target, order)).await;
        assert_eq!(got, expected, "{target:?} {order:?}");
    }
    let by_version = sorted(SortTarget::Version, SortOrder::Descend).with_limit(1);
    assert_eq!(names(&mut client, &etcd, "", by_version).await, "a", "sorted before it is cut");
}

async fn a_range_may_be_counted_or_listed_without_values(etcd: Server) {
    let mut client = fill(&etcd).await;
    let options = GetOptions::new().with_prefix();
    let got = client.get(etcd.key(""), Some(options.clone().with_count_only())).await.unwrap();
    assert_eq!((got.count(), got.kvs().len(), got.more()), (4, 0, false));
    let got = client.get(etcd.key(""), Some(options.with_keys_only())).await.unwrap();
    assert_eq!((got.count(), got.kvs().len()), (4, 4));
    assert!(got.kvs().iter().all(|kv| kv.value().is_empty() && kv.mod_revision() > 0));
}

async fn a_range_may_be_filtered_by_revision(etcd: Server) {
    let mut client = fill(&etcd).await;
    let of = client.get(etcd.key("d"), None).await.unwrap().kvs()[0].clone();
    let revision = of.mod_revision();
    let all = || GetOptions::new().with_prefix();
    for (options, expected) in [
        (all().with_min_mod_revision(revision), "abd"),
        (all().with_max_mod_revision(revision), "cd"),
        (all().with_min_create_revision(revision), "bd"),
        (all().with_max_create_revision(revision), "acd"),
        (all().with_min_mod_revision(revision).with_max_create_revision(revision), "ad"),
    ] {
        assert_eq!(names(&mut client, &etcd, "", options.clone()).await, expected, "{options:?}");
        let got = client.get(etcd.key(""), Some(options)).await.unwrap();
        assert_eq!(got.count(), 4, "the count is of the range, not of what passed the filter");
    }
}

async fn a_serializable_read_answers_alike(etcd: Server) {
    let mut client = fill(&etcd).await;
    let options = GetOptions::new().with_prefix().with_serializable();
    assert_eq!(names(&mut client, &etcd, "", options).await, "abcd");
}

cases! {
    shared {
        a_range_holds_its_start_but_not_its_end
        keys_come_in_byte_order_or_in_the_one_asked_for
        a_range_may_be_counted_or_listed_without_values
        a_range_may_be_filtered_by_revision
        a_serializable_read_answers_alike
    }
    own {
        a_range_without_end_goes_to_the_last_key
    }
}
