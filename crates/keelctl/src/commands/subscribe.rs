//! `keelctl subscribe`: records to stdout.

use std::io::Write;

use clap::Args;
use evenkeel_client::{Client, Delivery, StoredRecord};
use evenkeel_model::ShardKey;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::publish::{connect, shard_count};
use super::shards::parse_shard;
use super::streams::parse_stream;
use crate::Failure;
use crate::cli::Global;
use crate::output::{Format, NOT_A_PLAN, written};

/// What to read.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A stream, or one shard with its number after the stream's name.
    what: String,
    /// The first offset, in every shard that is read.
    #[arg(long, default_value_t = 0, value_name = "OFFSET")]
    from: u64,
    /// End at what is committed now rather than wait for more.
    #[arg(long)]
    until_end: bool,
    /// End after this many records.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

/// Batches that wait to be written.
const QUEUE: usize = 16;

/// Reads until the end, the limit, or Ctrl-C. Payloads are written one a line; with JSON and YAML
/// each record is a document of its own.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    let client = connect(global).await?;
    let shards = shards_of(&client, &options.what).await?;
    let (sender, mut records) = mpsc::channel(QUEUE);
    let mut readers = JoinSet::new();
    for shard in shards {
        readers.spawn(read_shard(
            client.clone(),
            shard,
            options.from,
            options.until_end,
            sender.clone(),
        ));
    }
    drop(sender);
    let mut left = options.limit.unwrap_or(u64::MAX);
    // One for all rounds: what comes while a batch is written is not lost.
    let mut ended = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let batch = tokio::select! {
            biased;
            _ = &mut ended => return Ok(()),
            batch = records.recv() => batch,
        };
        let Some((shard, mut batch)) = batch else { break };
        batch.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= batch.len() as u64;
        write_batch(global.output, &shard, &batch)?;
        if left == 0 {
            return Ok(());
        }
    }
    while let Some(ended) = readers.join_next().await {
        match ended {
            Ok(result) => result?,
            Err(error) => {
                return Err(Failure::Unreachable(format!("reading ended early: {error}")));
            }
        }
    }
    Ok(())
}

async fn shards_of(client: &Client, what: &str) -> Result<Vec<ShardKey>, Failure> {
    if names_a_shard(what) {
        let shard = parse_shard(what).map_err(Failure::Input)?;
        let count = shard_count(client, &shard.stream).await?;
        if shard.number >= count {
            return Err(Failure::Input(format!(
                "there is no shard {shard}: its stream has {count} shards, numbered from 0"
            )));
        }
        return Ok(vec![shard]);
    }
    let stream = parse_stream(what).map_err(Failure::Input)?;
    let count = shard_count(client, &stream).await?;
    Ok((0..count).map(|n| stream.shard(n)).collect())
}

/// A name that ends in a number is a shard's, unless it begins with a kind and is too short for
/// one.
fn names_a_shard(what: &str) -> bool {
    let slashes = what.matches('/').count();
    let numbered =
        what.rsplit('/').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    let kind = what.starts_with("stream/") || what.starts_with("cache/");
    slashes == 3 || slashes > 0 && numbered && !kind
}

async fn read_shard(
    client: Client,
    shard: ShardKey,
    from: u64,
    until_end: bool,
    to: mpsc::Sender<(ShardKey, Vec<StoredRecord>)>,
) -> Result<(), Failure> {
    let mut subscription = if until_end {
        client.read(shard.clone(), from)
    } else {
        client.subscribe(shard.clone(), from)
    };
    loop {
        match subscription.next().await.map_err(|e| Failure::of_client(&e))? {
            Delivery::End { .. } => return Ok(()),
            Delivery::Records(records) => {
                if to.send((shard.clone(), records)).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

fn write_batch(format: Format, shard: &ShardKey, batch: &[StoredRecord]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for record in batch {
        let result = match format {
            Format::Table => out.write_all(&record.payload).and_then(|()| out.write_all(b"\n")),
            Format::Json => writeln!(out, "{}", document(shard, record)),
            Format::Yaml => {
                let text = serde_yaml_ng::to_string(&document(shard, record))
                    .map_err(|e| Failure::Input(format!("cannot write a record as YAML: {e}")))?;
                write!(out, "---\n{text}")
            }
            Format::KafkaReassignment => return Err(Failure::Input(NOT_A_PLAN.to_owned())),
        };
        written(result)?;
    }
    written(out.flush())
}

/// Text as it is, other bytes as their numbers.
fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => Value::from(bytes.to_vec()),
    }
}

fn document(shard: &ShardKey, record: &StoredRecord) -> Value {
    let mut document = json!({
        "shard": shard,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "producer_id": record.producer_id,
        "sequence": record.sequence,
        "payload": text(&record.payload),
    });
    if let Some(key) = &record.key {
        document["key"] = text(key);
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_in_a_number_is_a_shard() {
        for shard in ["orders/0", "demo/orders/3", "stream/demo/orders/3", "stream/demo/orders/x"] {
            assert!(names_a_shard(shard), "{shard}");
        }
        for stream in ["orders", "7", "demo/orders", "stream/demo/2026", "a/b/c"] {
            assert!(!names_a_shard(stream), "{stream}");
        }
    }
}
