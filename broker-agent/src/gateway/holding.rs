//! Where publishes wait while a shard is between two leaders: so many at most, and so long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::direction::Waiting;
use crate::metrics;

/// How long a publish that another broker sent here by mistake waits for one of the two to learn.
const STRAY_LIMIT: Duration = Duration::from_millis(250);

/// Bounds on waiting publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldLimits {
    /// Longest wait.
    pub time: Duration,
    /// Most publishes that wait at once.
    pub count: usize,
}

/// Counts the publishes that wait. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WaitingRoom {
    limits: HoldLimits,
    waiting: Arc<AtomicUsize>,
}

/// Why a publish cannot wait any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It waited as long as it may.
    TimedOut,
    /// As many as may wait already do.
    Full,
}

impl Ended {
    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::Full => "full",
        }
    }
}

impl WaitingRoom {
    /// An empty one.
    pub fn new(limits: HoldLimits) -> Self {
        Self { limits, waiting: Arc::default() }
    }

    /// How many wait now.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn take_seat(&self) -> Option<Seat> {
        let limit = self.limits.count;
        let taken = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, |waiting| {
            (waiting < limit).then_some(waiting + 1)
        });
        taken.ok().map(|_| Seat(self.waiting.clone()))
    }
}

#[derive(Debug)]
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One publish's wait, over all the reasons it may have in turn: the limit counts from the first.
#[derive(Debug)]
pub struct Hold {
    room: WaitingRoom,
    since: Option<Instant>,
    seat: Option<Seat>,
}

impl Hold {
    /// Not waiting yet.
    pub fn new(room: &WaitingRoom) -> Self {
        Self { room: room.clone(), since: None, seat: None }
    }

    /// Whether it has waited for its shard's leader.
    pub fn has_waited(&self) -> bool {
        self.since.is_some()
    }

    /// Waits for a reason: until when at most, or why not.
    pub fn wait(&mut self, reason: Waiting, now: Instant) -> Result<Instant, Ended> {
        if self.seat.is_none() {
            self.seat = self.room.take_seat();
        }
        if self.seat.is_none() {
            metrics::hold_refused(Ended::Full);
            return Err(Ended::Full);
        }
        if self.since.is_none() {
            metrics::held();
        }
        let since = *self.since.get_or_insert(now);
        let limit = match reason {
            Waiting::Stray => STRAY_LIMIT.min(self.room.limits.time),
            Waiting::Moving | Waiting::Unavailable => self.room.limits.time,
        };
        if now >= since + limit {
            metrics::hold_refused(Ended::TimedOut);
            return Err(Ended::TimedOut);
        }
        Ok(since + limit)
    }

    /// It goes on; it may have to wait again.
    pub fn leave(&mut self) {
        self.seat = None;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            metrics::hold_seconds(since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(count: usize) -> WaitingRoom {
        WaitingRoom::new(HoldLimits { time: Duration::from_secs(2), count })
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_counts_from_the_first_wait() {
        let room = room(1);
        let mut hold = Hold::new(&room);
        let start = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!(hold.wait(Waiting::Moving, start), Ok(start + 2 * second));
        hold.leave();
        assert_eq!(room.waiting(), 0);
        assert_eq!(hold.wait(Waiting::Unavailable, start + second), Ok(start + 2 * second));
        assert_eq!(hold.wait(Waiting::Moving, start + 2 * second), Err(Ended::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stray_waits_only_for_news_to_arrive() {
        let room = room(1);
        let mut hold = Hold::new(&room);
        let start = Instant::now();
        assert_eq!(hold.wait(Waiting::Stray, start), Ok(start + STRAY_LIMIT));
        assert_eq!(hold.wait(Waiting::Stray, start + STRAY_LIMIT), Err(Ended::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_the_limit_wait() {
        let room = room(2);
        let now = Instant::now();
        let mut holds: Vec<Hold> = (0..3).map(|_| Hold::new(&room)).collect();
        assert!(holds[0].wait(Waiting::Moving, now).is_ok());
        assert!(holds[1].wait(Waiting::Moving, now).is_ok());
        assert_eq!(holds[2].wait(Waiting::Moving, now), Err(Ended::Full));
        holds.remove(0);
        assert_eq!(room.waiting(), 1);
        assert!(holds[1].wait(Waiting::Moving, now).is_ok());
    }
}
