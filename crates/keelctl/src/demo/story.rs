//! The demo's story, act by act.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_client::{Client, ClientConfig};
use evenkeel_model::StreamKey;
use evenkeel_proto::admin::{SnapshotRequest, Stream};
use serde_json::json;
use tokio::time::Instant;

use super::cluster::{Cluster, View};
use super::exposure::Observer;
use super::ledger::Ledger;
use super::lines::Lines;
use super::publishing::{Publishing, Target};
use super::report::{Report, leaders_table};
use super::screen::Screen;
use super::services::Services;
use super::verification::verify;
use super::{Options, Scale};
use crate::Failure;
use crate::admin::Admin;
use crate::cli::Global;
use crate::commands::{drain, moves, policy, publish, streams};
use crate::output::emit;

/// Streams by name and number of shards; the first takes every line.
const STREAMS: [(&str, u32); 3] =
    [("stream/demo/lines", 12), ("stream/demo/clicks", 6), ("stream/demo/orders", 4)];
const FACTOR: usize = 3;

/// A load manager that is killed is looked for this long before a call fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Everything that the acts share.
struct Stage<'a> {
    cluster: Cluster<'a>,
    services: &'a Services,
    screen: &'a Screen,
    ledger: Arc<Ledger>,
    observer: Observer,
    shards: usize,
}

/// Tells the whole story. The processes end with it, unless they are to be kept for a while.
pub(crate) async fn tell(
    global: &Global,
    options: Options,
    screen: &Screen,
) -> Result<(), Failure> {
    let began = Instant::now();
    // Input that cannot be read is found out before anything is started.
    let lines = lines(&options)?;
    let (dir, temporary) = directory(&options)?;
    screen.say(format!("logs and data are in {}", dir.display()));
    let services = Services::new(&dir, options.etcd.clone())?;
    let result = acts(global, &options, screen, &services, lines, began).await;
    services.fleet.end().await;
    match (&result, temporary) {
        // What is needed to find out what happened stays.
        (Err(_), Some(kept)) => {
            let _ = kept.keep();
            screen.say(format!("logs are kept in {}", dir.join("logs").display()));
        }
        (Ok(()), Some(temporary)) => drop(temporary),
        (_, None) => {}
    }
    result
}

fn lines(options: &Options) -> Result<Lines, Failure> {
    match &options.input {
        Some(file) => Lines::of_file(file),
        None => Ok(Lines::generated(options.seed, options.scale.bytes())),
    }
}

fn directory(options: &Options) -> Result<(PathBuf, Option<tempfile::TempDir>), Failure> {
    if let Some(dir) = &options.dir {
        std::fs::create_dir_all(dir)
            .map_err(|e| Failure::Input(format!("cannot create {}: {e}", dir.display())))?;
        return Ok((dir.clone(), None));
    }
    let temporary = tempfile::Builder::new()
        .prefix("evenkeel-demo-")
        .tempdir()
        .map_err(|e| Failure::Input(format!("cannot create a temporary directory: {e}")))?;
    Ok((temporary.path().to_owned(), Some(temporary)))
}

async fn acts(
    global: &Global,
    options: &Options,
    screen: &Screen,
    services: &Services,
    lines: Lines,
    began: Instant,
) -> Result<(), Failure> {
    let stage = raise(options, screen, services).await?;
    let before = create_streams(&stage).await?;
    let client = client(&stage, options.seed)?;
    let total = lines.total;
    let publishing = start_publishing(&client, lines, &stage);
    let ticker = tick(screen, &stage.ledger, total);
    let told = accidents(&stage, options.scale).await;
    if told.is_err() && publishing.is_finished() {
        // The producers' own failure says more.
        publishing.finish().await?;
        return told;
    }
    told?;
    let after = finish_publishing(&stage, publishing).await?;
    ticker.abort();
    let report = settle_accounts(&stage, &client, before, after, began).await?;
    emit(global.output, &json!(report), |_| report.screen())?;
    if options.keep {
        keep(screen, services).await;
    }
    if report.ok {
        return Ok(());
    }
    Err(Failure::No("what was acknowledged is not what was read back: see the report".to_owned()))
}

