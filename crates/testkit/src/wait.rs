//! Waiting for a condition instead of sleeping.

use std::time::Duration;

use tokio::time::Instant;

/// How often a condition is looked at. Short, because a test waits half of it on average.
const POLL: Duration = Duration::from_millis(10);

/// Waits until `condition` is true.
///
/// # Panics
/// When `timeout` has passed without it, naming `what`. The condition is looked at once more at
/// the end, so that a slow machine does not fail a test whose condition came true meanwhile.
pub async fn wait_for<C, F>(what: &str, timeout: Duration, mut condition: C)
where
    C: FnMut() -> F,
    F: Future<Output = bool>,
{
    let deadline = Instant::now() + timeout;
    loop {
        let last = Instant::now() >= deadline;
        if condition().await {
            return;
        }
        assert!(!last, "waited {timeout:?} in vain for {what}");
        tokio::time::sleep(POLL).await;
    }
}
