//! What clients may ask at once: requests and bytes by fixed limits, and publishes that are being
//! written by one that follows their latency. What is above is refused at once, with a delay.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use evenkeel_proto::refusal::{Reason, refuse_for};
use evenkeel_throttle::{Concurrency, Crowd};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{MissedTickBehavior, interval};
use tonic::Status;

use crate::metrics;

/// So many publishes may be written at once, however slow they are.
const LEAST_WRITING: u64 = 32;

/// Length of the windows that the limit looks at.
const WINDOW: Duration = Duration::from_millis(100);

/// What a refused client should wait: as long as a publish takes now, within these bounds, and up to
/// twice that, so that those refused together do not come back together.
const DELAY_MIN: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(1);

/// One broker's limits. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admission(Arc<Limits>);

#[derive(Debug)]
struct Limits {
    requests: Arc<Semaphore>,
    requests_max: usize,
    kibibytes: Arc<Semaphore>,
    writing: AtomicUsize,
    writing_max: AtomicUsize,
    window: Mutex<Window>,
    shed: AtomicU64,
}

/// Publishes written since the window began.
#[derive(Debug, Default)]
struct Window {
    took: Duration,
    answered: u64,
    most: u64,
    /// Mean of the last window that had any.
    mean: Duration,
}

impl Admission {
    /// Fixed limits; the one on latency is as high until [`Self::follow_latency`] runs.
    pub fn new(requests: usize, bytes: u64) -> Self {
        let requests_max = requests.min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Limits {
            requests: Arc::new(Semaphore::new(requests_max)),
            requests_max,
            kibibytes: Arc::new(Semaphore::new(kibibytes(bytes) as usize)),
            writing: AtomicUsize::new(0),
            writing_max: AtomicUsize::new(requests_max),
            window: Mutex::default(),
            shed: AtomicU64::new(0),
        }))
    }

    /// A request with so many bytes of records comes in.
    pub fn admit(&self, bytes: u64) -> Result<Admitted, Status> {
        let Ok(request) = self.0.requests.clone().try_acquire_owned() else {
            let detail = format!("{} requests are being served already", self.0.requests_max);
            return Err(self.shed("concurrency", detail));
        };
        match self.0.kibibytes.clone().try_acquire_many_owned(kibibytes(bytes)) {
            Ok(bytes) => Ok(Admitted { _request: request, _bytes: bytes }),
            Err(_) => {
                let detail = "as many bytes as may wait to be written already do";
                Err(self.shed("bytes", detail.to_owned()))
            }
        }
    }

    /// A publish is about to be written here. Those that wait for a leader are not: a hand-over
    /// must not look like an overload.
    pub fn write(&self) -> Result<Writing, Status> {
        let limit = self.0.writing_max.load(Ordering::Relaxed);
        let before = self.0.writing.fetch_add(1, Ordering::AcqRel);
        let writing = Writing(self.clone());
        if before >= limit {
            drop(writing);
            let detail = format!("{limit} publishes are being written already");
            return Err(self.shed("latency", detail));
        }
        let mut window = self.window();
        window.most = window.most.max(before as u64 + 1);
        Ok(writing)
    }

    /// Publishes being written now.
    pub fn writing(&self) -> u64 {
        self.0.writing.load(Ordering::Relaxed) as u64
    }

    /// How many may be.
    pub fn writing_max(&self) -> u64 {
        self.0.writing_max.load(Ordering::Relaxed) as u64
    }

    /// Requests refused at once since the last call.
    pub fn take_shed(&self) -> u64 {
        self.0.shed.swap(0, Ordering::Relaxed)
    }

    /// Keeps the limit on publishes where their latency allows it. Runs for ever. A mean latency up
    /// to `calm` refuses nothing.
    pub async fn follow_latency(self, calm: Duration) {
        let most = self.0.requests_max as u64;
        let mut law = Concurrency::new(LEAST_WRITING.min(most), most, calm.as_secs_f64() * 1e3);
        let mut ticks = interval(WINDOW);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.set_writing_max(law.limit());
            ticks.tick().await;
            law.observe(self.take_window());
        }
    }

    fn set_writing_max(&self, limit: u64) {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.0.writing_max.store(limit, Ordering::Relaxed);
        metrics::writing_max(limit);
    }

    fn take_window(&self) -> Crowd {
        let writing = self.writing();
        let mut window = self.window();
        let answered = window.answered;
        let mean = u32::try_from(answered).ok().and_then(|n| window.took.checked_div(n));
        let in_flight = window.most.max(writing);
        *window = Window { mean: mean.unwrap_or(window.mean), ..Window::default() };
        Crowd { mean_ms: mean.map(|mean| mean.as_secs_f64() * 1e3), answered, in_flight }
    }

    fn shed(&self, reason: &'static str, detail: String) -> Status {
        metrics::shed(reason);
        let nth = self.0.shed.fetch_add(1, Ordering::Relaxed);
        let base = self.window().mean.clamp(DELAY_MIN, DELAY_MAX);
        // Multiples of the golden ratio fall evenly between 0 and 1.
        let part = (nth as f64 * 0.618_033_988_75).fract();
        refuse_for(Reason::Overloaded, detail, base.mul_f64(1.0 + part))
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.0.window.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A request's part of the fixed limits, until it is answered.
#[derive(Debug)]
pub struct Admitted {
    _request: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

/// A publish that is being written.
#[derive(Debug)]
pub struct Writing(Admission);

impl Writing {
    /// It was committed after so long.
    pub fn committed(self, took: Duration) {
        let mut window = self.0.window();
        window.took += took;
        window.answered += 1;
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.0.writing.fetch_sub(1, Ordering::AcqRel);
    }
}

fn kibibytes(bytes: u64) -> u32 {
    let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize) as u64;
    u32::try_from(bytes.div_ceil(1024).min(most)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_proto::refusal::retry_delay;
    use tokio::time::{Instant, sleep};

    #[test]
    fn every_limit_refuses_with_a_delay_and_gives_back_what_ended() {
        let limits = Admission::new(2, 8 << 20);
        let one = limits.admit(1).unwrap();
        let refused = limits.admit(8 << 20).unwrap_err();
        assert_eq!(refused.message(), "as many bytes as may wait to be written already do");
        let two = limits.admit(1).unwrap();
        let refused = limits.admit(1).unwrap_err();
        assert_eq!(refused.message(), "2 requests are being served already");
        assert!(retry_delay(&refused).unwrap() >= DELAY_MIN);
        drop((one, two));
        limits.admit(8 << 20).unwrap();
        limits.set_writing_max(1);
        let writing = limits.write().unwrap();
        let refused = limits.write().unwrap_err();
        assert_eq!(Reason::of(&refused).unwrap().0, Reason::Overloaded);
        assert_eq!(limits.writing(), 1);
        writing.committed(Duration::from_millis(1));
        limits.write().unwrap();
        assert_eq!((limits.take_shed(), limits.take_shed()), (3, 0));
    }

    #[test]
    fn those_refused_together_are_not_sent_back_together() {
        let limits = Admission::new(1, 8 << 20);
        let _one = limits.admit(1).unwrap();
        let delays: std::collections::BTreeSet<Duration> =
            (0..100).filter_map(|_| retry_delay(&limits.admit(1).unwrap_err())).collect();
        assert_eq!(delays.len(), 100);
        assert!(delays.first().unwrap() >= &DELAY_MIN && delays.last().unwrap() < &(2 * DELAY_MIN));
    }

    /// 2 000 publishes a second at a disk that writes 1 000, one after the other.
    #[tokio::test(start_paused = true)]
    async fn at_twice_what_the_disk_writes_those_taken_in_are_written_soon() {
        let limits = Admission::new(4096, 256 << 20);
        let following = tokio::spawn(limits.clone().follow_latency(Duration::from_millis(50)));
        let disk = Arc::new(tokio::sync::Mutex::new(()));
        let (done, mut took) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..20_000 {
            sleep(Duration::from_millis(1)).await;
            for _ in 0..2 {
                let Ok(writing) = limits.write() else { continue };
                let (disk, done) = (disk.clone(), done.clone());
                tokio::spawn(async move {
                    let began = Instant::now();
                    let one = disk.lock().await;
                    sleep(Duration::from_millis(1)).await;
                    drop(one);
                    writing.committed(began.elapsed());
                    let _ = done.send(began.elapsed());
                });
            }
        }
        following.abort();
        drop(done);
        let mut all = Vec::new();
        while let Some(one) = took.recv().await {
            all.push(one);
        }
        assert!(all.len() > 9_000, "{} written in 20 s", all.len());
        let late = &all[all.len() / 2..];
        let slowest = late.iter().max().unwrap();
        assert!(*slowest < Duration::from_millis(150), "{slowest:?}");
    }
}
