//! Caches: the newest record of each key is kept, and what it replaced is given up.

use super::upkeep::{files, replace, small_segments, until_begins};
use super::*;

/// Brokers a to c with a cache that `a` leads, on these disks and with these settings.
async fn with_cache(disks: &BTreeMap<&str, MemoryDisks>, log: &LogConfig) -> Fixture {
    let mut f = Fixture::start(false, &["b", "c"]).await;
    for (name, disks) in disks {
        replace(&mut f, name, Arc::new(disks.clone()), log.clone()).await;
    }
    f.shard = "cache/default/prices/0".parse().unwrap();
    f.assignment = Assignment::new(f.shard.clone(), id("a"), vec![id("b"), id("c")]);
    f.tell().await;
    f.until_serving("a").await;
    f
}

fn disks() -> BTreeMap<&'static str, MemoryDisks> {
    ["a", "b", "c"].map(|name| (name, MemoryDisks::new())).into()
}

async fn put(f: &Fixture, name: &str, key: &str, value: &str) {
    let (key, payload) = (Some(key.to_owned().into()), value.to_owned().into());
    let record = NewRecord { key, payload, producer_id: 0, sequence: 0 };
    let published = f.host(name).publish(&f.shard, vec![record]);
    timeout(LIMIT, published).await.expect("it is not committed").unwrap();
}

/// Numbers from a range as values of five keys in turn.
async fn put_numbers(f: &Fixture, name: &str, numbers: std::ops::Range<u32>) {
    for number in numbers {
        put(f, name, &format!("k{}", number % 5), &format!("{number}")).await;
    }
}

/// Keys, values and whether they were written again, from an offset on, or from where the log begins
/// by the time it is read.
async fn entries(f: &Fixture, name: &str, mut from: u64) -> Vec<(String, String, bool)> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let mut entries = Vec::new();
    loop {
        let batch = match f.host(name).read(&f.shard, from, 1000).await {
            Err(ShardError::BeforeStart { first, .. }) => {
                from = first;
                entries.clear();
                continue;
            }
            batch => batch.unwrap(),
        };
        if batch.records.is_empty() {
            return entries;
        }
        from = batch.next_offset;
        let said = batch.records.iter().map(|r| {
            let key = r.key.as_ref().map(text).unwrap_or_default();
            (key, text(&r.payload), r.rewrites.is_some())
        });
        entries.extend(said);
    }
}

async fn folded(f: &Fixture, name: &str, from: u64) -> BTreeMap<String, String> {
    let entries = entries(f, name, from).await;
    let mut map: BTreeMap<_, _> = entries.into_iter().map(|(key, value, _)| (key, value)).collect();
    map.retain(|_, value| !value.is_empty());
    map
}

/// What must be there after numbers up to `end`.
fn newest(end: u32) -> BTreeMap<String, String> {
    let numbers = (end - 5..end).map(|n| (format!("k{}", n % 5), format!("{n}")));
    numbers.chain([("once".to_owned(), "kept".to_owned())]).collect()
}

async fn until_erased(disks: &MemoryDisks, shard: &ShardKey) {
    let storage = disks.shard(shard).unwrap();
    let erased = timeout(LIMIT, async {
        while files(&storage, ".log").len() > 5 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    erased.await.expect("nothing is erased");
}

#[tokio::test(start_paused = true)]
async fn a_cache_keeps_the_newest_of_each_key_whoever_leads() {
    let disks = disks();
    let mut f = with_cache(&disks, &small_segments()).await;
    put(&f, "a", "once", "kept").await;
    put(&f, "a", "gone", "value").await;
    put(&f, "a", "gone", "").await;
    put_numbers(&f, "a", 0..300).await;
    let first = until_begins(&f, "a", |first| first > 200).await;
    assert_eq!(folded(&f, "a", first).await, newest(300));
    let entries = entries(&f, "a", first).await;
    assert!(entries.iter().all(|(key, ..)| key != "gone"), "{entries:?}");
    assert!(entries.contains(&("once".to_owned(), "kept".to_owned(), true)), "{entries:?}");
    until_begins(&f, "b", |theirs| theirs >= first).await;
    for disks in disks.values() {
        until_erased(disks, &f.shard).await;
    }

    // Another one leads, with the log that it has.
    f.change(|a| {
        a.leader = Some(id("b"));
        a.followers = vec![id("a"), id("c")];
    })
    .await;
    f.until_serving("b").await;
    put_numbers(&f, "b", 300..600).await;
    let first = until_begins(&f, "b", |first| first > 500).await;
    assert_eq!(folded(&f, "b", first).await, newest(600));
    for name in ["a", "b", "c"] {
        f.restart(name).await;
    }
    f.tell().await;
    f.until_serving("b").await;
    let first = until_begins(&f, "b", |theirs| theirs >= first).await;
    assert_eq!(folded(&f, "b", first).await, newest(600));
}

#[tokio::test(start_paused = true)]
async fn no_value_goes_back_while_a_cache_under_load_is_compacted() {
    let f = with_cache(&disks(), &small_segments()).await;
    put(&f, "a", "once", "kept").await;
    for round in 0..60 {
        put_numbers(&f, "a", round * 20..(round + 1) * 20).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let first = until_begins(&f, "a", |first| first > 900).await;
    let mut last: BTreeMap<String, u32> = BTreeMap::new();
    for (key, value, _) in entries(&f, "a", first).await {
        if let Ok(number) = value.parse::<u32>() {
            let before = last.insert(key, number);
            assert!(before.is_none_or(|before| before <= number), "{before:?}, then {number}");
        }
    }
    assert_eq!(folded(&f, "a", first).await, newest(1200));
}

#[tokio::test(start_paused = true)]
async fn what_still_counts_is_not_given_up_by_size_unless_caches_are_not_compacted() {
    for percent in [50, 0] {
        let log = LogConfig {
            retention_bytes: 2000,
            cache_compaction_percent: percent,
            ..small_segments()
        };
        let f = with_cache(&disks(), &log).await;
        for number in 0..100 {
            put(&f, "a", &format!("key {number}"), "value").await;
        }
        if percent == 0 {
            until_begins(&f, "a", |first| first > 50).await;
        } else {
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert_eq!(folded(&f, "a", 0).await.len(), 100);
        }
    }
}
