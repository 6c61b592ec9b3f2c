//! One replica with its driver: events go in, actions are carried out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_model::{Assignment, BrokerShard, Millis, Phase, Role, ShardKey, ShardReport};
use evenkeel_shard_log::{Action, Answer, Event, Refusal, Replica, ReplicaConfig, Request};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::disks::Disks;
use super::making_way::may_make_way;
use super::opening::{Failure, open_replica};
use super::peers::Peers;
use super::syncing::{PutOff, SyncPolicy, sync, sync_at_close};
use crate::host::{Published, ReportEdges, ShardStatus};

/// What every shard's driver is given.
#[derive(Clone)]
pub(super) struct Equipment {
    pub(super) me: evenkeel_model::BrokerId,
    pub(super) disks: Arc<dyn Disks>,
    pub(super) config: ReplicaConfig,
    pub(super) syncs: SyncPolicy,
    pub(super) peers: Peers,
    pub(super) reports: ReportEdges,
    /// Start of the time that the state machines are told.
    pub(super) started: Instant,
}

/// A held shard.
pub(super) struct Shard {
    pub(super) key: ShardKey,
    equipment: Equipment,
    core: Mutex<Core>,
    /// Why it could not be opened.
    failure: Option<Failure>,
    /// The newest record's time when it was opened, 0 for none.
    pub(super) opened_ms: Millis,
    status: watch::Sender<ShardStatus>,
    /// The durable end, for copies that wait for it.
    durable: watch::Sender<u64>,
    timer: Notify,
    pub(super) figures: Figures,
}

/// Counts since the shard was opened.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) records_in: AtomicU64,
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
}

impl Figures {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

struct Core {
    /// None if it could not be opened, and after it was closed.
    replica: Option<Replica>,
    publishing: BTreeMap<u64, oneshot::Sender<Result<Published, Refusal>>>,
    answering: BTreeMap<u64, oneshot::Sender<Answer>>,
    next: u64,
    put_off: PutOff,
    wake_at: Option<u64>,
    /// When the timer fires; it need not be told of a later time.
    armed: Option<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what may wait for the disk without holding up the runtime's other tasks, where it can.
pub(super) fn off_the_runtime<T>(blocking: bool, work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let threads = Handle::try_current().map(|h| h.runtime_flavor());
    if blocking && matches!(threads, Ok(RuntimeFlavor::MultiThread)) {
        return tokio::task::block_in_place(work);
    }
    work()
}

impl Shard {
    /// Opens the shard's bytes and starts to act on what this broker is told. A shard that cannot
    /// be opened is held as halted. `before` is why it could not be opened last time.
    pub(super) fn open(
        key: ShardKey,
        told: &BrokerShard,
        equipment: Equipment,
        before: Option<Failure>,
    ) -> Arc<Self> {
        let blocking = equipment.disks.is_blocking();
        let opened = off_the_runtime(blocking, || open_replica(&key, &equipment, before));
        let (replica, failure) = match opened {
            Ok(replica) => (Some(replica), None),
            Err(failure) => (None, Some(failure)),
        };
        let status = ShardStatus {
            role: told.role,
            assignment: Arc::new(told.assignment.clone()),
            phase: if replica.is_some() { Phase::Opening } else { Phase::Halted },
            committed: 0,
            log_end: replica.as_ref().map_or(0, |r| r.position().end),
        };
        let opened_ms = replica.as_ref().map_or(0, |r| r.log().newest_ms());
        let core = Core {
            replica,
            publishing: BTreeMap::new(),
            answering: BTreeMap::new(),
            next: 0,
            put_off: PutOff::default(),
            wake_at: None,
            armed: None,
        };
        let shard = Arc::new(Self {
            key,
            equipment,
            core: Mutex::new(core),
            failure,
            opened_ms,
            status: watch::Sender::new(status),
            durable: watch::Sender::new(0),
            timer: Notify::new(),
            figures: Figures::default(),
        });
        if shard.failure.is_none() {
            tokio::spawn(run_timer(shard.clone()));
        }
        shard
    }

    /// Whether it was opened, cannot go on, and may begin anew as this broker is told.
    pub(super) fn may_begin_anew(&self, told: &BrokerShard) -> bool {
        let may = |replica: &Replica| {
            replica.halted().is_some()
                && may_make_way(told, replica.assignment(), replica.promised())
        };
        self.look(may) == Some(true)
    }

