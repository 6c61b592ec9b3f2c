//! A subscription: committed records in order, until the shard's leader changes.

use evenkeel_model::{BrokerId, Phase, Role, ShardKey, ShardState};
use evenkeel_proto::data::subscribe_response::Event;
use evenkeel_proto::data::{
    End, Records, ShardMoved, StoredRecord, SubscribeRequest, SubscribeResponse,
};
use evenkeel_proto::refusal::{Reason, before_start, refuse};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::activity::Reader;
use super::service::{Gateway, shard_of};
use crate::host::{CommittedRecord, ShardError, ShardStatus};
use crate::metrics;

/// Bytes read at once.
const BATCH_BYTES: usize = 256 << 10;

/// Batches that a slow client lets pile up here.
const BATCHES_AHEAD: usize = 4;

type Answers = mpsc::Sender<Result<SubscribeResponse, Status>>;

struct Subscription {
    gateway: Gateway,
    shard: ShardKey,
    /// Where its reader began: it has everything from there to the position.
    began: u64,
    position: u64,
    /// Where a subscription with `stop_at_end` ends.
    stop_at: Option<u64>,
    answers: Answers,
}

/// How a subscription stands after everything committed was sent.
enum Standing {
    Goes,
    Moved(Option<BrokerId>),
}

impl Gateway {
    pub(super) fn open_subscription(
        &self,
        request: SubscribeRequest,
    ) -> Result<ReceiverStream<Result<SubscribeResponse, Status>>, Status> {
        let shard = shard_of(&request.shard)?;
        if self.routes.assignment(&shard).is_none() && self.host.watch(&shard).is_none() {
            let detail = format!("no assignment of {shard} is known here");
            return Err(refuse(Reason::ShardUnavailable, detail));
        }
        let (answers, stream) = mpsc::channel(BATCHES_AHEAD);
        let subscription = Subscription {
            gateway: self.clone(),
            shard,
            began: request.began_offset.unwrap_or(u64::MAX).min(request.from_offset),
            position: request.from_offset,
            stop_at: None,
            answers,
        };
        tokio::spawn(subscription.run(request.stop_at_end));
        Ok(ReceiverStream::new(stream))
    }
}

impl Subscription {
    async fn run(mut self, stop_at_end: bool) {
        let answers = self.answers.clone();
        let ended = tokio::select! {
            biased;
            // The client went away.
            () = answers.closed() => return,
            ended = self.serve(stop_at_end) => ended,
        };
        // The client may have gone meanwhile.
        let _ = answers.send(ended.map(|event| SubscribeResponse { event: Some(event) })).await;
    }

    /// Returns with the last event, or why the subscription fails.
    async fn serve(&mut self, stop_at_end: bool) -> Result<Event, Status> {
        let Some(mut status) = self.leading().await else {
            return self.elsewhere();
        };
        if stop_at_end {
            self.stop_at = Some(status.borrow().committed);
        }
        metrics::subscriptions(1.0);
        let reader = self.gateway.activity.subscribed(&self.shard, self.position);
        let ended = self.deliver(&mut status, &reader).await;
        metrics::subscriptions(-1.0);
        ended
    }

