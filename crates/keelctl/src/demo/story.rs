//! The demo's story, act by act.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_client::{Client, ClientConfig};
use evenkeel_model::StreamKey;
use evenkeel_proto::admin::{SnapshotRequest, Stream};
use serde_json::json;
use tokio::time::Instant;

use super::Options;
use super::accidents::accidents;
use super::cluster::{Cluster, View};
use super::exposure::Observer;
use super::ledger::Ledger;
use super::lines::Lines;
use super::publishing::{Publishing, Target};
use super::report::Report;
use super::screen::Screen;
use super::services::Services;
use super::stage::{FACTOR, Stage, begin, show_leaders};
use super::verification::verify;
use crate::Failure;
use crate::admin::Admin;
use crate::cli::Global;
use crate::commands::{policy, publish, streams};
use crate::output::emit;

/// Streams by name and number of shards; the first takes every line.
const STREAMS: [(&str, u32); 3] =
    [("stream/demo/lines", 12), ("stream/demo/clicks", 6), ("stream/demo/orders", 4)];

/// A load manager that is killed is looked for this long before a call fails.
const PATIENCE: Duration = Duration::from_secs(20);

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
    let result = tokio::select! {
        biased;
        _ = interrupted() => {
            Err(Failure::Interrupted("the demo was ended; its processes are stopped".to_owned()))
        }
        result = acts(global, &options, screen, &services, lines, began) => result,
    };
    if options.keep && !matches!(result, Err(Failure::Interrupted(_))) {
        keep(screen, &services).await;
    }
    services.fleet.end().await;
    if let Err(failure) = services.forget().await {
        screen.say(format!("warning: {failure}"));
    }
    if let Some(temporary) = temporary
        && !matches!(result, Ok(()) | Err(Failure::Interrupted(_)))
    {
        // What is needed to find out what happened stays.
        let kept = temporary.keep();
        screen.say(format!("logs are kept in {}", kept.join("logs").display()));
    }
    result
}

/// Ctrl-C, or a polite request to end.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        // Then Ctrl-C has to do.
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
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
    interrupted().await;
}
