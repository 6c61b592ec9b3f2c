//! One publish: served, sent on, or held until it can be one of the two.

use std::time::Duration;

use evenkeel_model::{BrokerId, ShardKey};
use evenkeel_proto::data::{PublishRequest, PublishResponse};
use evenkeel_proto::refusal::{Reason, refuse, refuse_for};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic::Status;

use super::direction::{Direction, Known, Waiting, direct};
use super::forward::{Forwarded, forward};
use super::holding::{Ended, Hold};
use super::service::{Gateway, shard_of};
use crate::host::{NewRecord, PublishError, ShardStatus};

/// Look again after this long, when what refused gives no sign of its own.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What a client should wait after a refusal that a little time cures.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// What one attempt came to, if not to an answer.
struct NotYet {
    reason: Waiting,
    detail: String,
    /// Nothing that is watched changes when it can go on.
    look_again: bool,
}

struct Publish<'a> {
    gateway: &'a Gateway,
    shard: ShardKey,
    request: PublishRequest,
    hold: Hold,
    /// An attempt may have been written.
    uncertain: bool,
}

impl Gateway {
    pub(super) async fn publish_records(
        &self,
        request: PublishRequest,
    ) -> Result<PublishResponse, Status> {
        let shard = shard_of(&request.shard)?;
        if request.records.is_empty() {
            let detail = "field 'records': '' is not valid: expected at least one record";
            return Err(refuse(Reason::InvalidArgument, detail));
        }
        let hold = Hold::new(&self.room);
        let mut publish = Publish { gateway: self, shard, request, hold, uncertain: false };
        publish.run().await
    }
}

