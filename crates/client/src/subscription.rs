//! Reading a shard across moves and failures.

use std::time::Duration;

use evenkeel_model::ShardKey;
use evenkeel_proto::data::subscribe_response::Event;
use evenkeel_proto::data::{ShardMoved, StoredRecord, SubscribeRequest, SubscribeResponse};
use tokio::time::Instant;
use tonic::{Status, Streaming};

use crate::client::timed_out;
use crate::retry::Backoff;
use crate::{Client, ClientError};

/// A stream that lived longer than this was no failed attempt.
const STEADY: Duration = Duration::from_secs(1);

/// What a subscription hands over.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    /// Committed records, offsets rising.
    Records(Vec<StoredRecord>),
    /// Everything that was committed when the read began has been delivered.
    End {
        /// Where the next record will be.
        end_offset: u64,
    },
}

/// Delivers the committed records of one shard in order, each once.
///
/// It goes on at the record after the last one delivered, whoever leads: what was delivered
/// decides, not what a broker remembers. Offsets rise, and may leave out numbers that the log
/// itself uses.
pub struct Subscription {
    client: Client,
    shard: ShardKey,
    began: u64,
    next: u64,
    stop_at_end: bool,
    ended: Option<u64>,
    stream: Option<Streaming<SubscribeResponse>>,
    opened_at: Instant,
    /// Redirects since the last headway.
    redirects: u32,
    /// Where a broker sent this subscription to.
    redirect: Option<String>,
    backoff: Backoff,
}

impl Subscription {
    pub(crate) fn new(client: Client, shard: ShardKey, next: u64, stop_at_end: bool) -> Self {
        let backoff = client.backoff();
        Self {
            client,
            shard,
            began: next,
            next,
            stop_at_end,
            ended: None,
            stream: None,
            opened_at: Instant::now(),
            redirects: 0,
            redirect: None,
            backoff,
        }
    }

    /// The shard that it reads.
    pub fn shard(&self) -> &ShardKey {
        &self.shard
    }

    /// The lowest offset that the next record can have.
    pub fn next_offset(&self) -> u64 {
        self.next
    }

    /// The next records, waiting for them. May be dropped and called again without losing any.
    pub async fn next(&mut self) -> Result<Delivery, ClientError> {
        loop {
            if let Some(end_offset) = self.ended {
                return Ok(Delivery::End { end_offset });
            }
            let Some(stream) = &mut self.stream else {
                self.open().await?;
                continue;
            };
            match stream.message().await {
                Ok(Some(SubscribeResponse { event: Some(Event::ShardMoved(moved)) })) => {
                    self.follow(moved).await?;
                }
                Ok(Some(SubscribeResponse { event: Some(event) })) => {
                    if let Some(delivery) = self.on_event(event) {
                        return Ok(delivery);
                    }
                }
                Ok(Some(SubscribeResponse { event: None })) => {}
                Ok(None) => {
                    self.fail(&Status::unavailable("the broker ended the subscription")).await?;
                }
                Err(status) => self.fail(&status).await?,
            }
        }
    }

    fn on_event(&mut self, event: Event) -> Option<Delivery> {
        match event {
            Event::Records(batch) => {
                let mut records = batch.records;
                records.retain(|r| {
                    let fresh = r.offset >= self.next;
                    if fresh {
                        self.next = r.offset + 1;
                    }
                    fresh
                });
                self.backoff.reset();
                self.redirects = 0;
                (!records.is_empty()).then_some(Delivery::Records(records))
            }
            Event::End(end) if self.stop_at_end => {
                self.stream = None;
                self.ended = Some(end.end_offset);
                Some(Delivery::End { end_offset: end.end_offset })
            }
            Event::End(_) | Event::ShardMoved(_) => None,
        }
    }

    /// The shard has a new leader: go there, at once the first time. Brokers that send a
    /// subscription to and fro have not learned yet.
    async fn follow(&mut self, moved: ShardMoved) -> Result<(), ClientError> {
        tracing::debug!(shard = %self.shard, leader = ?moved.leader, next = self.next, "follows");
        self.stream = None;
        let known = moved.address.filter(|a| !a.is_empty());
        if known.is_none() || self.redirects > 0 {
            self.fail(&Status::unavailable("the shard changes hands")).await?;
        }
        self.redirects += 1;
        self.redirect = known;
        Ok(())
    }

    async fn fail(&mut self, status: &Status) -> Result<(), ClientError> {
        // A stream that lasted was headway, records or not: an idle shard may be silent for ever.
        if self.stream.take().is_some() && self.opened_at.elapsed() > STEADY {
            self.backoff.reset();
        }
        let action = format!("read {}", self.shard);
        let wait = self.client.next_wait(&action, &mut self.backoff, status, None)?;
        tracing::debug!(shard = %self.shard, %status, ?wait, "subscription is opened again");
        let failed = Instant::now();
        tokio::time::sleep(wait).await;
        let _ = self.client.refresh(&self.shard.stream, failed).await;
        Ok(())
    }

    async fn open(&mut self) -> Result<(), ClientError> {
        let address = match self.redirect.take() {
            Some(address) => address,
            None => self.client.target(&self.shard, &self.backoff).await,
        };
        let mut stub = self.client.stub(&address)?;
        let request = SubscribeRequest {
            shard: self.shard.to_string(),
            from_offset: self.next,
            stop_at_end: self.stop_at_end,
            began_offset: Some(self.began),
        };
        let limit = self.client.config().attempt_timeout;
        match tokio::time::timeout(limit, stub.subscribe(request)).await {
            Ok(Ok(answer)) => {
                self.stream = Some(answer.into_inner());
                self.opened_at = Instant::now();
                Ok(())
            }
            Ok(Err(status)) => self.fail(&status).await,
            Err(_) => self.fail(&timed_out(&address, limit)).await,
        }
    }
}
