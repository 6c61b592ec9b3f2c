//! Deferred maintenance in running agents: held back by a repair, ramped up after it, finished
//! after a crash; and decay that the scrub finds.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use evenkeel_model::Assignment;
use evenkeel_proto::migrations::migrator_message::Message as Down;
use evenkeel_proto::migrations::{CopyCancel, MaintenanceHold};
use tokio::time::{sleep, timeout};

use support::migrator::{Line, line_of, migrator};
use support::{Cluster, PATIENCE, Running, id, publish, publish_batch, shard};

const PAYLOAD: usize = 10_000;
const RECORDS: u64 = 150;

/// Slow enough for the deletion of [`RECORDS`] to be seen: 5 % of it is 200 kB/s.
const LINK: u64 = 4_000_000;

/// Bytes of every file in a directory and below it.
fn bytes_in(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_in(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !holds() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain for {what}");
}

async fn fill(cluster: &Cluster, leader: &str, number: u32) {
    let mut client = cluster.client(leader).await;
    for first in (1..=RECORDS).step_by(50) {
        publish_batch(&mut client, &shard(number), first, 50, PAYLOAD).await;
    }
}

/// `b1` to `b3`, the last on a slow link; shard 1 is full of bytes and on all of them.
async fn with_a_full_shard() -> (Cluster, Vec<Running>, Assignment) {
    let mut cluster = Cluster::start().await;
    let mut running: Vec<Running> = cluster.agents(&["b1", "b2"]).await.into_values().collect();
    let mut slow = cluster.config("b3");
    slow.network_bytes_per_second = Some(LINK);
    running.push(cluster.run(slow));
    cluster.registered("b3").await;
    let full = Assignment::new(shard(1), id("b1"), vec![id("b2"), id("b3")]);
    cluster.assign(&full).await;
    cluster.serving("b1", &shard(1), 1).await;
    fill(&cluster, "b1", 1).await;
    let data = cluster.data_dir("b3");
    until("b3's replica", || bytes_in(&data.join("shards")) > RECORDS * PAYLOAD as u64).await;
    (cluster, running, full)
}

/// `b3` holds shard 1 no more.
async fn taken_away(cluster: &mut Cluster, full: &Assignment) {
    let mut without = full.clone();
    without.generation += 1;
    without.followers = vec![id("b2")];
    cluster.assign(&without).await;
}

/// A copy to `b3` is ordered, and gets no credit.
async fn repair(cluster: &mut Cluster, line: &mut Line) {
    let mut assignment = Assignment::new(shard(0), id("b1"), vec![id("b2")]);
    cluster.assign(&assignment).await;
    cluster.serving("b1", &shard(0), 1).await;
    fill(cluster, "b1", 0).await;
    // Beyond what the leader ships by itself.
    let mut client = cluster.client("b1").await;
    for first in (RECORDS + 1..2 * 1500).step_by(100) {
        publish_batch(&mut client, &shard(0), first, 100, 10).await;
    }
    assignment.generation = 2;
    assignment.joining = Some(id("b3"));
    cluster.assign(&assignment).await;
    let order = cluster.repair_order().await;
    line.tell(Down::Order(order)).await;
    line.progress(|p| p.state == "running").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_holds_deletion_back_and_its_end_lets_it_ramp() {
    let (mut cluster, _agents, full) = with_a_full_shard().await;
    let (mut sessions, _stop) = migrator(&cluster, 5).await;
    let mut line = line_of(&mut sessions, "b3").await;
    repair(&mut cluster, &mut line).await;
    taken_away(&mut cluster, &full).await;
    let waiting = line.status(|s| s.maintenance_backlog_bytes > 0).await;
    // 1 % of what copies may take of this link.
    let trickle = 1 << 20 >> 6;
    assert!(waiting.maintenance_bytes_per_second <= trickle, "{waiting:?}");
    let mut during = 0;
    for _ in 0..3 {
        let status = line.status(|_| true).await;
        assert!(status.maintenance_bytes_per_second <= trickle, "{status:?}");
        during += status.maintenance_bytes;
    }
    assert!(during < 6 * trickle, "{during} bytes in three seconds");
    line.status(|s| s.maintenance_bytes > 0).await;

    let cancel = CopyCancel { shard: shard(0).to_string(), generation: 2 };
    line.tell(Down::Cancel(cancel)).await;
    let floor = LINK / 20;
    let mut rates = vec![0];
    loop {
        let status = line.status(|_| true).await;
        rates.push(status.maintenance_bytes_per_second);
        // The session may skip a second or two of them.
        let most = (rates[rates.len() - 2] as f64 * 1.17).max(floor as f64);
        assert!(status.maintenance_bytes_per_second as f64 <= most, "{rates:?}");
        if status.maintenance_backlog_bytes == 0 {
            break;
        }
        assert!(rates.len() < 100, "it never ends: {rates:?}");
    }
    // No client asks anything of this broker: it is idle, and the ramp rises.
    assert!(rates.iter().any(|rate| *rate > floor * 11 / 10), "{rates:?}");
    let data = cluster.data_dir("b3").join("shards/.discarded");
    until("an empty disk", || fs::read_dir(&data).unwrap().next().is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_migrator_holds_maintenance_back_for_as_long_as_it_says_so() {
    let (mut cluster, _agents, full) = with_a_full_shard().await;
    let (mut sessions, _stop) = migrator(&cluster, 5).await;
    let mut line = line_of(&mut sessions, "b3").await;
    let trickle = 1 << 20 >> 6;
    line.tell(Down::MaintenanceHold(MaintenanceHold { for_ms: 3_000 })).await;
    line.status(|s| (1..=trickle).contains(&s.maintenance_bytes_per_second)).await;
    taken_away(&mut cluster, &full).await;
    let waiting = line.status(|s| s.maintenance_backlog_bytes > 0).await;
    assert!(waiting.maintenance_bytes_per_second <= trickle, "{waiting:?}");
    let after = line.status(|s| s.maintenance_bytes_per_second > trickle).await;
    assert!(after.maintenance_backlog_bytes > 0, "it ends by itself: {after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_deletion_is_finished_and_spares_the_shard_that_came_back() {
    let (mut cluster, mut agents, full) = with_a_full_shard().await;
    taken_away(&mut cluster, &full).await;
    let shards = cluster.data_dir("b3").join("shards");
    let discarded = shards.join(".discarded");
    let all = RECORDS * PAYLOAD as u64;
    until("half a deletion", || (1..all * 3 / 4).contains(&bytes_in(&discarded))).await;
    agents.pop().unwrap().kill();
    assert!(bytes_in(&discarded) > all / 10, "nothing is left to do after the restart");

    // It is to have the shard again, before the first one's bytes are gone.
    let mut back = full.clone();
    back.generation = 3;
    back.followers = vec![id("b2")];
    back.joining = Some(id("b3"));
    cluster.assign(&back).await;
    agents.push(cluster.run(cluster.config("b3")));
    cluster.serving("b1", &shard(1), 3).await;
    let joined =
        cluster.report("b3", &shard(1), "caught up", |r| r.generation == 3 && r.caught_up).await;
    assert_eq!(joined.halted, None);
    until("the rest to be erased", || bytes_in(&discarded) == 0).await;
    assert!(bytes_in(&shards) > all, "the new replica is whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decay_is_found_by_the_scrub_and_another_broker_leads() {
    let mut cluster = Cluster::start().await;
    let mut scrubbed = cluster.config("b1");
    scrubbed.log.segment_bytes = 128 << 10;
    scrubbed.log.scrub_interval_seconds = 1;
    let _b1 = cluster.run(scrubbed);
    let _others = cluster.agents(&["b2", "b3"]).await;
    cluster.registered("b1").await;
    let mut assignment = Assignment::new(shard(1), id("b1"), vec![id("b2"), id("b3")]);
    cluster.assign(&assignment).await;
    cluster.serving("b1", &shard(1), 1).await;
    fill(&cluster, "b1", 1).await;

    let directory = cluster.data_dir("b1").join("shards/stream/default/orders/1");
    let file = directory.join("00000000000000000000.log");
    let mut bytes = fs::read(&file).unwrap();
    bytes[60_000] ^= 4;
    fs::write(&file, &bytes).unwrap();
    let report = cluster.report("b1", &shard(1), "halted", |r| r.halted.is_some()).await;
    let reason = report.halted.unwrap();
    let named = format!("log {} is damaged at byte ", file.display());
    assert!(reason.starts_with(&named), "{reason}");
    assert!(fs::read(cluster.data_dir("b1").join("shards/scrub.json")).is_ok(), "no place kept");

    assignment.generation = 2;
    assignment.leader = Some(id("b2"));
    assignment.followers = vec![id("b1"), id("b3")];
    cluster.assign(&assignment).await;
    cluster.serving("b2", &shard(1), 2).await;
    let mut client = cluster.client("b2").await;
    publish(&mut client, &shard(1), RECORDS + 1).await.unwrap();
}