    /// Why it could not be opened, if so.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Holds a shard whose generation this broker declines, as if it could not be opened.
    pub(super) fn decline(&self) {
        self.close();
        self.status.send_modify(|status| status.phase = Phase::Halted);
    }

    /// Reports why it does not act, if so: it could not be opened, or its generation is declined.
    pub(super) fn report_failure(&self, assignment: &Assignment, declined: bool) {
        let halted = self.failure.as_ref().map(|failure| failure.error.clone());
        if halted.is_none() && !declined {
            return;
        }
        self.tell(ShardReport {
            broker: self.equipment.me.clone(),
            shard: self.key.clone(),
            generation: assignment.generation,
            phase: Some(if halted.is_some() { Phase::Halted } else { Phase::Opening }),
            caught_up: false,
            lag_records: None,
            drained: false,
            halted,
            log_end: None,
            declined,
        });
    }

    fn tell(&self, report: ShardReport) {
        // Without a listener the agent is stopping.
        let _ = self.equipment.reports.send(report);
    }

    /// Acts on what this broker is told. `false` if the shard should be opened again: it could not be
    /// before, or it has halted and is to lead a generation that it did not accept.
    pub(super) fn apply(self: &Arc<Self>, told: &BrokerShard) -> bool {
        if lock(&self.core).replica.is_none() {
            return false;
        }
        self.drive(Event::Assigned(told.assignment.clone()));
        let held = |replica: &Replica| replica.assignment().map_or(0, |held| held.generation);
        let generation = told.assignment.generation;
        let stays = |replica: &Replica| replica.halted().is_some() && held(replica) < generation;
        told.role != Role::Leader || self.look(stays) == Some(false)
    }

    /// Whether it was opened and cannot go on.
    pub(super) fn has_halted(&self) -> bool {
        self.look(|replica| replica.halted().is_some()) == Some(true)
    }

    /// Whether it was opened and declined before to lead the generation that this broker is told.
    pub(super) fn has_declined(&self, told: &BrokerShard) -> bool {
        let generation = told.assignment.generation;
        told.role == Role::Leader && self.look(Replica::declined) == Some(generation)
    }

    /// Puts records in; the answer comes when they are committed.
    pub(super) fn propose(
        self: &Arc<Self>,
        timestamp_ms: i64,
        drafts: Vec<evenkeel_shard_log::Draft>,
    ) -> oneshot::Receiver<Result<Published, Refusal>> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut core = lock(&self.core);
            core.next += 1;
            let id = core.next;
            core.publishing.insert(id, sender);
            id
        };
        self.drive(Event::Propose { id, timestamp_ms, drafts });
        answer
    }

    /// Asks the replica on behalf of another one.
    pub(super) fn asked(self: &Arc<Self>, request: Request) -> oneshot::Receiver<Answer> {
        let (sender, answer) = oneshot::channel();
        let reply = {
            let mut core = lock(&self.core);
            core.next += 1;
            let reply = core.next;
            if core.replica.is_some() {
                core.answering.insert(reply, sender);
            }
            reply
        };
        self.drive(Event::Asked { reply, request });
        answer
    }

    /// Hands the replica one event and carries out what it wants.
    pub(super) fn drive(self: &Arc<Self>, event: Event) {
        let stores = matches!(
            event,
            Event::Assigned(_) | Event::Asked { request: Request::Promise { .. }, .. }
        );
        let blocking = self.equipment.disks.is_blocking() && stores;
        off_the_runtime(blocking, || self.drive_here(event));
    }

