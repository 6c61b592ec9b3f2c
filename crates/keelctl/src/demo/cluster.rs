//! The demo's cluster as the load manager tells it, and waiting for it to come about.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use evenkeel_proto::admin::{Assignment, Broker, ListShardsRequest, StatusRequest, StatusResponse};
use tokio::time::Instant;

use super::fleet::Fleet;
use super::screen::Screen;
use crate::Failure;
use crate::admin::Admin;
use crate::commands::{brokers, shards};

/// Leaders by broker, of each stream.
pub(crate) type Leaders = BTreeMap<String, BTreeMap<String, u32>>;

/// What the story looks at and waits with.
pub(crate) struct Cluster<'a> {
    pub(crate) admin: Admin,
    pub(crate) fleet: &'a Fleet,
    pub(crate) screen: &'a Screen,
    pub(crate) patience: Duration,
}

/// Brokers and shards at one time.
pub(crate) struct View {
    pub(crate) brokers: Vec<Broker>,
    pub(crate) shards: Vec<Assignment>,
}

impl Cluster<'_> {
    /// The status of the elected load manager.
    pub(crate) async fn status(&self) -> Result<StatusResponse, Failure> {
        self.admin
            .call("show the status", true, |mut c| async move { c.status(StatusRequest {}).await })
            .await
    }

    /// Brokers and shards now.
    pub(crate) async fn view(&self) -> Result<View, Failure> {
        let brokers = brokers::list(&self.admin).await?;
        let shards = shards::list(&self.admin, ListShardsRequest::default()).await?;
        Ok(View { brokers, shards })
    }

    /// Looks again and again until `check` has an answer. `what` completes "waited in vain for".
    pub(crate) async fn until<T, F, Fut>(&self, what: &str, mut check: F) -> Result<T, Failure>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<Result<T, String>, Failure>>,
    {
        let deadline = Instant::now() + self.patience;
        loop {
            self.fleet.check()?;
            let state = match check().await? {
                Ok(answer) => return Ok(answer),
                Err(state) => state,
            };
            self.screen.wait_for(&state);
            if Instant::now() > deadline {
                let seconds = self.patience.as_secs();
                return Err(Failure::No(format!("waited {seconds} s in vain for {what}: {state}")));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until so many brokers are live and registered.
    pub(crate) async fn until_live(&self, count: usize) -> Result<(), Failure> {
        self.until("brokers to register", || async {
            let live = brokers::list(&self.admin).await?.iter().filter(|b| is_live(b)).count();
            Ok(if live >= count {
                Ok(())
            } else {
                Err(format!("{live} of {count} brokers are live"))
            })
        })
        .await
    }

    /// Waits until no stream's leaders differ by more than one over the live brokers, all is
    /// whole, and it stays so.
    pub(crate) async fn until_even(&self, shards: usize, factor: usize) -> Result<View, Failure> {
        let mut calm = 0;
        loop {
            let view = self
                .until("leaders to be even", || async {
                    let view = self.view().await?;
                    let left = view.shards.iter().filter(|a| !view.is_whole(a, factor)).count();
                    let uneven = view.uneven_streams();
                    let spread: Vec<String> =
                        uneven.iter().map(|(s, spread)| format!("{s} {spread}")).collect();
                    Ok(match (uneven.is_empty(), left) {
                        (true, 0) => Ok(view),
                        (true, left) => Err(format!("even; {left} of {shards} shards under way")),
                        (false, _) => Err(format!("widest differences: {}", spread.join(", "))),
                    })
                })
                .await?;
            // Totals are evened after streams: it has settled when nothing starts for a while.
            calm += 1;
            if calm >= 8 {
                return Ok(view);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Whether a broker may be given shards.
pub(crate) fn is_live(broker: &Broker) -> bool {
    broker.lifecycle == "live" && broker.registered
}

impl View {
    /// Led, at the factor on brokers that run, nothing under way.
    fn is_whole(&self, a: &Assignment, factor: usize) -> bool {
        let runs = |id: &String| {
            self.brokers.iter().any(|b| b.id == *id && matches!(&*b.lifecycle, "live" | "draining"))
        };
        let copies = a.leader.iter().chain(&a.followers).filter(|id| runs(id)).count();
        a.leader.as_ref().is_some_and(runs)
            && copies >= factor
            && a.state == "active"
            && a.successor.is_none()
            && a.joining.is_none()
    }

    /// Brokers that may be given shards.
    pub(crate) fn live(&self) -> BTreeSet<&str> {
        self.brokers.iter().filter(|b| is_live(b)).map(|b| b.id.as_str()).collect()
    }

    /// Streams by name with their shards led per broker; every live broker is there.
    pub(crate) fn leaders(&self) -> Leaders {
        let mut leaders = Leaders::new();
        for a in &self.shards {
            let (stream, _) = a.shard.rsplit_once('/').unwrap_or((&a.shard, ""));
            let by_broker = leaders
                .entry(stream.to_owned())
                .or_insert_with(|| self.live().into_iter().map(|b| (b.to_owned(), 0)).collect());
            if let Some(leader) = &a.leader {
                *by_broker.entry(leader.clone()).or_default() += 1;
            }
        }
        leaders
    }

    /// Streams whose leaders differ by more than one, with the difference.
    fn uneven_streams(&self) -> Vec<(String, u32)> {
        let live = self.live();
        let mut uneven = Vec::new();
        for (stream, by_broker) in self.leaders() {
            let elsewhere: u32 =
                by_broker.iter().filter(|(b, _)| !live.contains(b.as_str())).map(|(_, n)| n).sum();
            let counts = || by_broker.iter().filter(|(b, _)| live.contains(b.as_str()));
            let most = counts().map(|(_, n)| *n).max().unwrap_or_default();
            let fewest = counts().map(|(_, n)| *n).min().unwrap_or_default();
            if most - fewest > 1 || elsewhere > 0 {
                uneven.push((stream, most - fewest));
            }
        }
        uneven
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(id: &str, lifecycle: &str) -> Broker {
        Broker {
            id: id.into(),
            lifecycle: lifecycle.into(),
            registered: true,
            ..Default::default()
        }
    }

    fn shard(number: u32, leader: &str, follower: &str) -> Assignment {
        Assignment {
            shard: format!("stream/demo/x/{number}"),
            leader: Some(leader.into()),
            followers: vec![follower.into()],
            state: "active".into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_view_tells_what_is_uneven_and_what_is_not_whole() {
        let brokers = vec![broker("a", "live"), broker("b", "live"), broker("c", "down")];
        let shards = vec![shard(0, "a", "b"), shard(1, "a", "c")];
        let mut view = View { brokers, shards };
        assert_eq!(view.uneven_streams(), [("stream/demo/x".to_owned(), 2)]);
        let whole: Vec<bool> = view.shards.iter().map(|a| view.is_whole(a, 2)).collect();
        assert_eq!(whole, [true, false]);
        view.shards[1] = shard(1, "b", "a");
        assert_eq!(view.uneven_streams(), []);
        view.shards[1] = shard(1, "c", "a");
        assert_eq!(view.uneven_streams(), [("stream/demo/x".to_owned(), 1)]);
    }
}
