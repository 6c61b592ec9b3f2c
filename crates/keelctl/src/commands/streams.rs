//! `keelctl streams`: create, list, show.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use evenkeel_model::StreamKey;
use evenkeel_proto::admin::{
    CreateStreamRequest, GetStreamRequest, GetStreamResponse, ListStreamsRequest, Stream,
};
use serde_json::{Value, json};

use crate::admin::Admin;
use crate::cli::Global;
use crate::failure::input;
use crate::output::{cell, cells, emit, table};
use crate::{Failure, document};

/// What to do with streams.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Create a stream or cache; again with the same settings changes nothing.
    Create(Create),
    /// All streams and caches.
    List,
    /// One stream and who holds its shards.
    Show {
        /// kind/namespace/name, namespace/name, or a name in the namespace `default`.
        #[arg(value_parser = parse_stream)]
        stream: StreamKey,
    },
}

/// A new stream.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// kind/namespace/name, namespace/name, or a name in the namespace `default`.
    #[arg(value_parser = parse_stream)]
    stream: StreamKey,
    /// How many shards.
    #[arg(long, default_value_t = 1)]
    shards: u32,
    /// Voting copies of each shard, the leader included.
    #[arg(long, default_value_t = 3, visible_alias = "rf")]
    replication_factor: u32,
    /// Replace a lost leader by an empty one rather than wait for it.
    #[arg(long)]
    not_durable: bool,
    /// The only region it may be placed in.
    #[arg(long)]
    region: Option<String>,
}

/// A stream's key in its long form, or short for the namespace `default` and the kind `stream`.
pub(crate) fn parse_stream(text: &str) -> Result<StreamKey, String> {
    let long = match text.matches('/').count() {
        0 => format!("stream/default/{text}"),
        1 => format!("stream/{text}"),
        _ => text.to_owned(),
    };
    long.parse().map_err(|e: evenkeel_model::IdError| e.to_string())
}

/// Runs the verb.
pub(crate) async fn run(global: &Global, verb: Verb) -> Result<(), Failure> {
    let admin = global.admin()?;
    match verb {
        Verb::Create(options) => {
            let stream = Stream {
                stream: options.stream.to_string(),
                shards: options.shards,
                replication_factor: options.replication_factor,
                durable: !options.not_durable,
                created_at_ms: None,
                region: options.region,
            };
            evenkeel_model::Stream::try_from(&stream).map_err(input)?;
            let created = create(&admin, stream).await?;
            emit(global.output, &document::stream(&created), |d| streams_table(&json!([d])))
        }
        Verb::List => {
            let answer = admin
                .call("list streams", true, |mut c| async move {
                    c.list_streams(ListStreamsRequest {}).await
                })
                .await?;
            let rows: Vec<Value> = answer.streams.iter().map(document::stream).collect();
            emit(global.output, &json!({ "streams": rows }), |d| streams_table(&d["streams"]))
        }
        Verb::Show { stream } => {
            let answer = show(&admin, &stream).await?;
            let assignments: Vec<Value> =
                answer.assignments.iter().map(document::assignment).collect();
            let document = json!({
                "stream": answer.stream.as_ref().map(document::stream),
                "leaders": leaders(&answer),
                "assignments": assignments,
            });
            emit(global.output, &document, |d| {
                let stream = streams_table(&json!([d["stream"]]));
                let shards = super::shards::shards_table(&d["assignments"]);
                format!("{stream}\n\nleaders  {}\n\n{shards}", cell(&d["leaders"]))
            })
        }
    }
}

/// Creates a stream.
pub(crate) async fn create(admin: &Admin, stream: Stream) -> Result<Stream, Failure> {
    let request = CreateStreamRequest { stream: Some(stream) };
    let action = format!("create stream {}", request.stream.as_ref().map_or("", |s| &s.stream));
    let answer = admin
        .call(&action, true, |mut c| {
            let request = request.clone();
            async move { c.create_stream(request).await }
        })
        .await?;
    answer
        .stream
        .ok_or_else(|| Failure::Unreachable(format!("cannot {action}: the answer names no stream")))
}

/// One stream and its assignments.
pub(crate) async fn show(admin: &Admin, stream: &StreamKey) -> Result<GetStreamResponse, Failure> {
    let request = GetStreamRequest { stream: stream.to_string() };
    admin
        .call(&format!("show stream {stream}"), true, |mut c| {
            let request = request.clone();
            async move { c.get_stream(request).await }
        })
        .await
}

/// Shards led, by broker.
fn leaders(answer: &GetStreamResponse) -> BTreeMap<&str, u32> {
    let mut leaders = BTreeMap::new();
    for leader in answer.assignments.iter().filter_map(|a| a.leader.as_deref()) {
        *leaders.entry(leader).or_default() += 1;
    }
    leaders
}

fn streams_table(rows: &Value) -> String {
    let fields = ["stream", "shards", "replication_factor", "durable", "region"];
    table(fields, cells(rows, fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_completed_and_bad_ones_are_named() {
        let text = |s| parse_stream(s).map(|k| k.to_string());
        assert_eq!(text("orders"), Ok("stream/default/orders".into()));
        assert_eq!(text("demo/lines"), Ok("stream/demo/lines".into()));
        assert_eq!(text("cache/demo/x"), Ok("cache/demo/x".into()));
        let error = text("a/b/c").unwrap_err();
        assert_eq!(error, "kind 'a' is not valid: expected 'stream' or 'cache'");
    }
}