impl Publish<'_> {
    async fn run(&mut self) -> Result<PublishResponse, Status> {
        loop {
            // Before looking, so that no change is missed between looking and waiting.
            let mut changes = self.gateway.routes.changes();
            let mut local = self.gateway.host.watch(&self.shard);
            let status = local.as_mut().map(|watch| watch.borrow_and_update().clone());
            let not_yet = match self.attempt(status.as_ref()).await {
                Ok(response) => return Ok(response),
                // This attempt was refused, but an earlier one may have been written.
                Err(Err(status)) if self.uncertain => {
                    return Err(uncertain(&self.shard, status.message()));
                }
                Err(Err(status)) => return Err(status),
                Err(Ok(not_yet)) => not_yet,
            };
            let now = Instant::now();
            let until = match self.hold.wait(not_yet.reason, now) {
                Ok(until) => until,
                Err(ended) => return Err(self.ended(ended, &not_yet)),
            };
            let wake = if not_yet.look_again { until.min(now + LOOK_AGAIN) } else { until };
            tokio::select! {
                biased;
                () = changed(local.as_mut()) => {}
                _ = changes.changed() => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    /// An answer, `Err(Err)` a final refusal, `Err(Ok)` what to wait for.
    async fn attempt(
        &mut self,
        local: Option<&ShardStatus>,
    ) -> Result<PublishResponse, Result<NotYet, Status>> {
        let routes = &self.gateway.routes;
        let route = routes.assignment(&self.shard);
        let leader = route.as_ref().and_then(|a| a.leader.as_ref());
        let address = leader.and_then(|broker| routes.address_of(broker));
        let known = Known {
            me: &self.gateway.me,
            local,
            route: route.as_deref(),
            address: address.as_deref(),
        };
        match direct(known, self.request.forwarded) {
            Direction::Serve => {
                self.hold.leave();
                self.serve().await
            }
            Direction::Forward { leader, address } => {
                self.hold.leave();
                self.send_on(&leader, &address).await
            }
            // It waited here for the hand-over, which is done: the sender knows where to go, or
            // learns it when we know.
            Direction::Hold(Waiting::Stray, why) if self.hold.has_waited() => {
                Err(Err(self.refusal(Waiting::Moving, why)))
            }
            Direction::Hold(reason, why) => {
                Err(Ok(NotYet { reason, detail: why.to_owned(), look_again: false }))
            }
            Direction::Refuse(why) => Err(Err(self.refusal(Waiting::Unavailable, why))),
        }
    }

    async fn serve(&mut self) -> Result<PublishResponse, Result<NotYet, Status>> {
        let writing = self.gateway.admission.write().map_err(Err)?;
        let started = Instant::now();
        let result = self.gateway.host.publish(&self.shard, self.records()).await;
        let error = match result {
            Ok(published) => {
                writing.committed(started.elapsed());
                self.gateway.served(started.elapsed(), &self.request.records);
                if let Some(last) = self.request.records.last() {
                    self.gateway.activity.published(&self.shard, last.producer_id);
                }
                return Ok(PublishResponse {
                    offsets: published.offsets,
                    leader: self.gateway.me.to_string(),
                    generation: published.generation,
                });
            }
            Err(error) => error,
        };
        let detail = error.to_string();
        let not_yet = |reason| Err(Ok(NotYet { reason, detail: detail.clone(), look_again: true }));
        match error {
            PublishError::Fenced => not_yet(Waiting::Moving),
            PublishError::NotLeading | PublishError::NotServing(_) => not_yet(Waiting::Unavailable),
            PublishError::Overloaded => {
                Err(Err(refuse_for(Reason::Overloaded, detail, RETRY_DELAY)))
            }
            PublishError::DiskFull(_) => Err(Err(refuse(Reason::DiskFull, detail))),
            PublishError::Invalid(_) => Err(Err(refuse(Reason::InvalidArgument, detail))),
            PublishError::Uncertain => self.may_be_written(detail),
        }
    }

    async fn send_on(
        &mut self,
        leader: &BrokerId,
        address: &str,
    ) -> Result<PublishResponse, Result<NotYet, Status>> {
        let forwarded = forward(&self.gateway.network, address, self.request.clone());
        // A leader that was paused or cut off may never answer; its successor does.
        let forwarded = tokio::select! {
            biased;
            forwarded = forwarded => forwarded,
            () = self.replaced(leader), if self.is_repeatable() => {
                Forwarded::Uncertain(format!("{leader} was replaced before it answered"))
            }
        };
        match forwarded {
            Forwarded::Done(response) => Ok(response),
            Forwarded::NotYet(reason, detail) => {
                Err(Ok(NotYet { reason, detail, look_again: true }))
            }
            Forwarded::Refused(status) => Err(Err(status)),
            Forwarded::Uncertain(detail) => self.may_be_written(detail),
        }
    }

    /// Named producers' records can be sent again: the leader knows them by their sequence.
    fn may_be_written<T>(&mut self, detail: String) -> Result<T, Result<NotYet, Status>> {
        self.uncertain = true;
        if !self.is_repeatable() {
            return Err(Err(uncertain(&self.shard, &detail)));
        }
        Err(Ok(NotYet { reason: Waiting::Unavailable, detail, look_again: true }))
    }

    fn is_repeatable(&self) -> bool {
        self.request.records.iter().all(|record| record.producer_id != 0)
    }

    /// Waits until another broker leads.
    async fn replaced(&self, leader: &BrokerId) {
        let routes = &self.gateway.routes;
        let mut changes = routes.changes();
        loop {
            let now = routes.assignment(&self.shard).and_then(|a| a.leader.clone());
            if now.is_some_and(|now| now != *leader) {
                return;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn records(&self) -> Vec<NewRecord> {
        let records = self.request.records.iter().map(|record| NewRecord {
            key: record.key.clone(),
            payload: record.payload.clone(),
            producer_id: record.producer_id,
            sequence: record.sequence,
        });
        records.collect()
    }

    fn ended(&self, ended: Ended, not_yet: &NotYet) -> Status {
        let waited = match ended {
            Ended::TimedOut => format!("after waiting {} ms", self.gateway.hold_time.as_millis()),
            Ended::Full => "as many publishes as may wait already do".to_owned(),
        };
        self.refusal(not_yet.reason, &format!("{} ({waited})", not_yet.detail))
    }

    fn refusal(&self, reason: Waiting, detail: &str) -> Status {
        if self.uncertain {
            return uncertain(&self.shard, detail);
        }
        let reason = match reason {
            Waiting::Moving | Waiting::Stray => Reason::Moving,
            Waiting::Unavailable => Reason::ShardUnavailable,
        };
        let detail = format!("publish to {} was not written: {detail}", self.shard);
        refuse_for(reason, detail, RETRY_DELAY)
    }
}

fn uncertain(shard: &ShardKey, detail: &str) -> Status {
    Status::unknown(format!(
        "publish to {shard} may or may not have been written: {detail}; \
         send it again with the same producer and sequences"
    ))
}

async fn changed(local: Option<&mut watch::Receiver<ShardStatus>>) {
    match local {
        // A closed watch means that the replica is gone, which the routes will tell.
        Some(watch) => {
            if watch.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        None => std::future::pending::<()>().await,
    }
}