/// Act one: the processes.
async fn raise<'a>(
    options: &Options,
    screen: &'a Screen,
    services: &'a Services,
) -> Result<Stage<'a>, Failure> {
    screen.step("starting etcd, two load managers, brokers in two zones, a migrator and a standby");
    let patience = Duration::from_secs(options.scale.patience());
    services.start_etcd(patience).await?;
    services.start_control()?;
    for number in 1..=options.scale.brokers() {
        services.start_broker(number)?;
    }
    let admin = || Admin::new(&services.load_manager_addresses(), PATIENCE);
    let cluster = Cluster { admin: admin()?, fleet: &services.fleet, screen, patience };
    cluster
        .until("a load manager to be elected", || async {
            Ok(cluster.status().await.map(drop).map_err(|e| e.to_string()))
        })
        .await?;
    policy::set(&cluster.admin, &services.policy()).await?;
    cluster.until_live(options.scale.brokers() as usize).await?;
    let observer = Observer::start(admin()?, FACTOR);
    let shards = STREAMS.iter().map(|(_, shards)| *shards as usize).sum();
    let ledger = Arc::new(Ledger::default());
    Ok(Stage { cluster, services, screen, ledger, observer, shards })
}

/// Act two: the streams, placed fresh.
async fn create_streams(stage: &Stage<'_>) -> Result<View, Failure> {
    begin(stage, "creating streams with three replicas of each shard");
    for (stream, shards) in STREAMS {
        let stream = Stream {
            stream: stream.to_owned(),
            shards,
            replication_factor: FACTOR as u32,
            durable: true,
            created_at_ms: None,
            region: None,
        };
        streams::create(&stage.cluster.admin, stream).await?;
    }
    let view = stage.cluster.until_even(stage.shards, FACTOR).await?;
    show_leaders(stage, &view);
    Ok(view)
}

fn client(stage: &Stage<'_>, seed: u64) -> Result<Client, Failure> {
    let mut config = ClientConfig::new(stage.services.broker_addresses());
    config.patience = Duration::from_secs(120);
    config.seed = seed;
    Client::new(config).map_err(|e| Failure::of_client(&e))
}

fn start_publishing(client: &Client, lines: Lines, stage: &Stage<'_>) -> Publishing {
    let targets = STREAMS.iter().filter_map(|(stream, shards)| {
        let stream: StreamKey = stream.parse().ok()?;
        Some(Target { stream, shards: *shards })
    });
    let mut targets: Vec<Target> = targets.collect();
    let main = targets.remove(0);
    Publishing::start(client, lines, main, targets, publish::random_id(), &stage.ledger)
}

