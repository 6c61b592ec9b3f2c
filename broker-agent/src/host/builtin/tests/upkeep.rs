//! What is done for stored segments behind the clients' backs.

use evenkeel_shard_log::storage::Storage;

use super::*;

/// Closes a segment after every few records.
pub(super) fn small_segments() -> LogConfig {
    LogConfig { segment_bytes: 1000, ..LogConfig::default() }
}

/// Gives a broker that was not told anything yet this disk and these settings.
pub(super) async fn replace(f: &mut Fixture, name: &str, disks: Arc<dyn Disks>, log: LogConfig) {
    let network = f.members[&id(name)].network.clone();
    f.members[&id(name)].serving.trigger();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let member = host_with(&id(name), disks, network, &f.addresses, log).await;
    f.members.insert(id(name), member);
}

/// Brokers a to c over simulated links, `a` on this disk and with these settings.
async fn with_a_on(disks: &MemoryDisks, log: LogConfig) -> Fixture {
    let mut f = Fixture::start(false, &["b", "c"]).await;
    replace(&mut f, "a", Arc::new(disks.clone()), log).await;
    f.tell().await;
    f.until_serving("a").await;
    f
}

pub(super) fn files(storage: &dyn Storage, ending: &str) -> Vec<String> {
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
async fn damage_beneath_what_is_in_memory_halts_the_replica_when_a_copy_is_compared() {
    let disks = MemoryDisks::new();
    let mut f = with_a_on(&disks, small_segments()).await;
    let end = f.publish("a", 0..30).await.last().unwrap() + 1;
    let storage = disks.shard(&f.shard).unwrap();
    let newest = files(&storage, ".log").pop().unwrap();
    storage.flip_bit(&newest, 60, 1);
    assert_eq!(f.read_all("a").await, expected(0..30), "readers have it from memory");
    let refused = f.host("a").digest(&f.shard, 0, end, u64::MAX).await;
    assert!(matches!(refused, Err(ShardError::Storage(_))), "{refused:?}");
    f.until_reported("a", |report| report.halted.is_some()).await;
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

/// All files of the shard, with their content.
fn bytes_of(f: &Fixture, disks: &MemoryDisks) -> BTreeMap<String, Option<Vec<u8>>> {
    let storage = disks.shard(&f.shard).unwrap();
    let names = files(&storage, ".log").into_iter().chain(["replica.json".to_owned()]);
    names.map(|name| (name.clone(), storage.read(&name).unwrap())).collect()
}

/// The broker on `disks` says that its log is damaged, and keeps every byte.
async fn keeps_what_is_damaged(f: &mut Fixture, name: &str, disks: &MemoryDisks) {
    let before = bytes_of(f, disks);
    let damaged = |r: &ShardReport| r.halted.as_ref().is_some_and(|why| why.contains("damaged"));
    f.until_reported(name, damaged).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(bytes_of(f, disks) == before, "bytes were given up");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_destination_of_a_fenced_shard_keeps_its_bytes() {
    let disks = MemoryDisks::new();
    let mut f = Fixture::start(false, &[]).await;
    replace(&mut f, "d", Arc::new(disks.clone()), small_segments()).await;
    f.tell().await;
    f.until_serving("a").await;
    f.publish("a", 0..30).await;
    f.change(|a| a.successor = Some(id("d"))).await;
    f.until_reported("d", |r| r.caught_up).await;
    f.change(|a| a.state = ShardState::Draining).await;
    f.until_reported("a", |r| r.drained).await;
    let storage = disks.shard(&f.shard).unwrap();
    storage.flip_bit("00000000000000000000.log", 500, 1);
    f.restart("d").await;
    f.tell().await;
    keeps_what_is_damaged(&mut f, "d", &disks).await;
    // People put the file right: all that the leader drained for is still there.
    storage.flip_bit("00000000000000000000.log", 500, 1);
    f.until_reported("d", |r| r.caught_up && r.halted.is_none()).await;
    f.change(|a| {
        a.leader = a.successor.take();
        a.state = ShardState::Assigning;
    })
    .await;
    f.until_serving("d").await;
    assert_eq!(f.read_all("d").await, expected(0..30));
}

#[tokio::test(start_paused = true)]
async fn an_overtaken_duty_erases_no_damaged_voter() {
    for restarts in [true, false] {
        let disks = MemoryDisks::new();
        let mut f = with_b_halted(&disks).await;
        // Written before `b` became a follower, and read only now.
        let mut assignment = f.assignment.clone();
        assignment.followers = vec![id("c")];
        assignment.joining = Some(id("b"));
        let overtaken =
            BrokerShard { v: RECORD_VERSION, role: Role::Joining, assignment, token: 1 };
        if restarts {
            f.restart("b").await;
        }
        let before = bytes_of(&f, &disks);
        f.host("b").apply(overtaken).await;
        f.tell().await;
        if restarts {
            keeps_what_is_damaged(&mut f, "b", &disks).await;
        }
        assert!(bytes_of(&f, &disks) == before, "bytes were given up");
    }
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

/// Where a broker's log begins, as a reader from 0 is told.
async fn begins(f: &Fixture, name: &str) -> u64 {
    match f.host(name).read(&f.shard, 0, 1000).await {
        Err(ShardError::BeforeStart { asked: 0, first }) => first,
        Ok(_) => 0,
        Err(error) => panic!("{name}: {error}"),
    }
}

pub(super) async fn until_begins(f: &Fixture, name: &str, wanted: impl Fn(u64) -> bool) -> u64 {
    let found = timeout(LIMIT, async {
        loop {
            let first = begins(f, name).await;
            if wanted(first) {
                return first;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    found.await.expect("it does not begin there")
}

/// Every payload from an offset on.
async fn read_from(f: &Fixture, name: &str, mut from: u64) -> Vec<String> {
    let mut payloads = Vec::new();
    loop {
        let batch = f.host(name).read(&f.shard, from, 1000).await.unwrap();
        if batch.records.is_empty() {
            return payloads;
        }
        from = batch.next_offset;
        let texts = batch.records.iter().map(|r| String::from_utf8_lossy(&r.payload));
        payloads.extend(texts.map(|text| text.into_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_oldest_segments_are_given_up_everywhere_and_erased() {
    let disks = MemoryDisks::new();
    let log = LogConfig { retention_bytes: 3000, ..small_segments() };
    let mut f = with_a_on(&disks, log).await;
    f.publish("a", 0..200).await;
    let first = until_begins(&f, "a", |first| first > 100).await;
    for name in ["b", "c"] {
        until_begins(&f, name, |theirs| theirs == first).await;
    }
    let storage = disks.shard(&f.shard).unwrap();
    let erased = timeout(LIMIT, async {
        while files(&storage, ".log").len() > 5 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    erased.await.expect("nothing is erased");
    let bytes: u64 = storage.list().unwrap().iter().map(|(_, bytes)| bytes).sum();
    assert!((3000..6000).contains(&bytes), "{bytes} bytes are left");
    // The first record of the shard is its leader's, at offset 0.
    let kept = expected(first - 1..200);
    for name in ["a", "b"] {
        f.restart(name).await;
        f.tell().await;
        f.until_serving("a").await;
        assert_eq!(begins(&f, name).await, first, "{name} remembers");
        f.until("b", |status| status.committed > 200).await;
        assert_eq!(read_from(&f, name, first).await, kept);
    }
    assert_eq!(f.publish("a", 199..201).await[0], 200, "what is kept is known");

    // A crash came after a file was cut down, and before it was removed.
    let emptied = "00000000000000000000.log".to_owned();
    storage.open(&emptied, true).unwrap();
    f.restart("a").await;
    f.tell().await;
    f.until_serving("a").await;
    let removed = timeout(LIMIT, async {
        while files(&storage, ".log").contains(&emptied) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    removed.await.expect("an empty file stays");

    f.change(|a| a.joining = Some(id("d"))).await;
    f.until_reported("d", |r| r.caught_up).await;
    assert_eq!(begins(&f, "d").await, first, "a new replica begins there too");
    assert_eq!(read_from(&f, "d", first).await, expected(first - 1..201));
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_missed_what_was_given_up_begins_anew() {
    let disks = MemoryDisks::new();
    let log = LogConfig { retention_seconds: 60, ..small_segments() };
    let mut f = with_a_on(&disks, log).await;
    f.publish("a", 0..20).await;
    f.until("b", |status| status.committed == 21).await;
    let away = f.members.remove(&id("b")).unwrap();
    away.serving.trigger();
    away.host.close().await;
    f.publish("a", 20..100).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(begins(&f, "a").await, 0, "nothing is old yet");
    tokio::time::sleep(Duration::from_secs(40)).await;
    let first = until_begins(&f, "a", |first| first > 50).await;
    let b = host_on(&id("b"), away.disks, away.network, &f.addresses).await;
    f.members.insert(id("b"), b);
    f.tell().await;
    until_begins(&f, "b", |theirs| theirs == first).await;
    f.until("b", |status| status.committed > 100).await;
    assert_eq!(read_from(&f, "b", first).await, expected(first - 1..100));
    // It counts: with it and without the leader's other follower, the shard goes on.
    let c = f.members.remove(&id("c")).unwrap();
    c.serving.trigger();
    c.host.close().await;
    assert_eq!(f.publish("a", 100..101).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_clock_is_ahead_gives_nothing_up_at_once() {
    let log = LogConfig { retention_seconds: 600, ..small_segments() };
    let mut f = Fixture::start(false, &["a", "c"]).await;
    replace(&mut f, "a", Arc::new(MemoryDisks::new()), small_segments()).await;
    f.assignment.leader = Some(id("b"));
    f.tell().await;
    f.until_serving("b").await;
    f.publish("b", 0..100).await;
    f.until("a", |status| status.committed > 100).await;
    let away = f.members.remove(&id("a")).unwrap();
    away.serving.trigger();
    away.host.close().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (network, year) = (away.network, 365 * 86_400_000);
    let clock = Clock::simulated(1_700_000_000_000 + year);
    let a = host_by(&id("a"), away.disks, network, &f.addresses, log, clock).await;
    f.members.insert(id("a"), a);
    f.change(|a| (a.leader, a.followers) = (Some(id("a")), vec![id("b"), id("c")])).await;
    f.until_serving("a").await;
    for sequence in 100..103 {
        f.publish("a", sequence..sequence + 1).await;
        tokio::time::sleep(Duration::from_secs(90)).await;
    }
    assert_eq!(begins(&f, "a").await, 0, "nothing is old");
    // It does go on.
    tokio::time::sleep(Duration::from_secs(60)).await;
    until_begins(&f, "a", |first| first > 50).await;
}

/// `b`, on `disks`, follows `a`, has indexes, and has halted because of damage in a closed segment.
async fn with_b_halted(disks: &MemoryDisks) -> Fixture {
    let mut f = Fixture::start(false, &["b", "c"]).await;
    replace(&mut f, "b", Arc::new(disks.clone()), small_segments()).await;
    f.tell().await;
    f.until_serving("a").await;
    f.publish("a", 0..100).await;
    let storage = disks.shard(&f.shard).unwrap();
    f.until("b", |status| status.committed > 100).await;
    until_indexed(&storage).await;
    f.restart("b").await;
    f.tell().await;
    f.until("b", |status| status.committed > 100).await;
    storage.flip_bit(&files(&storage, ".log")[1], 500, 1);
    assert!(f.host("b").read(&f.shard, 0, usize::MAX).await.is_err());
    f.until_reported("b", |r| r.halted.is_some()).await;
    f
}

#[tokio::test(start_paused = true)]
async fn a_halted_replica_is_still_halted_after_a_restart() {
    let disks = MemoryDisks::new();
    let mut f = with_b_halted(&disks).await;
    f.restart("b").await;
    f.tell().await;
    f.until_reported("b", |r| r.halted.as_ref().is_some_and(|why| why.contains("damaged"))).await;
    // People put the file right.
    let storage = disks.shard(&f.shard).unwrap();
    storage.flip_bit(&files(&storage, ".log")[1], 500, 1);
    f.until_reported("b", |r| r.halted.is_none() && r.caught_up).await;
    f.until("b", |status| status.committed > 100).await;
    assert_eq!(f.read_all("b").await, expected(0..100));
}

#[tokio::test(start_paused = true)]
async fn a_halted_replica_that_left_the_set_gets_a_new_copy_where_it_was() {
    for hears_of_leaving in [true, false] {
        let disks = MemoryDisks::new();
        let mut f = with_b_halted(&disks).await;
        f.assignment.generation += 1;
        f.assignment.followers = vec![id("c")];
        if hears_of_leaving {
            f.tell().await;
            f.until_serving("a").await;
        }
        f.change(|a| a.joining = Some(id("b"))).await;
        f.until_reported("b", |r| r.caught_up && r.halted.is_none()).await;
        assert_eq!(f.read_all("b").await, expected(0..100));
    }
}
