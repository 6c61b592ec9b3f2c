//! What the migrator wants copied here, and how far each copy is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use evenkeel_model::{CopyClass, Generation, ShardKey};
use evenkeel_proto::migrations::{CopyCancel, CopyOrder, CopyProgress, Grant};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// One copy to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Of what.
    pub shard: ShardKey,
    /// For which assignment.
    pub generation: Generation,
    /// What it is for.
    pub class: CopyClass,
    /// From whom.
    pub source: String,
    /// Where that is.
    pub source_address: String,
    /// The leadership token of the load manager that wrote the assignment.
    pub token: i64,
}

impl TryFrom<CopyOrder> for Order {
    type Error = String;

    fn try_from(order: CopyOrder) -> Result<Self, String> {
        let shard = order.shard.parse().map_err(|e| format!("field 'shard': {e}"))?;
        let class = order.class.parse().map_err(|e| format!("field 'class': {e}"))?;
        Ok(Self {
            shard,
            generation: order.generation,
            class,
            source: order.source,
            source_address: order.source_address,
            token: order.token,
        })
    }
}

/// What a copy that runs is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Bytes that it may pull, until then.
    Allowance(u64, Instant),
    /// What it is for now.
    Class(CopyClass),
}

#[derive(Debug)]
struct Active {
    order: Order,
    words: mpsc::UnboundedSender<Told>,
    task: AbortHandle,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Held by the one task that may copy to a shard. One that was stopped may still be writing: the
/// next one begins when it has let go.
pub type Turn = Arc<tokio::sync::Mutex<()>>;

/// The copies under way. They outlive the session with the migrator that ordered them.
#[derive(Debug, Default)]
pub struct Orders {
    active: BTreeMap<ShardKey, Active>,
    turns: BTreeMap<ShardKey, Turn>,
}

impl Orders {
    /// Starts a copy unless it runs already. A newer order replaces an older one; an order for an
    /// older generation is ignored. `start` spawns the copy, which waits for its turn.
    pub fn order(
        &mut self,
        order: CopyOrder,
        start: impl FnOnce(Order, mpsc::UnboundedReceiver<Told>, Turn) -> AbortHandle,
    ) {
        let order = match Order::try_from(order) {
            Ok(order) => order,
            Err(error) => {
                tracing::warn!(error, "copy order ignored");
                return;
            }
        };
        let shard = order.shard.clone();
        if let Some(active) = self.active.get_mut(&shard) {
            let same = active.order == Order { class: active.order.class, ..order.clone() };
            let running = !active.task.is_finished() && same;
            if running && active.order.class != order.class {
                // It rises or falls where it is.
                active.order.class = order.class;
                let _ = active.words.send(Told::Class(order.class));
            }
            if running || active.order.generation > order.generation {
                return;
            }
        }
        let (words, received) = mpsc::unbounded_channel();
        let turn = self.turns.entry(shard.clone()).or_default().clone();
        let task = start(order.clone(), received, turn);
        self.active.insert(shard, Active { order, words, task });
    }

    /// Hands granted bytes to their copy.
    pub fn grant(&mut self, grant: &Grant) {
        let active = grant.shard.parse::<ShardKey>().ok().and_then(|s| self.active.get(&s));
        if let Some(active) = active.filter(|active| active.order.generation == grant.generation) {
            let lifetime = Duration::from_millis(grant.expires_in_ms.into());
            // A finished copy needs no bytes.
            let _ = active.words.send(Told::Allowance(grant.bytes, Instant::now() + lifetime));
        }
    }

    /// Stops a copy; what it has stays. Answers whose it was, if none of a newer order runs.
    pub fn cancel(&mut self, cancel: &CopyCancel) -> Option<ShardKey> {
        let shard = cancel.shard.parse::<ShardKey>().ok()?;
        if self.active.get(&shard).is_some_and(|a| a.order.generation > cancel.generation) {
            return None;
        }
        self.active.remove(&shard);
        Some(shard)
    }

