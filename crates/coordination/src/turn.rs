//! What a driver of a state machine waits for: its next time, and the call under way.

use std::future::{Future, pending};
use std::pin::Pin;

use tokio::time::{Instant, sleep_until};

/// A call under way.
pub(crate) type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Returns at `wake_at`, at once if that has passed, never if there is none.
pub(crate) async fn until(wake_at: Option<Instant>) {
    match wake_at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// Returns when the call has ended, and takes it out; never if there is none.
pub(crate) async fn ended<T>(call: &mut Option<Call<T>>) -> T {
    match call {
        Some(running) => {
            let result = running.await;
            *call = None;
            result
        }
        None => pending().await,
    }
}
