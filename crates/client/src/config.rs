//! Settings of a client.

use std::time::Duration;

/// How a client connects, waits and retries.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// `host:port` of brokers to begin with; any that answers will do.
    pub bootstrap: Vec<String>,
    /// One attempt waits this long for an answer. Brokers hold a publish for 2 s while its shard
    /// changes hands, so a shorter time gives up on requests that would succeed.
    pub attempt_timeout: Duration,
    /// A call is given up when it made no headway for this long.
    pub patience: Duration,
    /// First wait before a retry; doubles up to `backoff_max`, and is halved at random.
    pub backoff_base: Duration,
    /// Longest wait before a retry, unless the broker asks for more.
    pub backoff_max: Duration,
    /// Publishes in flight at once over all producers of this client; more of them wait.
    pub max_in_flight: usize,
    /// Seed of the jitter of retries.
    pub seed: u64,
}

impl ClientConfig {
    /// Defaults for these brokers: 5 s an attempt, 30 s of patience, waits of 10 ms to 500 ms,
    /// 256 publishes in flight.
    pub fn new(bootstrap: Vec<String>) -> Self {
        Self {
            bootstrap,
            attempt_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(30),
            backoff_base: Duration::from_millis(10),
            backoff_max: Duration::from_millis(500),
            max_in_flight: 256,
            seed: 0,
        }
    }
}
