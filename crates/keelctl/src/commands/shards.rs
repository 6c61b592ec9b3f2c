//! `keelctl shards`: list, show.

use clap::{Args, Subcommand};
use evenkeel_model::{ShardKey, StreamKey};
use evenkeel_proto::admin::{Assignment, GetShardRequest, GetShardResponse, ListShardsRequest};
use serde_json::{Value, json};

use super::streams::parse_stream;
use crate::admin::Admin;
use crate::cli::Global;
use crate::output::{cell, cells, emit, table};
use crate::{Failure, document};

/// What to do with shards.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Shards and who holds them.
    List(Filter),
    /// One shard: its assignment, its replicas' reports, why it is where it is.
    Show {
        /// kind/namespace/name/number, or namespace/name/number of a stream.
        #[arg(value_parser = parse_shard)]
        shard: ShardKey,
    },
}

/// Which shards.
#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// Only this stream's.
    #[arg(long, value_parser = parse_stream)]
    stream: Option<StreamKey>,
    /// Only those led by this broker.
    #[arg(long)]
    leader: Option<String>,
    /// Only those that name this broker in any role.
    #[arg(long)]
    member: Option<String>,
}

/// A shard's key in its long form, or short for the kind `stream`.
pub(crate) fn parse_shard(text: &str) -> Result<ShardKey, String> {
    let long = match text.matches('/').count() {
        1 => format!("stream/default/{text}"),
        2 => format!("stream/{text}"),
        _ => text.to_owned(),
    };
    long.parse().map_err(|e: evenkeel_model::IdError| e.to_string())
}

/// Runs the verb.
pub(crate) async fn run(global: &Global, verb: Verb) -> Result<(), Failure> {
    let admin = global.admin()?;
    match verb {
        Verb::List(filter) => {
            let request = ListShardsRequest {
                stream: filter.stream.map(|s| s.to_string()),
                leader: filter.leader,
                member: filter.member,
                ..Default::default()
            };
            let shards = list(&admin, request).await?;
            let rows: Vec<Value> = shards.iter().map(document::assignment).collect();
            emit(global.output, &json!({ "shards": rows }), |d| shards_table(&d["shards"]))
        }
        Verb::Show { shard } => {
            let answer = get(&admin, &shard.to_string()).await?;
            let reports: Vec<Value> = answer.reports.iter().map(document::report).collect();
            let document = json!({
                "shard": shard,
                "assignment": answer.assignment.as_ref().map(document::assignment),
                "reports": reports,
                "explanation": answer.explanation,
            });
            emit(global.output, &document, screen)
        }
    }
}

/// All pages of the shards that `filter` lets through.
pub(crate) async fn list(
    admin: &Admin,
    filter: ListShardsRequest,
) -> Result<Vec<Assignment>, Failure> {
    let mut request = filter;
    let mut shards = Vec::new();
    loop {
        let page = admin
            .call("list shards", true, |mut c| {
                let request = request.clone();
                async move { c.list_shards(request).await }
            })
            .await?;
        shards.extend(page.assignments);
        if page.next_page_token.is_empty() {
            return Ok(shards);
        }
        request.page_token = page.next_page_token;
    }
}

/// One shard.
pub(crate) async fn get(admin: &Admin, shard: &str) -> Result<GetShardResponse, Failure> {
    let request = GetShardRequest { shard: shard.to_owned() };
    admin
        .call(&format!("show shard {shard}"), true, |mut c| {
            let request = request.clone();
            async move { c.get_shard(request).await }
        })
        .await
}

/// What a broker is to a shard.
pub(crate) fn role_of(a: &Assignment, broker: &str) -> &'static str {
    let is = |b: &Option<String>| b.as_deref() == Some(broker);
    if is(&a.leader) {
        "leader"
    } else if a.followers.iter().any(|f| f == broker) {
        "follower"
    } else if is(&a.successor) {
        "successor"
    } else if is(&a.joining) {
        "joining"
    } else {
        "none"
    }
}

/// Assignments as a table.
pub(crate) fn shards_table(rows: &Value) -> String {
    let fields =
        ["shard", "leader", "followers", "generation", "state", "successor", "joining", "leaving"];
    table(fields, cells(rows, fields))
}

fn screen(d: &Value) -> String {
    let assignment = shards_table(&json!([d["assignment"]]));
    let fields =
        ["broker", "phase", "generation", "caught_up", "lag_records", "drained", "log_end"];
    let reports = table(fields, cells(&d["reports"], fields));
    format!("{assignment}\n\n{reports}\n\n{}", cell(&d["explanation"]))
}
