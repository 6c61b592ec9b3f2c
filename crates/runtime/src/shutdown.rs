//! A request to stop, seen by every task of a process.

use std::sync::Arc;

use tokio::sync::watch;

/// Cheap to clone; all clones see one request. A request cannot be taken back.
#[derive(Debug, Clone)]
pub struct Shutdown(Arc<watch::Sender<bool>>);

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    /// Not requested yet; only [`Self::trigger`] requests it.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Requests it on SIGTERM or SIGINT; the second signal ends the process at once with status 1.
    /// Call it inside the runtime.
    pub fn on_signals() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = Self::new();
        let requested = shutdown.clone();
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    biased;
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                if requested.is_requested() {
                    tracing::warn!(signal = name, "second signal, exiting at once");
                    std::process::exit(1);
                }
                tracing::info!(signal = name, "shutdown requested");
                requested.trigger();
            }
        });
        Ok(shutdown)
    }

    /// Requests it.
    pub fn trigger(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was requested.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once it was requested; at once if it already was.
    pub async fn requested(&self) {
        // The sender lives in self, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|requested| *requested).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_clone_sees_the_request_early_and_late() {
        let shutdown = Shutdown::new();
        let waiting = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.requested().await }
        });
        assert!(!shutdown.is_requested());
        shutdown.clone().trigger();
        waiting.await.unwrap();
        shutdown.requested().await;
        assert!(shutdown.is_requested());
    }
}
