//! One leader per key, elected by a guarded transaction of our own.
//!
//! etcd's campaign call is not used: when the lease of a waiting campaign dies it can still hand
//! out leadership later, without a key.

mod driver;
mod machine;
#[cfg(test)]
mod machine_tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::{Entry, Session, Store, Token};

/// Who leads, as far as this process knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// This process, by this token.
    Leading(Token),
    /// Another one, or nobody yet.
    Following { leader: Option<Entry> },
    /// Not known: nothing was read yet, or this process has no lease to be elected with.
    Unknown,
}

/// Makes the value of the leader key at the time of the attempt.
pub type LeaderValue = Arc<dyn Fn() -> Vec<u8> + Send + Sync>;

/// Settings of an [`Election`].
#[derive(Clone)]
pub struct ElectionConfig {
    /// Metric label.
    pub name: &'static str,
    /// The leader key.
    pub key: String,
    /// Value of the leader key.
    pub value: LeaderValue,
    /// The leader key is read this often, in case its watch is silent. 2 s.
    pub poll_every: Duration,
    /// A leader that does not call [`Election::progress`] for this long gives its leadership up;
    /// never if none.
    pub progress_timeout: Option<Duration>,
}

impl ElectionConfig {
    /// The defaults, with a value that does not change.
    pub fn new(name: &'static str, key: impl Into<String>, value: Vec<u8>) -> Self {
        Self {
            name,
            key: key.into(),
            value: Arc::new(move || value.clone()),
            poll_every: Duration::from_secs(2),
            progress_timeout: None,
        }
    }

    /// With a value made anew for each attempt.
    #[must_use]
    pub fn with_value(mut self, value: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Self {
        self.value = Arc::new(value);
        self
    }

    /// With a limit on the time without progress.
    #[must_use]
    pub fn with_progress_timeout(mut self, timeout: Duration) -> Self {
        self.progress_timeout = Some(timeout);
        self
    }
}

impl fmt::Debug for ElectionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionConfig")
            .field("name", &self.name)
            .field("key", &self.key)
            .field("poll_every", &self.poll_every)
            .field("progress_timeout", &self.progress_timeout)
            .finish_non_exhaustive()
    }
}

/// Takes part in the election of one key for as long as it exists.
///
/// A leader is one only while its session's lease is provably alive; look at [`Election::token`]
/// right before acting, and put the token in every write, which is what makes it safe.
///
/// Dropping the last clone ends the part it takes without a word: a leader's key goes with its
/// lease. Call [`Election::resign`] to hand over at once.
#[derive(Clone)]
pub struct Election {
    shared: Arc<Shared>,
}

struct Shared {
    session: Session,
    leadership: watch::Receiver<Leadership>,
    progress: Arc<Mutex<Instant>>,
    resign: mpsc::Sender<oneshot::Sender<()>>,
    driver: AbortHandle,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Election {
    /// Starts campaigning whenever the session has a lease; must be called inside a runtime.
    pub fn start(store: Store, session: Session, config: ElectionConfig) -> Self {
        let (leadership_tx, leadership) = watch::channel(Leadership::Unknown);
        let (resign, resign_rx) = mpsc::channel(8);
        let progress = Arc::new(Mutex::new(Instant::now()));
        let driver = driver::Driver::new(
            store,
            session.watch(),
            config,
            driver::Ports {
                leadership: leadership_tx,
                resign: resign_rx,
                progress: progress.clone(),
            },
        );
        let driver = tokio::spawn(driver.run()).abort_handle();
        Self { shared: Arc::new(Shared { session, leadership, progress, resign, driver }) }
    }

    /// Who leads, as it changes.
    pub fn watch(&self) -> watch::Receiver<Leadership> {
        self.shared.leadership.clone()
    }

    /// The token, if this process leads and its lease is provably alive now.
    pub fn token(&self) -> Option<Token> {
        match &*self.shared.leadership.borrow() {
            Leadership::Leading(token) if self.shared.session.is_alive() => Some(token.clone()),
            _ => None,
        }
    }

    /// Whether this process leads and its lease is provably alive now.
    pub fn is_leading(&self) -> bool {
        self.token().is_some()
    }

    /// Waits until this process leads. `None` if it resigned.
    pub async fn elected(&self) -> Option<Token> {
        let mut leadership = self.watch();
        let leading = |now: &Leadership| matches!(now, Leadership::Leading(_));
        match leadership.wait_for(leading).await.as_deref() {
            Ok(Leadership::Leading(token)) => Some(token.clone()),
            _ => None,
        }
    }

    /// The leader's work goes on. Call it once per turn of the work loop, leading or not: a leader
    /// that gave up for want of progress is a candidate again after the next call, or after four
    /// times the limit.
    pub fn progress(&self) {
        *self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Stops taking part for good; a leader publishes the end of its leadership and then deletes
    /// its key, so that another can be elected at once.
    pub async fn resign(&self) {
        let (done_tx, done) = oneshot::channel();
        if self.shared.resign.send(done_tx).await.is_ok() {
            // An error means that the driver has ended, which is what was asked for.
            let _ = done.await;
        }
    }
}
