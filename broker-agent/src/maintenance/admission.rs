//! The gate that every step of maintenance passes.
//!
//! It splits what the copy controller allows between copies and maintenance, and changes the split
//! at once when a copy begins or ends. **Invariant:** the rates of both together never exceed what
//! is allowed.

use std::sync::{Arc, Mutex, MutexGuard};

use evenkeel_model::CopyClass;
use evenkeel_throttle::{MIN_SHARE, START_SHARE, TRICKLE};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep};

use super::Job;
use super::turns::Turns;
use crate::copies::bucket::Bucket;
use crate::copies::throttle::Buckets;
use crate::metrics;

/// A step is about so many a second, so that a rate is even also within a second.
const STEPS_PER_SECOND: u64 = 50;
const STEP_MIN_BYTES: u64 = 16 << 10;
const STEP_MAX_BYTES: u64 = 256 << 10;

#[derive(Debug)]
struct State {
    /// What copies and maintenance may take together, bytes per second.
    allowed: u64,
    /// That, of the link.
    share: f64,
    /// What maintenance may take of it while no copy runs.
    ramp: u64,
    repairs: usize,
    routine: usize,
    disk_is_high: bool,
    period: Period,
    turns: Turns,
}

/// What happened since the controller last looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Period {
    /// A copy that restores or saves data ran.
    pub repairing: bool,
    /// A copy ran.
    pub copying: bool,
    /// Bytes of maintenance admitted.
    pub bytes: u64,
    /// A job waits now.
    pub waiting: bool,
}

impl State {
    /// What goes first because the disk is full: erasing, and then what leads to it.
    fn urgent(&self) -> Option<Job> {
        let jobs = [Job::Deletion, Job::Compaction];
        jobs.into_iter().find(|job| self.disk_is_high && self.turns.backlog(*job) > 0)
    }

    fn has_work(&self) -> bool {
        Job::ALL.iter().any(|job| self.turns.backlog(*job) > 0) || self.turns.anyone_waits()
    }

    /// Bytes per second of maintenance.
    fn rate(&self) -> u64 {
        let copies_run = self.repairs + self.routine > 0;
        let most = if copies_run { self.allowed / 2 } else { self.allowed };
        let trickle = ((self.allowed as f64 * TRICKLE) as u64).max(1);
        if self.urgent().is_some() {
            most
        } else if self.repairs > 0 {
            trickle
        } else {
            self.ramp.min(most).max(trickle)
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    bucket: Bucket,
    copies: Buckets,
    changed: Notify,
}

/// Admits maintenance beside copies. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admission(Arc<Shared>);

impl Admission {
    /// Both streams together get so many bytes per second, until the controller says otherwise.
    pub fn new(bytes_per_second: u64) -> Self {
        let state = State {
            allowed: bytes_per_second,
            share: START_SHARE,
            ramp: 0,
            repairs: 0,
            routine: 0,
            disk_is_high: false,
            period: Period::default(),
            turns: Turns::default(),
        };
        let bucket = Bucket::new(state.rate());
        let copies = Buckets::new(bytes_per_second);
        let state = Mutex::new(state);
        Self(Arc::new(Shared { state, bucket, copies, changed: Notify::new() }))
    }

    /// What copies take from.
    pub fn copies(&self) -> &Buckets {
        &self.0.copies
    }

    /// Changes something and splits the rates anew.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        let rate = state.rate();
        let reserved = if state.has_work() { rate } else { 0 };
        self.0.bucket.set_rate(rate);
        let left = state.allowed.saturating_sub(reserved);
        self.0.copies.egress.set_rate(left);
        self.0.copies.ingress.set_rate(left);
        drop(state);
        self.0.changed.notify_waiters();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A copy runs here, at either end, for as long as what is returned lives.
    pub fn copying(&self, class: CopyClass) -> Copying {
        let holds_back = class <= CopyClass::Drain;
        self.change(|state| {
            *state.running(holds_back) += 1;
            state.note_copies();
        });
        Copying { admission: self.clone(), holds_back }
    }

    /// Announces work of so many bytes.
    pub fn work(&self, job: Job, bytes: u64) -> Work {
        self.change(|state| state.turns.announce(job, bytes));
        Work { admission: self.clone(), job, left: bytes }
    }

    /// Waits until so many bytes of a job that announces nothing may be done.
    pub async fn acquire(&self, job: Job, bytes: u64) {
        self.work(job, 0).acquire(bytes).await;
    }

    /// How much to ask for at once.
    pub fn step_bytes(&self) -> u64 {
        (self.rate() / STEPS_PER_SECOND).clamp(STEP_MIN_BYTES, STEP_MAX_BYTES)
    }

    /// What maintenance may take now, bytes per second.
    pub fn rate(&self) -> u64 {
        self.lock().rate()
    }

    /// Bytes of all jobs that are still to be done.
    pub fn backlog(&self) -> u64 {
        let state = self.lock();
        Job::ALL.iter().map(|job| state.turns.backlog(*job)).sum()
    }

    /// Bytes of a job that are still to be done, and that were admitted so far.
    pub fn figures(&self, job: Job) -> (u64, u64) {
        let state = self.lock();
        (state.turns.backlog(job), state.turns.done(job))
    }

    /// Whether the disk is above its high-water mark.
    pub fn is_disk_high(&self) -> bool {
        self.lock().disk_is_high
    }

    /// Whether the disk is above its high-water mark: then erasing takes all that is allowed.
    pub fn set_disk_high(&self, is_high: bool) {
        if self.lock().disk_is_high != is_high {
            self.change(|state| state.disk_is_high = is_high);
        }
    }

    /// What happened since this was last asked.
    pub fn period(&self) -> Period {
        let mut state = self.lock();
        let waiting = state.turns.anyone_waits();
        let period = std::mem::take(&mut state.period);
        state.note_copies();
        Period { waiting, ..period }
    }

    /// The controller's word: what both may take, and maintenance of it.
    pub fn set_rates(&self, allowed: u64, ramp: u64) {
        self.change(|state| (state.allowed, state.ramp) = (allowed, ramp));
        metrics::maintenance_rate(self.rate());
        for job in Job::ALL {
            metrics::maintenance_backlog(job, self.figures(job).0);
        }
    }

    /// The controller's word: the share of the link behind the rates.
    pub fn set_share(&self, share: f64) {
        self.lock().share = share.clamp(MIN_SHARE, 1.0);
    }

    /// Rests after reading took so long, so that comparing copies takes no more of the disk's time
    /// than copying may of the link.
    pub async fn rest_after(&self, reading: Duration) {
        let share = self.lock().share;
        sleep(reading.mul_f64((1.0 - share) / share)).await;
    }

    /// Waits for the ticket's turn and for the bytes.
    async fn wait(&self, ticket: &Ticket<'_>, bytes: u64) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let next = {
                let state = self.lock();
                state.turns.next(state.urgent())
            };
            if next == Some(ticket.number) {
                tokio::select! {
                    biased;
                    () = self.0.bucket.take(bytes) => return,
                    () = changed => {}
                }
            } else {
                changed.await;
            }
        }
    }
}

