//! `keelctl drain`: move everything off a broker.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use evenkeel_planner::Change;
use evenkeel_proto::admin::{
    ActivateBrokerRequest, DrainBrokerRequest, DrainProgress, WatchDrainRequest,
};
use serde_json::{Value, json};

use super::whatif;
use crate::admin::Admin;
use crate::cli::Global;
use crate::failure::input;
use crate::output::{cell, cells, emit, note, table};
use crate::{Failure, document};

/// A drain that stands still this long says what it waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which broker, and whether to wait.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The broker to empty.
    broker: String,
    /// Return when it holds nothing.
    #[arg(long)]
    wait: bool,
    /// Take the drain back instead.
    #[arg(long, conflicts_with = "wait")]
    cancel: bool,
    /// Only tell what it would do: moves, bytes, time, what stands in the way.
    #[arg(long, conflicts_with_all = ["wait", "cancel"])]
    dry_run: bool,
}

/// Begins a drain and, if asked to, stays until it is done.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    if options.dry_run {
        let broker = options.broker.parse().map_err(input)?;
        return whatif::on_live(global, Change::Drain(broker)).await;
    }
    let admin = global.admin()?;
    let broker = options.broker.as_str();
    if options.cancel {
        return activate(global, &admin, broker).await;
    }
    let progress = begin(&admin, broker).await?;
    let last = if options.wait { wait(&admin, broker, progress).await? } else { progress };
    emit(global.output, &document::drain(&last), summary)
}

/// Marks the broker as leaving.
pub(crate) async fn begin(admin: &Admin, broker: &str) -> Result<DrainProgress, Failure> {
    let request = DrainBrokerRequest { broker: broker.to_owned() };
    let answer = admin
        .call(&format!("drain broker {broker}"), true, |mut c| {
            let request = request.clone();
            async move { c.drain_broker(request).await }
        })
        .await?;
    Ok(answer.progress.unwrap_or_default())
}

/// Puts the broker back into placement, and prints that.
pub(crate) async fn activate(global: &Global, admin: &Admin, broker: &str) -> Result<(), Failure> {
    put_back(admin, broker).await?;
    let document = json!({ "broker": broker, "lifecycle": "live" });
    emit(global.output, &document, |_| format!("broker {broker} is live"))
}

/// Puts the broker back into placement.
pub(crate) async fn put_back(admin: &Admin, broker: &str) -> Result<(), Failure> {
    let request = ActivateBrokerRequest { broker: broker.to_owned() };
    admin
        .call(&format!("activate broker {broker}"), true, |mut c| {
            let request = request.clone();
            async move { c.activate_broker(request).await }
        })
        .await
        .map(drop)
}

async fn wait(admin: &Admin, broker: &str, first: DrainProgress) -> Result<DrainProgress, Failure> {
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Err(Failure::Interrupted(format!(
            "the drain goes on; 'keelctl drain {broker} --wait' to watch it again, \
             'keelctl drain {broker} --cancel' to end it"
        ))),
        result = follow(admin, broker, first) => result,
    }
}

async fn follow(
    admin: &Admin,
    broker: &str,
    first: DrainProgress,
) -> Result<DrainProgress, Failure> {
    let request = WatchDrainRequest { broker: broker.to_owned() };
    let mut last = first;
    let mut said = String::new();
    tell(&last);
    loop {
        if is_done(&last) {
            return Ok(last);
        }
        if last.lifecycle == "live" {
            return Err(Failure::No(format!("broker {broker} is live again: the drain was ended")));
        }
        let mut progress = admin
            .call(&format!("watch the drain of broker {broker}"), true, |mut c| {
                let request = request.clone();
                async move { c.watch_drain(request).await }
            })
            .await?;
        // The watch ends when the load manager steps down: the next one is asked then.
        loop {
            let next = match tokio::time::timeout(PATIENCE, progress.message()).await {
                Ok(Ok(Some(next))) => next,
                Ok(_) => break,
                Err(_) => {
                    said = tell_blockers(&last, said);
                    continue;
                }
            };
            if (next.leaders_left, next.replicas_left) != (last.leaders_left, last.replicas_left) {
                tell(&next);
            }
            last = next;
            if is_done(&last) || last.lifecycle == "live" {
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn is_done(p: &DrainProgress) -> bool {
    p.lifecycle != "live" && p.leaders_left == 0 && p.replicas_left == 0
}

fn tell(p: &DrainProgress) {
    note(format_args!(
        "{} is {}: {} leaders and {} replicas left",
        p.broker, p.lifecycle, p.leaders_left, p.replicas_left
    ));
}

/// Says what holds a drain up, unless that is what was said last; answers what is said now.
fn tell_blockers(p: &DrainProgress, said: String) -> String {
    let mut blockers: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for shard in &p.shards {
        blockers.entry((&shard.blocker, &shard.detail)).or_default().push(&shard.shard);
    }
    let line = |((blocker, detail), shards): (&(&str, &str), &Vec<&str>)| {
        let first = shards.first().copied().unwrap_or_default();
        format!("  {} shards, {first} first: {blocker}: {detail}", shards.len())
    };
    let now = blockers.iter().map(line).collect::<Vec<_>>().join("\n");
    if now != said {
        note(format_args!(
            "nothing has moved for {} s; what is waited for:\n{now}",
            PATIENCE.as_secs()
        ));
    }
    now
}

fn summary(d: &Value) -> String {
    let line = format!(
        "broker {} is {}: {} leaders and {} replicas left",
        cell(&d["broker"]),
        cell(&d["lifecycle"]),
        cell(&d["leaders_left"]),
        cell(&d["replicas_left"])
    );
    let fields = ["shard", "role", "blocker", "detail"];
    match cells(&d["shards"], fields) {
        rows if rows.is_empty() => line,
        rows => format!("{line}\n\n{}", table(fields, rows)),
    }
}
