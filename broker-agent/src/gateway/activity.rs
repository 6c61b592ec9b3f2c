//! Who is connected to the shards that this broker leads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use evenkeel_model::ShardKey;
use tokio::time::Instant;

/// A producer that published nothing for so long is gone.
const PRODUCER_EXPIRY: Duration = Duration::from_secs(60);

/// Most producers that are told apart for one shard.
const PRODUCERS_MAX: usize = 10_000;

/// Clients of one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connected {
    /// Named producers that published within the last minute.
    pub producers: u32,
    /// Open subscriptions.
    pub consumers: u32,
    /// The offset that the slowest of them reads next.
    pub slowest_position: Option<u64>,
}

#[derive(Debug, Default)]
struct Clients {
    producers: BTreeMap<u64, Instant>,
    readers: Vec<Arc<AtomicU64>>,
}

/// Keeps count of clients. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Activity(Arc<Mutex<BTreeMap<ShardKey, Clients>>>);

impl Activity {
    fn clients(&self) -> MutexGuard<'_, BTreeMap<ShardKey, Clients>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A producer published; 0 names none.
    pub fn published(&self, shard: &ShardKey, producer_id: u64) {
        if producer_id == 0 {
            return;
        }
        let mut clients = self.clients();
        let producers = match clients.get_mut(shard) {
            Some(clients) => &mut clients.producers,
            None => &mut clients.entry(shard.clone()).or_default().producers,
        };
        if producers.len() < PRODUCERS_MAX || producers.contains_key(&producer_id) {
            producers.insert(producer_id, Instant::now());
        }
    }

    /// A subscription starts at an offset.
    pub fn subscribed(&self, shard: &ShardKey, offset: u64) -> Reader {
        let position = Arc::new(AtomicU64::new(offset));
        self.clients().entry(shard.clone()).or_default().readers.push(position.clone());
        Reader { activity: self.clone(), shard: shard.clone(), position }
    }

    /// Everybody, by shard.
    pub fn connected(&self) -> BTreeMap<ShardKey, Connected> {
        let now = Instant::now();
        let mut clients = self.clients();
        clients.retain(|_, clients| {
            clients.producers.retain(|_, seen| now - *seen < PRODUCER_EXPIRY);
            !clients.producers.is_empty() || !clients.readers.is_empty()
        });
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        clients
            .iter()
            .map(|(shard, clients)| {
                let positions = clients.readers.iter().map(|r| r.load(Ordering::Relaxed));
                let connected = Connected {
                    producers: count(clients.producers.len()),
                    consumers: count(clients.readers.len()),
                    slowest_position: positions.min(),
                };
                (shard.clone(), connected)
            })
            .collect()
    }
}

/// One open subscription; it ends when this is dropped.
#[derive(Debug)]
pub struct Reader {
    activity: Activity,
    shard: ShardKey,
    position: Arc<AtomicU64>,
}

impl Reader {
    /// The subscription reads there next.
    pub fn at(&self, offset: u64) {
        self.position.store(offset, Ordering::Relaxed);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(clients) = self.activity.clients().get_mut(&self.shard) {
            clients.readers.retain(|reader| !Arc::ptr_eq(reader, &self.position));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clients_are_counted_while_they_are_there() {
        let activity = Activity::default();
        let shard: ShardKey = "stream/d/s/0".parse().unwrap();
        activity.published(&shard, 0);
        assert!(activity.connected().is_empty());
        activity.published(&shard, 7);
        activity.published(&shard, 7);
        activity.published(&shard, 8);
        let (slow, fast) = (activity.subscribed(&shard, 3), activity.subscribed(&shard, 3));
        fast.at(9);
        let connected = activity.connected()[&shard];
        let expected = Connected { producers: 2, consumers: 2, slowest_position: Some(3) };
        assert_eq!(connected, expected);
        drop(slow);
        assert_eq!(activity.connected()[&shard].slowest_position, Some(9));
        drop(fast);
        tokio::time::advance(PRODUCER_EXPIRY).await;
        assert!(activity.connected().is_empty());
    }
}