    pub(super) fn drive_here(self: &Arc<Self>, event: Event) {
        let mut core = lock(&self.core);
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let now = self.now();
            let Some(replica) = core.replica.as_mut() else { break };
            let output = replica.handle(now, event);
            core.wake_at = output.wake_at;
            for action in output.actions {
                if let Action::Sync(job) = action {
                    events.extend(sync(self, &mut core.put_off, job));
                } else {
                    self.act(&mut core, action);
                }
            }
        }
        self.publish_status(&core);
        let sooner = core.wake_at.is_some_and(|at| core.armed.is_none_or(|armed| at < armed));
        if sooner {
            core.armed = core.wake_at;
            self.timer.notify_one();
        }
    }

    fn now(&self) -> u64 {
        let passed = Instant::now().duration_since(self.equipment.started).as_millis();
        u64::try_from(passed).unwrap_or(u64::MAX)
    }

    fn act(self: &Arc<Self>, core: &mut Core, action: Action) {
        match action {
            Action::Send { to, id, request } => {
                let shard = Arc::downgrade(self);
                let (peers, key) = (self.equipment.peers.clone(), self.key.clone());
                tokio::spawn(async move {
                    let answer = peers.ask(&key, &to, request).await;
                    if let Some(shard) = shard.upgrade() {
                        shard.drive(Event::Answered { from: to, id, answer });
                    }
                });
            }
            Action::Reply { reply, answer } => {
                if let Some(asker) = core.answering.remove(&reply) {
                    // An asker that went away wants no answer.
                    let _ = asker.send(answer);
                }
            }
            Action::Committed { id, offsets } => {
                let generation = core.replica.as_ref().map_or(0, |r| r.promised().generation);
                if let Some(publisher) = core.publishing.remove(&id) {
                    let _ = publisher.send(Ok(Published { offsets, generation }));
                }
            }
            Action::Refused { id, refusal } => {
                if let Some(publisher) = core.publishing.remove(&id) {
                    let _ = publisher.send(Err(refusal));
                }
            }
            Action::Report(report) => self.tell(report),
            Action::Note(note) if note.starts_with("halted") => {
                tracing::error!(shard = %self.key, "{note}");
            }
            Action::Note(note) => tracing::info!(shard = %self.key, "{note}"),
            Action::Sync(_) => {}
        }
    }

    fn publish_status(&self, core: &Core) {
        let Some(replica) = &core.replica else { return };
        let (Some(role), Some(phase), Some(held)) =
            (replica.role(), replica.phase(), replica.assignment())
        else {
            return;
        };
        let (committed, log_end) = (replica.committed(), replica.position().end);
        self.status.send_if_modified(|status| {
            let same = status.assignment.generation == held.generation;
            let changed = !same
                || (status.role, status.phase, status.committed, status.log_end)
                    != (role, phase, committed, log_end);
            if !same {
                status.assignment = Arc::new(held.clone());
            }
            (status.role, status.phase, status.committed, status.log_end) =
                (role, phase, committed, log_end);
            changed
        });
        let durable = replica.log().synced_end();
        self.durable.send_if_modified(|known| std::mem::replace(known, durable) != durable);
    }

    /// Where the replica stands, now and on every change.
    pub(super) fn watch(&self) -> watch::Receiver<ShardStatus> {
        self.status.subscribe()
    }

    /// The durable end, now and on every change.
    pub(super) fn watch_durable(&self) -> watch::Receiver<u64> {
        self.durable.subscribe()
    }

    /// Looks at the replica; `None` if it could not be opened or was closed.
    pub(super) fn look<T>(&self, at: impl FnOnce(&Replica) -> T) -> Option<T> {
        lock(&self.core).replica.as_ref().map(at)
    }

    /// Changes the replica past its events, as copies do.
    pub(super) fn change<T>(
        self: &Arc<Self>,
        change: impl FnOnce(u64, &mut Replica) -> T,
    ) -> Option<T> {
        let now = self.now();
        let changed = lock(&self.core).replica.as_mut().map(|replica| change(now, replica));
        self.drive(Event::Tick);
        changed
    }

    /// Stops at once. Whoever waits learns that the outcome is not known.
    pub(super) fn close(&self) {
        let mut core = lock(&self.core);
        let replica = core.replica.take();
        core.publishing.clear();
        core.answering.clear();
        core.wake_at = None;
        let put_off = std::mem::take(&mut core.put_off);
        drop(core);
        self.timer.notify_one();
        sync_at_close(self, put_off, replica.and_then(|mut replica| replica.begin_sync()));
    }

    pub(super) fn sync_policy(&self) -> SyncPolicy {
        self.equipment.syncs
    }

    /// Whether the disk may make its caller wait.
    pub(super) fn is_blocking(&self) -> bool {
        self.equipment.disks.is_blocking()
    }

    /// Access to the writes put off.
    pub(super) fn put_off<T>(&self, access: impl FnOnce(&mut PutOff) -> T) -> T {
        access(&mut lock(&self.core).put_off)
    }
}

/// Ticks when the replica asked to be woken, until the shard is closed.
async fn run_timer(shard: Arc<Shard>) {
    loop {
        let wake_at = {
            let mut core = lock(&shard.core);
            if core.replica.is_none() {
                return;
            }
            core.armed = core.wake_at;
            core.wake_at
        };
        let due = wake_at.map(|at| shard.equipment.started + Duration::from_millis(at));
        tokio::select! {
            biased;
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                shard.drive(Event::Tick);
            }
            () = shard.timer.notified() => {}
        }
    }
}
