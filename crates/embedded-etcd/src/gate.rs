//! A gate that holds everybody up while it is closed, and then lets them pass in the order in
//! which they came. A watch channel would wake them in a random order, and no run would be like
//! another.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    opened: Notify,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::Release);
        self.opened.notify_waiters();
    }

    pub(crate) async fn pass(&self) {
        loop {
            // Taken before the look, so that an opening in between is not missed.
            let opened = self.opened.notified();
            if !self.closed.load(Ordering::Acquire) {
                return;
            }
            opened.await;
        }
    }
}
