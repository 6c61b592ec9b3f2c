//! `keelctl publish`: lines of files or of stdin into a stream.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZero;
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use evenkeel_client::{Client, ClientConfig, Entry, Producer};
use evenkeel_model::{Kind, StreamKey, hash};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::streams::parse_stream;
use crate::cli::Global;
use crate::output::{bytes as human, cell, cells, emit, table};
use crate::{Failure, input};

/// What to publish where.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// kind/namespace/name, namespace/name, or a name in the namespace `default`.
    #[arg(value_parser = parse_stream)]
    stream: StreamKey,
    /// Files to read; `-` is stdin, as is none.
    files: Vec<String>,
    /// Lines with the same text before this go to the same shard. Into a stream the whole line is
    /// published; into a cache what follows, with the text before as its key, which nothing behind
    /// it deletes. Without it lines take turns over the shards.
    #[arg(long, value_name = "TEXT")]
    key_separator: Option<String>,
    /// Only to this shard.
    #[arg(long, value_name = "NUMBER", conflicts_with = "key_separator")]
    shard: Option<u32>,
    /// Names this producer, for brokers to recognise repetitions; random if not given. Two
    /// running producers must not share one, and a name must not be used again.
    #[arg(long, value_name = "N")]
    producer_id: Option<NonZero<u64>>,
    /// Most records of a batch.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    batch_records: u64,
}

/// A batch is sent when it has this many bytes.
const BATCH_BYTES: usize = 256 << 10;

/// Batches that wait for each shard.
const QUEUE: usize = 2;

/// Reads, publishes and reports.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    let began = Instant::now();
    let client = connect(global).await?;
    let shards = shard_count(&client, &options.stream).await?;
    if let Some(shard) = options.shard.filter(|s| *s >= shards) {
        let stream = &options.stream;
        return Err(Failure::Input(format!(
            "--shard {shard} is out of range: {stream} has {shards} shards, numbered from 0"
        )));
    }
    let id = options.producer_id.map_or_else(random_id, NonZero::get);
    let producer = Arc::new(client.producer(options.stream.clone(), id));
    let mut lanes = Lanes::start(&producer, shards);
    let fed = feed(&options, &mut lanes).await;
    // What was read before a failure is published all the same, and counted.
    let totals = lanes.finish().await;
    // Where both failed, the shard's own words say why.
    let totals = totals?;
    fed?;
    let seconds = began.elapsed().as_secs_f64();
    emit(global.output, &report(&options.stream, id, &totals, seconds), summary)
}

/// A client of the brokers that were named, or that a load manager knows.
pub(crate) async fn connect(global: &Global) -> Result<Client, Failure> {
    let mut brokers = global.brokers.clone();
    if brokers.is_empty() {
        let known = super::brokers::list(&global.admin()?).await?;
        brokers = known.into_iter().filter(|b| b.registered).map(|b| b.address).collect();
        if brokers.is_empty() {
            return Err(Failure::Unreachable("no broker is registered: start one".to_owned()));
        }
    }
    let mut config = ClientConfig::new(brokers);
    config.seed = random_id();
    Client::new(config).map_err(|e| Failure::of_client(&e))
}

/// How many shards a stream has, from a broker.
pub(crate) async fn shard_count(client: &Client, stream: &StreamKey) -> Result<u32, Failure> {
    let routes = client.describe(stream).await.map_err(|e| Failure::of_client(&e))?;
    match routes.iter().map(|r| r.shard.number).max() {
        Some(last) => Ok(last + 1),
        None => Err(Failure::Input(format!(
            "there is no stream {stream}; create it: keelctl streams create {stream}"
        ))),
    }
}

/// Different in every process; from the operating system.
pub(crate) fn random_id() -> u64 {
    RandomState::new().hash_one(std::process::id()).max(1)
}