    /// Forgets copies that have ended.
    pub fn tidy(&mut self) {
        self.active.retain(|_, active| !active.task.is_finished());
        self.turns.retain(|_, turn| Arc::strong_count(turn) > 1);
    }
}

/// The latest progress of each copy, for whoever is the migrator. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Desk(Arc<DeskState>);

#[derive(Debug, Default)]
struct DeskState {
    progress: Mutex<BTreeMap<ShardKey, Noted>>,
    expired: AtomicU64,
    changed: Notify,
}

#[derive(Debug)]
struct Noted {
    progress: CopyProgress,
    /// Not told yet.
    fresh: bool,
}

impl Desk {
    fn progress(&self) -> MutexGuard<'_, BTreeMap<ShardKey, Noted>> {
        self.0.progress.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Notes how far a copy is; `urgent` if the migrator should know at once.
    pub fn note(&self, shard: &ShardKey, progress: CopyProgress, urgent: bool) {
        let mut noted = self.progress();
        let fresh = urgent || noted.get(shard).is_none_or(|old| old.fresh);
        noted.insert(shard.clone(), Noted { progress, fresh });
        drop(noted);
        if urgent {
            self.0.changed.notify_one();
        }
    }

    /// Granted bytes ran out of time.
    pub fn expired(&self, bytes: u64) {
        self.0.expired.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Granted bytes that ran out of time since this was last asked.
    pub fn take_expired(&self) -> u64 {
        self.0.expired.swap(0, Ordering::Relaxed)
    }

    /// The copy was stopped: there is nothing more to tell of it.
    pub fn forget(&self, shard: &ShardKey) {
        self.progress().remove(shard);
    }

    /// Waits for something urgent.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// What was noted urgently since it was last taken.
    pub fn take_fresh(&self) -> Vec<CopyProgress> {
        let mut noted = self.progress();
        let fresh = noted.values_mut().filter(|n| n.fresh).map(|n| {
            n.fresh = false;
            n.progress.clone()
        });
        fresh.collect()
    }

    /// Everything; ended copies are told once more and then forgotten.
    pub fn all(&self) -> Vec<CopyProgress> {
        let mut noted = self.progress();
        let all = noted.values().map(|n| n.progress.clone()).collect();
        noted.retain(|_, n| n.progress.state == "running" || n.progress.state == "waiting_credit");
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(generation: u64, source: &str) -> CopyOrder {
        CopyOrder {
            shard: "stream/d/s/0".to_owned(),
            generation,
            class: "drain".to_owned(),
            source: source.to_owned(),
            source_address: format!("{source}:1"),
            token: 5,
        }
    }

    fn idle(
        started: &mut Vec<Order>,
    ) -> impl FnOnce(Order, mpsc::UnboundedReceiver<Told>, Turn) -> AbortHandle + '_ {
        |order, mut words, _| {
            started.push(order);
            tokio::spawn(async move { while words.recv().await.is_some() {} }).abort_handle()
        }
    }

    #[tokio::test]
    async fn an_order_is_started_once_and_replaced_by_a_newer_one() {
        let (mut orders, mut started) = (Orders::default(), Vec::new());
        orders.order(order(4, "b1"), idle(&mut started));
        orders.order(order(4, "b1"), idle(&mut started));
        orders.order(order(3, "b1"), idle(&mut started));
        assert_eq!(started.len(), 1);
        orders.order(order(4, "b2"), idle(&mut started));
        orders.order(order(5, "b2"), idle(&mut started));
        let seen: Vec<_> = started.iter().map(|o| (o.generation, o.source.as_str())).collect();
        assert_eq!(seen, [(4, "b1"), (4, "b2"), (5, "b2")]);
        orders.order(CopyOrder { class: "other".to_owned(), ..order(6, "b1") }, idle(&mut started));
        assert_eq!(started.len(), 3, "an order for nothing that is known is ignored");
        let shard = "stream/d/s/0".to_owned();
        orders.cancel(&CopyCancel { shard: shard.clone(), generation: 4 });
        orders.order(order(5, "b2"), idle(&mut started));
        assert_eq!(started.len(), 3, "an older cancel is ignored");
        orders.cancel(&CopyCancel { shard, generation: 5 });
        orders.order(order(5, "b2"), idle(&mut started));
        assert_eq!(started.len(), 4);
    }

    #[tokio::test]
    async fn a_copy_begins_when_the_one_before_it_has_let_go() {
        let mut orders = Orders::default();
        let mut turns = Vec::new();
        for (generation, source) in [(4, "b1"), (4, "b2"), (5, "b2")] {
            orders.order(order(generation, source), |_, _, turn| {
                turns.push(turn);
                tokio::spawn(std::future::ready(())).abort_handle()
            });
        }
        let writing = turns[0].clone().lock_owned().await;
        turns.remove(0);
        // Neither a cancelled order nor what is forgotten gives another one its turn early.
        let shard = "stream/d/s/0".to_owned();
        orders.cancel(&CopyCancel { shard, generation: 5 });
        orders.tidy();
        orders.order(order(6, "b1"), |_, _, turn| {
            turns.push(turn);
            tokio::spawn(std::future::ready(())).abort_handle()
        });
        assert!(turns.iter().all(|turn| turn.try_lock().is_err()));
        drop(writing);
        assert!(turns.iter().all(|turn| turn.try_lock().is_ok()));
    }

    #[tokio::test]
    async fn a_class_that_changes_is_told_and_restarts_nothing() {
        let mut orders = Orders::default();
        let mut receiver = None;
        orders.order(order(4, "b1"), |_, words, _| {
            receiver = Some(words);
            tokio::spawn(std::future::pending::<()>()).abort_handle()
        });
        let risen = CopyOrder { class: "last_copy".to_owned(), ..order(4, "b1") };
        let mut started = Vec::new();
        orders.order(risen.clone(), idle(&mut started));
        orders.order(risen, idle(&mut started));
        assert!(started.is_empty());
        let mut words = receiver.unwrap();
        assert_eq!(words.recv().await, Some(Told::Class(CopyClass::LastCopy)));
        assert!(words.try_recv().is_err(), "once");
    }

    #[tokio::test(start_paused = true)]
    async fn grants_reach_the_copy_of_their_generation_only_and_age_while_it_is_busy() {
        let mut orders = Orders::default();
        let mut receiver = None;
        orders.order(order(4, "b1"), |_, words, _| {
            receiver = Some(words);
            tokio::spawn(std::future::pending::<()>()).abort_handle()
        });
        let grant = |generation, bytes| Grant {
            shard: "stream/d/s/0".to_owned(),
            generation,
            bytes,
            expires_in_ms: 500,
        };
        orders.grant(&grant(3, 10));
        orders.grant(&grant(4, 20));
        let ends = Instant::now() + Duration::from_millis(500);
        tokio::time::advance(Duration::from_secs(1)).await;
        let word = receiver.unwrap().recv().await;
        assert_eq!(word, Some(Told::Allowance(20, ends)), "it is over before it is read");
    }

    #[test]
    fn the_desk_keeps_the_latest_and_forgets_what_has_ended() {
        let desk = Desk::default();
        let shard: ShardKey = "stream/d/s/0".parse().unwrap();
        let at = |state: &str, durable_offset| CopyProgress {
            shard: shard.to_string(),
            state: state.to_owned(),
            durable_offset,
            ..CopyProgress::default()
        };
        desk.note(&shard, at("running", 1), true);
        desk.note(&shard, at("running", 2), false);
        assert_eq!(desk.take_fresh(), vec![at("running", 2)]);
        desk.note(&shard, at("running", 3), false);
        assert!(desk.take_fresh().is_empty());
        assert_eq!(desk.all(), vec![at("running", 3)]);
        desk.forget(&shard);
        assert!(desk.all().is_empty(), "a cancelled copy is not told as running for ever");
        desk.note(&shard, at("level", 9), true);
        assert_eq!(desk.take_fresh(), vec![at("level", 9)]);
        assert_eq!(desk.all(), vec![at("level", 9)]);
        assert!(desk.all().is_empty());
    }
}