/// Shows how far publishing is, in the background.
fn tick(screen: &Screen, ledger: &Arc<Ledger>, total: u64) -> tokio::task::JoinHandle<()> {
    let (bar, ledger) = (screen.publishing(total), Arc::clone(ledger));
    tokio::spawn(async move {
        loop {
            let progress = ledger.progress();
            bar.set_position(progress.bytes);
            bar.set_message(format!("{} records", progress.records));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
}

/// Acts three to seven, while the producers publish.
async fn accidents(stage: &Stage<'_>, scale: Scale) -> Result<(), Failure> {
    begin(stage, "publishing, until there is something to copy");
    let enough = scale.bytes() / 4;
    stage
        .cluster
        .until("a quarter of the text to be published", || async {
            let done = stage.ledger.progress().bytes;
            let said = format!("{} MiB are acknowledged", done >> 20);
            // Input of the user's may be shorter: then what is there has to do.
            Ok(if done >= enough || stage.ledger.is_quiet() { Ok(()) } else { Err(said) })
        })
        .await?;
    add_a_broker(stage, scale.brokers() + 1).await?;
    drain_one(stage, "b2").await?;
    kill_one(stage, "b3").await?;
    kill_the_leader_in_a_move(stage).await?;
    begin(stage, "repairing: every shard back at three replicas, every stream even");
    let view = stage.cluster.until_even(stage.shards, FACTOR).await?;
    show_leaders(stage, &view);
    Ok(())
}

async fn add_a_broker(stage: &Stage<'_>, number: u32) -> Result<(), Failure> {
    begin(stage, &format!("adding broker b{number}: every stream evens out over it"));
    stage.services.start_broker(number)?;
    stage.cluster.until_live(number as usize).await?;
    let view = stage.cluster.until_even(stage.shards, FACTOR).await?;
    show_leaders(stage, &view);
    Ok(())
}

async fn drain_one(stage: &Stage<'_>, broker: &str) -> Result<(), Failure> {
    begin(stage, &format!("draining broker {broker}: it gives away everything it holds"));
    drain::begin(&stage.cluster.admin, broker).await?;
    stage
        .cluster
        .until(&format!("broker {broker} to be empty"), || async {
            let view = stage.cluster.view().await?;
            let it = view.brokers.iter().find(|b| b.id == broker);
            Ok(match it.map(|b| (b.leaders, b.replicas)) {
                None | Some((_, 0)) => Ok(()),
                Some((leaders, replicas)) => {
                    Err(format!("{broker} leads {leaders} and holds {replicas}"))
                }
            })
        })
        .await?;
    show_leaders(stage, &stage.cluster.view().await?);
    begin(stage, &format!("putting broker {broker} back: it is given its share again"));
    drain::put_back(&stage.cluster.admin, broker).await?;
    let view = stage.cluster.until_even(stage.shards, FACTOR).await?;
    show_leaders(stage, &view);
    Ok(())
}

async fn kill_one(stage: &Stage<'_>, broker: &str) -> Result<(), Failure> {
    begin(stage, &format!("killing broker {broker} without warning"));
    stage.services.kill_broker(broker)?;
    stage.observer.died(broker);
    let killed = Instant::now();
    stage
        .cluster
        .until("every shard to be led again", || async {
            let view = stage.cluster.view().await?;
            let led_by_it =
                view.shards.iter().filter(|a| a.leader.as_deref().is_none_or(|l| l == broker));
            let (left, serving) = (led_by_it.count(), stage.cluster.status().await?.shards_serving);
            Ok(match left {
                0 if serving as usize == stage.shards => Ok(()),
                0 => Err(format!("{serving} of {} shards serve", stage.shards)),
                left => Err(format!("{left} shards wait for a new leader")),
            })
        })
        .await?;
    let seconds = killed.elapsed().as_secs_f64();
    stage.screen.say(format!("          every shard is led again {seconds:.1} s after the kill"));
    Ok(())
}

/// A move is begun by hand; once it is staged, the load manager that staged it is killed.
async fn kill_the_leader_in_a_move(stage: &Stage<'_>) -> Result<(), Failure> {
    begin(stage, "killing the leading load manager in the middle of a move");
    let status = stage.cluster.status().await?;
    let (shard, to, staged_at) = stage
        .cluster
        .until("a shard that can be moved", || async {
            let view = stage.cluster.view().await?;
            let mut last = "no broker is free to take one".to_owned();
            for (shard, to) in candidates(&view) {
                match moves::start(&stage.cluster.admin, &shard, &to, false).await {
                    Ok(answer) => {
                        let assignment = answer.assignment.unwrap_or_default();
                        return Ok(Ok((shard, to, assignment.generation)));
                    }
                    Err(Failure::No(why)) => last = why,
                    Err(other) => return Err(other),
                }
            }
            Ok(Err(last))
        })
        .await?;
    let killed = stage.services.kill_load_manager(&status.leader_address)?;
    stage.screen.say(format!(
        "          {killed} is killed after it staged the move of {shard} to {to} (generation {staged_at})"
    ));
    let next = stage
        .cluster
        .until("the other load manager to take over", || async {
            let now = stage.cluster.status().await?;
            let other = now.leader_address != status.leader_address;
            Ok(if other { Ok(now.leader) } else { Err("nobody is elected yet".to_owned()) })
        })
        .await?;
    let leader = stage
        .cluster
        .until("the move to end", || async {
            let view = stage.cluster.view().await?;
            let Some(a) = view.shards.iter().find(|a| a.shard == shard) else {
                return Ok(Err(format!("{shard} is not listed")));
            };
            let moving = a.successor.is_some() || a.state == "draining";
            let leader = a.leader.clone().unwrap_or_default();
            Ok(if moving { Err(format!("{shard} moves to {to}")) } else { Ok(leader) })
        })
        .await?;
    stage.screen.say(format!("          {next} took over; {shard} is led by {leader}"));
    stage.services.start_load_manager(&killed)
}

/// Shards that nothing is under way for, each with a live broker that holds no copy of it.
fn candidates(view: &View) -> Vec<(String, String)> {
    let live = view.live();
    let still = view.shards.iter().filter(|a| a.successor.is_none() && a.joining.is_none());
    let led = still.filter(|a| a.leader.as_deref().is_some_and(|l| live.contains(l)));
    led.filter_map(|a| {
        let holds = |b: &str| {
            a.leader.as_deref() == Some(b) || a.followers.iter().any(|follower| follower == b)
        };
        let to = live.iter().find(|b| !holds(b))?;
        Some((a.shard.clone(), (*to).to_owned()))
    })
    .collect()
}

async fn finish_publishing(stage: &Stage<'_>, publishing: Publishing) -> Result<View, Failure> {
    begin(stage, "publishing the rest");
    publishing.finish().await?;
    let progress = stage.ledger.progress();
    stage.screen.publishing_done(progress.bytes, progress.records);
    stage.cluster.until_even(stage.shards, FACTOR).await
}

/// Last act: everything is read back and compared.
async fn settle_accounts(
    stage: &Stage<'_>,
    client: &Client,
    before: View,
    after: View,
    began: Instant,
) -> Result<Report, Failure> {
    begin(stage, "reading everything back and comparing it with what was acknowledged");
    let (progress, stall) = (stage.ledger.progress(), stage.ledger.stall());
    let bar = stage.screen.bar("compared", progress.records);
    let records = verify(client, stage.ledger.take(), &bar).await?;
    let snapshot = stage
        .cluster
        .admin
        .document("take a snapshot", |mut c| async move { c.snapshot(SnapshotRequest {}).await })
        .await?;
    let mut report = Report {
        ok: records.is_clean(),
        seconds: 0.0,
        bytes: progress.bytes,
        leaders_before: before.leaders(),
        leaders_after: after.leaders(),
        moves: Default::default(),
        moves_given_up: 0,
        repairs: 0,
        exposure: stage.observer.exposure(),
        longest_write_stall_seconds: stall.longest.as_secs_f64(),
        longest_write_stall_during: stall.during,
        batches_retried: progress.retried,
        records,
    };
    report.count_history(&snapshot);
    report.seconds = began.elapsed().as_secs_f64();
    stage.screen.finish();
    Ok(report)
}

async fn keep(screen: &Screen, services: &Services) {
    let admin = services.load_manager_addresses().join(",");
    let brokers = services.broker_addresses().join(",");
    screen.say(format!(
        "the cluster goes on until Ctrl-C:\n  export EVENKEEL_ADMIN={admin}\n  \
         export EVENKEEL_BROKERS={brokers}\n  keelctl status"
    ));
    // Ctrl-C ends the demo from outside.
    std::future::pending::<()>().await;
}

fn begin(stage: &Stage<'_>, title: &str) {
    stage.screen.step(title);
    stage.ledger.step(title);
}

fn show_leaders(stage: &Stage<'_>, view: &View) {
    for line in leaders_table(&view.leaders()).lines() {
        stage.screen.say(format!("          {line}"));
    }
}
