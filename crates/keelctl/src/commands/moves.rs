//! `keelctl moves`: list, start, cancel.

use std::time::Duration;

use clap::{Args, Subcommand};
use evenkeel_model::ShardKey;
use evenkeel_proto::admin::{
    CancelMoveRequest, ListMovesRequest, StartMoveRequest, StartMoveResponse,
};
use serde_json::{Value, json};

use super::shards::parse_shard;
use crate::admin::Admin;
use crate::cli::Global;
use crate::output::{cell, cells, emit, note, table};
use crate::{Failure, document};

/// What to do with moves.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Moves in flight and what they wait for.
    List,
    /// Move a shard's leadership to a broker.
    Start(Start),
    /// End a move; before the cut-over nothing is lost by it.
    Cancel {
        /// kind/namespace/name/number, or namespace/name/number of a stream.
        #[arg(value_parser = parse_shard)]
        shard: ShardKey,
    },
}

/// What to move where.
#[derive(Debug, Args)]
pub(crate) struct Start {
    /// kind/namespace/name/number, or namespace/name/number of a stream.
    #[arg(value_parser = parse_shard)]
    shard: ShardKey,
    /// The broker that shall lead it.
    to_broker: String,
    /// Say what would happen, write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Return when the broker leads; exit code 1 if the move is given up.
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
}

/// Runs the verb.
pub(crate) async fn run(global: &Global, verb: Verb) -> Result<(), Failure> {
    let admin = global.admin()?;
    match verb {
        Verb::List => {
            let answer =
                admin
                    .call("list moves", true, |mut c| async move {
                        c.list_moves(ListMovesRequest {}).await
                    })
                    .await?;
            let rows: Vec<Value> = answer.moves.iter().map(document::move_in_flight).collect();
            emit(global.output, &json!({ "moves": rows }), |d| moves_table(&d["moves"]))
        }
        Verb::Start(options) => start_and_wait(global, &admin, options).await,
        Verb::Cancel { shard } => {
            let request = CancelMoveRequest { shard: shard.to_string() };
            let answer = admin
                .call(&format!("cancel the move of {shard}"), false, |mut c| {
                    let request = request.clone();
                    async move { c.cancel_move(request).await }
                })
                .await?;
            let document = json!({
                "shard": shard,
                "assignment": answer.assignment.as_ref().map(document::assignment),
            });
            emit(global.output, &document, |d| {
                super::shards::shards_table(&json!([d["assignment"]]))
            })
        }
    }
}

/// Starts a move, or says what it would do.
pub(crate) async fn start(
    admin: &Admin,
    shard: &str,
    to_broker: &str,
    validate_only: bool,
) -> Result<StartMoveResponse, Failure> {
    let request = StartMoveRequest {
        shard: shard.to_owned(),
        to_broker: to_broker.to_owned(),
        validate_only,
    };
    admin
        .call(&format!("move {shard} to {to_broker}"), validate_only, |mut c| {
            let request = request.clone();
            async move { c.start_move(request).await }
        })
        .await
}

async fn start_and_wait(global: &Global, admin: &Admin, options: Start) -> Result<(), Failure> {
    let shard = options.shard.to_string();
    let answer = start(admin, &shard, &options.to_broker, options.dry_run).await?;
    if answer.zones_after < answer.zones_before {
        note(format_args!(
            "warning: {shard} will span {} zones instead of {}",
            answer.zones_after, answer.zones_before
        ));
    }
    let mut assignment = answer.assignment.unwrap_or_default();
    if options.wait {
        assignment = wait(admin, &shard, &options.to_broker).await?;
    }
    let document = json!({
        "shard": shard,
        "dry_run": options.dry_run,
        "zones_before": answer.zones_before,
        "zones_after": answer.zones_after,
        "assignment": document::assignment(&assignment),
    });
    emit(global.output, &document, |d| {
        let zones = format!("zones {} -> {}", cell(&d["zones_before"]), cell(&d["zones_after"]));
        format!("{}\n\n{zones}", super::shards::shards_table(&json!([d["assignment"]])))
    })
}

async fn wait(
    admin: &Admin,
    shard: &str,
    to: &str,
) -> Result<evenkeel_proto::admin::Assignment, Failure> {
    let finished = async {
        loop {
            let now = super::shards::get(admin, shard).await?.assignment.unwrap_or_default();
            let moving = now.successor.is_some() || now.state == "draining";
            if !moving && now.leader.as_deref() == Some(to) {
                return Ok(now);
            }
            if !moving {
                let leader = now.leader.as_deref().unwrap_or("nobody");
                return Err(Failure::No(format!(
                    "the move of {shard} to {to} was given up: {leader} leads it; \
                     see 'keelctl explain {shard}'"
                )));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Err(Failure::Interrupted(format!(
            "the move goes on; 'keelctl moves list' to watch it, \
             'keelctl moves cancel {shard}' to end it"
        ))),
        result = finished => result,
    }
}

fn moves_table(rows: &Value) -> String {
    let fields = ["shard", "reason", "stage", "from", "to", "waiting", "bytes_done", "bytes_total"];
    table(fields, cells(rows, fields))
}