async fn feed(options: &Options, lanes: &mut Lanes) -> Result<(), Failure> {
    let stdin = ["-".to_owned()];
    let files = if options.files.is_empty() { &stdin[..] } else { &options.files[..] };
    for file in files {
        let failed = |e| Failure::Input(format!("cannot read {}: {e}", input::name(file)));
        let mut reader: Box<dyn AsyncBufRead + Send + Unpin> = if file == "-" {
            Box::new(BufReader::with_capacity(BATCH_BYTES, tokio::io::stdin()))
        } else {
            let opened = tokio::fs::File::open(file).await.map_err(failed)?;
            Box::new(BufReader::with_capacity(BATCH_BYTES, opened))
        };
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line).await.map_err(failed)? == 0 {
                break;
            }
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            let shard = lanes.pick(options, &line);
            let entry = entry(options.stream.kind, options.key_separator.as_deref(), &line);
            lanes.push(shard, entry, options.batch_records).await?;
        }
    }
    Ok(())
}

/// The record of a line.
fn entry(kind: Kind, separator: Option<&str>, line: &[u8]) -> Entry {
    let separator = separator.filter(|s| kind == Kind::Cache && !s.is_empty()).map(str::as_bytes);
    let split = separator.and_then(|separator| {
        let at = line.windows(separator.len()).position(|text| text == separator)?;
        Some((at, at + separator.len()))
    });
    match split {
        None => Bytes::copy_from_slice(line).into(),
        Some((key_ends, value_begins)) => Entry {
            key: Some(Bytes::copy_from_slice(&line[..key_ends])),
            value: Bytes::copy_from_slice(&line[value_begins..]),
        },
    }
}

/// Bytes of what a record says.
fn size(entry: &Entry) -> usize {
    entry.key.as_ref().map_or(0, |key| key.len()) + entry.value.len()
}

/// What one shard took.
#[derive(Debug, Clone, Default)]
struct Total {
    records: u64,
    bytes: u64,
    first_offset: Option<u64>,
    last_offset: Option<u64>,
}

/// One queue and one task for each shard, so that a slow one does not hold the others up at once.
struct Lanes {
    queues: Vec<mpsc::Sender<Vec<Entry>>>,
    pending: Vec<(usize, Vec<Entry>)>,
    tasks: JoinSet<Result<(u32, Total), Failure>>,
    turn: usize,
}

impl Lanes {
    fn start(producer: &Arc<Producer>, shards: u32) -> Self {
        let mut tasks = JoinSet::new();
        let queues = (0..shards).map(|shard| {
            let (sender, receiver) = mpsc::channel(QUEUE);
            tasks.spawn(publish_lane(Arc::clone(producer), shard, receiver));
            sender
        });
        let queues: Vec<_> = queues.collect();
        let pending = queues.iter().map(|_| (0, Vec::new())).collect();
        Self { queues, pending, tasks, turn: 0 }
    }

    fn pick(&mut self, options: &Options, line: &[u8]) -> usize {
        if let Some(shard) = options.shard {
            return shard as usize;
        }
        if let Some(separator) = &options.key_separator {
            let text = String::from_utf8_lossy(line);
            let key = text.split_once(separator.as_str()).map_or(text.as_ref(), |(key, _)| key);
            return (hash::hash64(key) % self.queues.len() as u64) as usize;
        }
        self.turn = (self.turn + 1) % self.queues.len();
        self.turn
    }

    async fn push(&mut self, lane: usize, record: Entry, most: u64) -> Result<(), Failure> {
        let (bytes, records) = &mut self.pending[lane];
        *bytes += size(&record);
        records.push(record);
        if *bytes >= BATCH_BYTES || records.len() as u64 >= most {
            self.flush(lane).await?;
        }
        Ok(())
    }

    async fn flush(&mut self, lane: usize) -> Result<(), Failure> {
        let (_, records) = std::mem::take(&mut self.pending[lane]);
        if records.is_empty() || self.queues[lane].send(records).await.is_ok() {
            return Ok(());
        }
        // The lane ended, so it failed; its own words come from `finish`.
        Err(Failure::Unreachable("publishing stopped".to_owned()))
    }

