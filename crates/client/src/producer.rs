//! Publishing with repetitions recognised.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use evenkeel_model::{Generation, ShardKey, StreamKey};
use evenkeel_proto::data::{PublishRequest, PublishResponse, Record};
use tokio::time::Instant;
use tonic::Status;

use crate::client::timed_out;
use crate::retry::judge;
use crate::{Client, ClientError, Fate};

/// A batch that is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// One offset for each record, in order.
    pub offsets: Vec<u64>,
    /// The broker that committed them.
    pub leader: String,
    /// At which generation.
    pub generation: Generation,
    /// How many attempts it took, at most, for one request.
    pub attempts: u32,
}

impl Published {
    fn joined(mut self, next: Self) -> Self {
        self.offsets.extend(next.offsets);
        Self { offsets: self.offsets, attempts: self.attempts.max(next.attempts), ..next }
    }
}

/// What one record says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// What the value is of, at most 1024 bytes: a cache keeps the newest value of each key.
    pub key: Option<Bytes>,
    /// The bytes; with a key, none deletes the key.
    pub value: Bytes,
}

impl From<Bytes> for Entry {
    fn from(value: Bytes) -> Self {
        Self { key: None, value }
    }
}

/// Most records of one request. Brokers remember so many sequences of a producer: a repetition of
/// a longer one could not be recognised.
pub const MAX_BATCH_RECORDS: usize = 256;

/// Publishes batches to the shards of one stream.
///
/// Batches to one shard are sent one after the other, in the order of the calls: a broker tells a
/// repetition from news by the rising sequence, which two batches at once could confuse. Use
/// several producers to have several batches of a shard in flight.
pub struct Producer {
    client: Client,
    stream: StreamKey,
    id: u64,
    /// The last sequence used, by shard.
    lanes: Mutex<BTreeMap<u32, Arc<tokio::sync::Mutex<u64>>>>,
}

impl Producer {
    pub(crate) fn new(client: Client, stream: StreamKey, id: u64) -> Self {
        Self { client, stream, id, lanes: Mutex::new(BTreeMap::new()) }
    }

    /// The stream it publishes to.
    pub fn stream(&self) -> &StreamKey {
        &self.stream
    }

    /// Its producer id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Publishes a batch to one shard and returns when all of it is committed. More records than
    /// [`MAX_BATCH_RECORDS`] are sent in several requests, one after the other. On an error,
    /// [`ClientError::fate`] tells whether some of it may have been stored.
    pub async fn publish(
        &self,
        shard: u32,
        payloads: Vec<Bytes>,
    ) -> Result<Published, ClientError> {
        self.publish_entries(shard, payloads.into_iter().map(Entry::from).collect()).await
    }

    /// The same, for records that may have keys.
    pub async fn publish_entries(
        &self,
        shard: u32,
        entries: Vec<Entry>,
    ) -> Result<Published, ClientError> {
        let lane = {
            let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(lanes.entry(shard).or_default())
        };
        // Taken before the permit: a waiting lane must not hold one.
        let mut last = lane.lock().await;
        let shard = self.stream.shard(shard);
        let mut all: Option<Published> = None;
        let mut entries = entries.into_iter();
        loop {
            let part: Vec<Entry> = entries.by_ref().take(MAX_BATCH_RECORDS).collect();
            if part.is_empty()
                && let Some(all) = all
            {
                return Ok(all);
            }
            let _permit = self.client.in_flight().acquire().await;
            let request = self.request(&shard, *last, part);
            // Never used again, whatever becomes of this request: a sequence that names two
            // records would make the second pass for a repetition of the first.
            *last += request.records.len() as u64;
            let sent = self.send(&shard, request).await;
            all = Some(match (all, sent) {
                (None, sent) => sent?,
                (Some(all), Ok(next)) => all.joined(next),
                (Some(_), Err(error)) => return Err(error.after_a_part()),
            });
        }
    }

    fn request(&self, shard: &ShardKey, before: u64, entries: Vec<Entry>) -> PublishRequest {
        let records = entries
            .into_iter()
            .zip(before + 1..)
            .map(|(Entry { key, value }, sequence)| Record {
                key,
                payload: value,
                producer_id: self.id,
                sequence: if self.id == 0 { 0 } else { sequence },
            })
            .collect();
        PublishRequest { shard: shard.to_string(), records, forwarded: false }
    }

    async fn send(
        &self,
        shard: &ShardKey,
        request: PublishRequest,
    ) -> Result<Published, ClientError> {
        let mut backoff = self.client.backoff();
        let mut fate = Fate::NotWritten;
        loop {
            let address = self.client.target(shard, &backoff).await;
            let began = Instant::now();
            let status = match self.attempt(&address, &request).await? {
                Ok(answer) => {
                    self.client.succeeded();
                    return self.accept(shard, &address, &request, answer, backoff.attempts() + 1);
                }
                Err(status) => status,
            };
            if judge(&status).fate == Fate::Unknown {
                fate = Fate::Unknown;
            }
            let action = format!("publish to {shard}");
            if fate == Fate::Unknown && self.id == 0 {
                let detail = status.message().to_owned();
                return Err(ClientError::Refused {
                    action,
                    reason: None,
                    detail,
                    fate: Some(fate),
                });
            }
            let wait = self.client.next_wait(&action, &mut backoff, &status, Some(fate))?;
            tracing::debug!(%shard, address, %status, ?wait, "publish is tried again");
            tokio::time::sleep(wait).await;
            let _ = self.client.refresh(&self.stream, began).await;
        }
    }

    async fn attempt(
        &self,
        address: &str,
        request: &PublishRequest,
    ) -> Result<Result<PublishResponse, Status>, ClientError> {
        let mut stub = self.client.stub(address)?;
        let limit = self.client.config().attempt_timeout;
        let answer = tokio::time::timeout(limit, stub.publish(request.clone())).await;
        Ok(match answer {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => Err(timed_out(address, limit)),
        })
    }

    fn accept(
        &self,
        shard: &ShardKey,
        address: &str,
        request: &PublishRequest,
        answer: PublishResponse,
        attempts: u32,
    ) -> Result<Published, ClientError> {
        let PublishResponse { offsets, leader, generation } = answer;
        if offsets.len() != request.records.len() {
            return Err(ClientError::Protocol {
                action: format!("publish to {shard}"),
                address: address.to_owned(),
                detail: format!("{} offsets for {} records", offsets.len(), request.records.len()),
            });
        }
        self.client.routes().note_leader(shard, &leader, generation, address);
        Ok(Published { offsets, leader, generation, attempts })
    }
}