    /// The replica's watch, if this broker leads; waits a little if it is about to.
    async fn leading(&self) -> Option<watch::Receiver<ShardStatus>> {
        let until = Instant::now() + self.gateway.hold_time;
        loop {
            let mut changes = self.gateway.routes.changes();
            let watch = self.gateway.host.watch(&self.shard);
            let leads = |status: &ShardStatus| {
                status.role == Role::Leader && status.phase != Phase::Opening
            };
            if let Some(watch) = watch.filter(|watch| leads(&watch.borrow())) {
                return Some(watch);
            }
            if !self.is_about_to_lead() || Instant::now() >= until {
                return None;
            }
            let mut local = self.gateway.host.watch(&self.shard);
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                Some(Ok(())) = async { Some(local.as_mut()?.changed().await) } => {}
                () = sleep_until(until) => {}
            }
        }
    }

    fn is_about_to_lead(&self) -> bool {
        let Some(route) = self.gateway.routes.assignment(&self.shard) else { return false };
        let me = Some(&self.gateway.me);
        let handed_over = route.state == ShardState::Draining && route.successor.as_ref() == me;
        handed_over || route.leader.as_ref() == me
    }

    async fn deliver(
        &mut self,
        status: &mut watch::Receiver<ShardStatus>,
        reader: &Reader,
    ) -> Result<Event, Status> {
        loop {
            // Before reading, so that what is committed meanwhile wakes us.
            let now = status.borrow_and_update().clone();
            if self.stop_at.is_some_and(|end| self.position >= end) {
                return Ok(Event::End(End { end_offset: self.position }));
            }
            let host = &self.gateway.host;
            let batch = host.read(&self.shard, self.position, BATCH_BYTES).await;
            let batch = batch.map_err(|error| {
                let detail = format!("cannot read {}: {error}", self.shard);
                match error {
                    ShardError::BeforeStart { first, .. } => before_start(first, detail),
                    _ => refuse(Reason::ShardUnavailable, detail),
                }
            })?;
            let moved_on = batch.next_offset > self.position;
            self.position = self.position.max(batch.next_offset);
            let is_news = |r: &CommittedRecord| r.rewrites.is_none_or(|at| at < self.began);
            let records: Vec<StoredRecord> =
                batch.records.into_iter().filter(is_news).map(stored).collect();
            if !records.is_empty() {
                let event = Some(Event::Records(Records { records }));
                if self.answers.send(Ok(SubscribeResponse { event })).await.is_err() {
                    return Ok(Event::End(End { end_offset: self.position }));
                }
                reader.at(self.position);
            }
            if moved_on {
                continue;
            }
            if let Standing::Moved(leader) = standing(&now, self.position) {
                return Ok(self.moved(leader));
            }
            if status.changed().await.is_err() {
                return self.elsewhere();
            }
        }
    }

    /// This broker does not lead: where to go on.
    fn elsewhere(&self) -> Result<Event, Status> {
        let leader = self.gateway.routes.assignment(&self.shard).and_then(|a| a.leader.clone());
        match leader {
            Some(leader) if leader != self.gateway.me => Ok(self.moved(Some(leader))),
            _ => {
                let detail = format!("{} has no serving leader now", self.shard);
                Err(refuse(Reason::ShardUnavailable, detail))
            }
        }
    }

    fn moved(&self, leader: Option<BrokerId>) -> Event {
        let address = leader.as_ref().and_then(|broker| self.gateway.routes.address_of(broker));
        Event::ShardMoved(ShardMoved {
            leader: leader.map(|broker| broker.to_string()),
            address,
            resume_offset: self.position,
        })
    }
}

/// Everything committed up to `position` was sent.
fn standing(status: &ShardStatus, position: u64) -> Standing {
    let assignment = &status.assignment;
    if status.role != Role::Leader {
        return Standing::Moved(assignment.leader.clone());
    }
    match status.phase {
        Phase::Drained => Standing::Moved(assignment.successor.clone()),
        // What was accepted before the fence lands first.
        Phase::Fencing if position >= status.log_end => {
            Standing::Moved(assignment.successor.clone())
        }
        _ => Standing::Goes,
    }
}

fn stored(record: CommittedRecord) -> StoredRecord {
    StoredRecord {
        offset: record.offset,
        timestamp_ms: record.timestamp_ms,
        payload: record.payload,
        producer_id: record.producer_id,
        sequence: record.sequence,
        key: record.key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::Assignment;
    use std::sync::Arc;

    #[test]
    fn a_subscription_ends_at_the_fence_once_everything_accepted_was_sent() {
        let id = |s: &str| s.parse::<BrokerId>().unwrap();
        let mut assignment =
            Assignment::new("stream/d/s/0".parse().unwrap(), id("b1"), vec![id("b2")]);
        assignment.successor = Some(id("b2"));
        let mut status = ShardStatus {
            role: Role::Leader,
            assignment: Arc::new(assignment),
            phase: Phase::Serving,
            committed: 10,
            log_end: 12,
        };
        assert!(matches!(standing(&status, 10), Standing::Goes));
        status.phase = Phase::Fencing;
        assert!(matches!(standing(&status, 10), Standing::Goes), "two records are to land");
        status.committed = 12;
        let moved_to = |status: &ShardStatus| match standing(status, 12) {
            Standing::Moved(leader) => leader,
            Standing::Goes => None,
        };
        assert_eq!(moved_to(&status), Some(id("b2")));
        status.phase = Phase::Drained;
        assert_eq!(moved_to(&status), Some(id("b2")));
        status.role = Role::Follower;
        assert_eq!(moved_to(&status), Some(id("b1")));
    }
}