impl State {
    fn running(&mut self, holds_back: bool) -> &mut usize {
        if holds_back { &mut self.repairs } else { &mut self.routine }
    }

    fn note_copies(&mut self) {
        self.period.repairing |= self.repairs > 0;
        self.period.copying |= self.repairs + self.routine > 0;
    }
}

/// Without a byte for so long a copy holds nothing back: it may wait for others for hours.
const PRESENT: Duration = Duration::from_secs(10);

/// Whether a copy that exists here runs: it has moved bytes lately.
#[derive(Debug)]
pub struct Presence {
    admission: Admission,
    class: CopyClass,
    running: Option<Copying>,
    until: Instant,
}

impl Presence {
    /// Of a copy that begins.
    pub fn new(admission: &Admission, class: CopyClass) -> Self {
        let running = Some(admission.copying(class));
        let until = Instant::now() + PRESENT;
        Self { admission: admission.clone(), class, running, until }
    }

    /// It moves bytes.
    pub fn moves(&mut self) {
        self.until = Instant::now() + PRESENT;
        if self.running.is_none() {
            self.running = Some(self.admission.copying(self.class));
        }
    }

    /// It is for something else now.
    pub fn set_class(&mut self, class: CopyClass) {
        self.class = class;
        if self.running.is_some() {
            self.running = Some(self.admission.copying(class));
        }
    }

    /// Ends when it has not moved a byte for long; never if that is so already.
    pub async fn stands_still(&mut self) {
        if self.running.is_none() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep_until(self.until).await;
        self.running = None;
    }
}

/// A copy that runs here.
#[derive(Debug)]
pub struct Copying {
    admission: Admission,
    holds_back: bool,
}

impl Drop for Copying {
    fn drop(&mut self) {
        let holds_back = self.holds_back;
        self.admission.change(|state| {
            let running = state.running(holds_back);
            *running = running.saturating_sub(1);
            // Until the controller has looked, nothing rises.
            if holds_back {
                state.ramp = 0;
            }
        });
    }
}

/// Announced work. What is left of it when it is dropped counts as given up.
#[derive(Debug)]
pub struct Work {
    admission: Admission,
    job: Job,
    left: u64,
}

impl Work {
    /// Waits until so many bytes may be done. Dropping the future takes nothing.
    pub async fn acquire(&mut self, bytes: u64) {
        let job = self.job;
        let number = self.admission.change(|state| state.turns.join(job));
        let ticket = Ticket { work: self, number };
        ticket.work.admission.wait(&ticket, bytes).await;
        let settled = bytes.min(ticket.work.left);
        ticket.work.admission.change(|state| {
            state.turns.admit(job, number, bytes);
            state.turns.settle(job, settled);
            state.period.bytes += bytes;
        });
        drop(ticket);
        self.left -= settled;
        metrics::maintained(job, bytes);
    }

    /// Changes what is announced and not done.
    pub fn set_left(&mut self, bytes: u64) {
        if bytes == self.left {
            return;
        }
        let (job, left) = (self.job, std::mem::replace(&mut self.left, bytes));
        self.admission.change(|state| {
            state.turns.settle(job, left);
            state.turns.announce(job, bytes);
        });
    }

    /// Bytes announced and not done.
    pub fn left(&self) -> u64 {
        self.left
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let (job, left) = (self.job, self.left);
        self.admission.change(|state| state.turns.settle(job, left));
    }
}

/// A place in the queue, left when it is dropped.
struct Ticket<'a> {
    work: &'a Work,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let (job, number) = (self.work.job, self.number);
        self.work.admission.change(|state| state.turns.leave(job, number));
    }
}