    async fn finish(mut self) -> Result<BTreeMap<u32, Total>, Failure> {
        for lane in 0..self.pending.len() {
            // A lane that failed says so below.
            let _ = self.flush(lane).await;
        }
        self.queues.clear();
        let mut totals = BTreeMap::new();
        let mut failed = None;
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(Ok((shard, total))) => drop(totals.insert(shard, total)),
                Ok(Err(failure)) => failed = failed.or(Some(failure)),
                Err(error) => {
                    let line = format!("publishing ended early: {error}");
                    failed = failed.or(Some(Failure::Unreachable(line)));
                }
            }
        }
        match failed {
            Some(failure) => {
                let records: u64 = totals.values().map(|t: &Total| t.records).sum();
                crate::output::note(format_args!("{records} records were acknowledged elsewhere"));
                Err(failure)
            }
            None => Ok(totals),
        }
    }
}

async fn publish_lane(
    producer: Arc<Producer>,
    shard: u32,
    mut queue: mpsc::Receiver<Vec<Entry>>,
) -> Result<(u32, Total), Failure> {
    let mut total = Total::default();
    while let Some(records) = queue.recv().await {
        total.bytes += records.iter().map(|r| size(r) as u64).sum::<u64>();
        total.records += records.len() as u64;
        let published =
            producer.publish_entries(shard, records).await.map_err(|e| Failure::of_client(&e))?;
        total.first_offset = total.first_offset.or(published.offsets.first().copied());
        total.last_offset = published.offsets.last().copied().or(total.last_offset);
    }
    Ok((shard, total))
}

fn report(stream: &StreamKey, id: u64, totals: &BTreeMap<u32, Total>, seconds: f64) -> Value {
    let records: u64 = totals.values().map(|t| t.records).sum();
    let bytes: u64 = totals.values().map(|t| t.bytes).sum();
    let shards = totals.iter().map(|(shard, t)| {
        json!({
            "shard": stream.shard(*shard),
            "records": t.records,
            "bytes": t.bytes,
            "first_offset": t.first_offset,
            "last_offset": t.last_offset,
        })
    });
    json!({
        "stream": stream,
        "producer_id": id,
        "records": records,
        "bytes": bytes,
        "seconds": seconds,
        "records_per_second": records as f64 / seconds.max(1e-9),
        "bytes_per_second": bytes as f64 / seconds.max(1e-9),
        "shards": shards.collect::<Vec<_>>(),
    })
}

fn summary(d: &Value) -> String {
    let fields = ["shard", "records", "bytes", "first_offset", "last_offset"];
    format!(
        "{}\n\n{} records, {} in {:.2} s ({}/s)",
        table(fields, cells(&d["shards"], fields)),
        cell(&d["records"]),
        human(d["bytes"].as_f64().unwrap_or_default()),
        d["seconds"].as_f64().unwrap_or_default(),
        human(d["bytes_per_second"].as_f64().unwrap_or_default()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_for_a_cache_is_split_and_only_at_the_first_separator() {
        let keyed = |key: &'static str, value: &'static str| Entry {
            key: Some(Bytes::from_static(key.as_bytes())),
            value: Bytes::from_static(value.as_bytes()),
        };
        let whole = |line: &'static str| Entry::from(Bytes::from_static(line.as_bytes()));
        assert_eq!(entry(Kind::Cache, Some("::"), b"k::v::w"), keyed("k", "v::w"));
        assert_eq!(entry(Kind::Cache, Some("::"), b"k::"), keyed("k", ""));
        assert_eq!(entry(Kind::Cache, Some("::"), b"k:v"), whole("k:v"));
        assert_eq!(entry(Kind::Cache, Some(""), b"k:v"), whole("k:v"));
        assert_eq!(entry(Kind::Stream, Some(":"), b"k:v"), whole("k:v"));
    }
}
