//! What is done for stored segments behind the clients' backs.

use evenkeel_shard_log::storage::Storage;

use super::*;

/// Closes a segment after every few records.
fn small_segments() -> LogConfig {
    LogConfig { segment_bytes: 1000, ..LogConfig::default() }
}

/// Brokers a to c over simulated links, `a` on this disk and with these settings.
async fn with_a_on(disks: &MemoryDisks, log: LogConfig) -> Fixture {
    let mut f = Fixture::start(false, &["b", "c"]).await;
    let network = f.members[&id("a")].network.clone();
    f.members[&id("a")].serving.trigger();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let member = host_with(&id("a"), Arc::new(disks.clone()), network, &f.addresses, log).await;
    f.members.insert(id("a"), member);
    f.tell().await;
    f.until_serving("a").await;
    f
}

fn files(storage: &dyn Storage, ending: &str) -> Vec<String> {
    let names = storage.list().unwrap().into_iter().map(|(name, _)| name);
    names.filter(|name| name.ends_with(ending)).collect()
}

async fn until_indexed(storage: &dyn Storage) {
    let all = timeout(LIMIT, async {
        while files(storage, ".idx").len() + 1 < files(storage, ".log").len() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    all.await.expect("the indexes do not come");
}

#[tokio::test(start_paused = true)]
async fn closed_segments_get_indexes_and_are_not_read_after_a_restart() {
    let disks = MemoryDisks::new();
    let mut f = with_a_on(&disks, small_segments()).await;
    f.publish("a", 0..100).await;
    let storage = disks.shard(&f.shard).unwrap();
    assert!(files(&storage, ".log").len() > 5);
    until_indexed(&storage).await;
    let mut closed = files(&storage, ".log");
    closed.pop();
    let read = |storage: &evenkeel_shard_log::storage::MemoryStorage| -> Vec<u64> {
        closed.iter().map(|name| storage.bytes_read(name)).collect()
    };
    let before = read(&storage);
    f.restart("a").await;
    f.tell().await;
    f.until_serving("a").await;
    assert_eq!(read(&storage), before, "the indexes tell all there is to know");
    assert_eq!(f.publish("a", 99..101).await[0], 100, "what was written is known");
    assert_eq!(f.read_all("a").await, expected(0..101));
}

#[tokio::test(start_paused = true)]
async fn damage_that_a_client_meets_halts_the_replica() {
    let disks = MemoryDisks::new();
    let mut f = with_a_on(&disks, small_segments()).await;
    f.publish("a", 0..100).await;
    let storage = disks.shard(&f.shard).unwrap();
    until_indexed(&storage).await;
    f.restart("a").await;
    f.tell().await;
    f.until_serving("a").await;
    let second = files(&storage, ".log").swap_remove(1);
    storage.flip_bit(&second, 500, 1);
    let refused = f.host("a").read(&f.shard, 0, usize::MAX).await;
    assert!(matches!(refused, Err(ShardError::Storage(_))), "{refused:?}");
    let named = format!("log memory:{second} is damaged at byte");
    let names = |r: &ShardReport| r.halted.as_ref().is_some_and(|why| why.starts_with(&named));
    f.until_reported("a", names).await;
    let refused = f.host("a").publish(&f.shard, vec![record(9, 100)]).await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_leftover_makes_way_for_a_copy_and_only_then() {
    let disks = MemoryDisks::new();
    let mut f = with_a_on(&disks, small_segments()).await;
    f.publish("a", 0..30).await;
    // `a` hands over and leaves; its bytes stay, and decay.
    f.change(|a| {
        a.leader = Some(id("b"));
        a.followers = vec![id("c")];
    })
    .await;
    f.until_serving("b").await;
    disks.shard(&f.shard).unwrap().flip_bit("00000000000000000000.log", 500, 1);
    f.change(|a| a.followers = vec![id("a"), id("c")]).await;
    let damaged = |r: &ShardReport| r.halted.as_ref().is_some_and(|why| why.contains("damaged"));
    f.until_reported("a", damaged).await;
    assert!(disks.discarded().unwrap().is_empty(), "a voter's bytes stay for people to look at");
    let refused = f.host("a").copy_position(&f.shard).await;
    let named = |e: &ShardError| e.to_string().starts_with("storage: log memory:0");
    assert!(refused.as_ref().is_err_and(named), "{refused:?}");

    f.change(|a| a.followers = vec![id("c")]).await;
    f.change(|a| a.joining = Some(id("a"))).await;
    f.until_reported("a", |r| r.caught_up).await;
    assert_eq!(f.read_all("a").await, expected(0..30));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_cannot_be_opened_is_tried_again_with_growing_pauses() {
    let disks = MemoryDisks::new();
    let mut f = with_a_on(&disks, small_segments()).await;
    f.publish("a", 0..30).await;
    let storage = disks.shard(&f.shard).unwrap();
    storage.flip_bit("00000000000000000000.log", 500, 1);
    f.restart("a").await;
    f.tell().await;
    // Each try says again that it halted; 5 s, 10 s, 20 s and so on lie between them.
    let mut tries = 0;
    let reports = &mut f.members.get_mut(&id("a")).unwrap().reports;
    while let Ok(report) = timeout(Duration::from_secs(290), reports.recv()).await {
        assert!(report.unwrap().halted.is_some());
        tries += 1;
        if tries == 7 {
            break;
        }
    }
    assert_eq!(tries, 7);
    let within = timeout(Duration::from_secs(290), reports.recv()).await;
    assert!(within.is_err(), "the seventh pause is the longest");
    storage.flip_bit("00000000000000000000.log", 500, 1);
    f.until_reported("a", |r| r.halted.is_none() && r.phase == Some(Phase::Serving)).await;
}
