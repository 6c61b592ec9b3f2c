//! Who leads which shard, as far as the client knows.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use evenkeel_model::{Generation, ShardKey, StreamKey};
use evenkeel_proto::data::ShardRoute;
use tokio::time::Instant;

/// Where a shard is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The shard.
    pub shard: ShardKey,
    /// The broker that leads it, if any is known.
    pub leader: Option<String>,
    /// That broker's `host:port`.
    pub address: Option<String>,
    /// The generation that the route is of.
    pub generation: Generation,
}

/// Routes by stream, the newest generation of each.
pub(crate) struct Routes {
    tables: Mutex<BTreeMap<StreamKey, Table>>,
}

struct Table {
    shards: BTreeMap<u32, Route>,
    read_at: Instant,
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self { tables: Mutex::new(BTreeMap::new()) }
    }

    fn tables(&self) -> std::sync::MutexGuard<'_, BTreeMap<StreamKey, Table>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the stream's routes were last read.
    pub(crate) fn read_at(&self, stream: &StreamKey) -> Option<Instant> {
        self.tables().get(stream).map(|t| t.read_at)
    }

    pub(crate) fn get(&self, shard: &ShardKey) -> Option<Route> {
        self.tables().get(&shard.stream)?.shards.get(&shard.number).cloned()
    }

    pub(crate) fn all(&self, stream: &StreamKey) -> Vec<Route> {
        self.tables().get(stream).map(|t| t.shards.values().cloned().collect()).unwrap_or_default()
    }

    /// Lays a broker's answer over what is known. Brokers learn at different times, so an older
    /// generation never replaces a newer one.
    pub(crate) fn merge(&self, stream: &StreamKey, routes: Vec<Route>) {
        let mut tables = self.tables();
        let table = tables
            .entry(stream.clone())
            .or_insert_with(|| Table { shards: BTreeMap::new(), read_at: Instant::now() });
        table.read_at = Instant::now();
        for route in routes {
            let number = route.shard.number;
            match table.shards.get(&number) {
                Some(known) if known.generation > route.generation => {}
                _ => drop(table.shards.insert(number, route)),
            }
        }
    }

    /// A broker that sent a publish on told who leads. The next one goes there, if the address is
    /// known from another shard, or again to `via`.
    pub(crate) fn note_leader(
        &self,
        shard: &ShardKey,
        leader: &str,
        generation: Generation,
        via: &str,
    ) {
        let mut tables = self.tables();
        let Some(table) = tables.get_mut(&shard.stream) else { return };
        let newer = table.shards.get(&shard.number).is_none_or(|known| {
            known.generation <= generation && known.leader.as_deref() != Some(leader)
        });
        if !newer {
            return;
        }
        let known = table.shards.values().find(|r| r.leader.as_deref() == Some(leader));
        let address = known.and_then(|r| r.address.clone()).unwrap_or_else(|| via.to_owned());
        let (leader, address) = (Some(leader.to_owned()), Some(address));
        let route = Route { shard: shard.clone(), leader, address, generation };
        table.shards.insert(shard.number, route);
    }
}

/// Reads a route of a broker's answer; none if its shard is not of `stream`.
pub(crate) fn read(stream: &StreamKey, route: ShardRoute) -> Option<Route> {
    let shard: ShardKey = route.shard.parse().ok()?;
    (shard.stream == *stream).then_some(Route {
        shard,
        leader: route.leader.filter(|l| !l.is_empty()),
        address: route.address.filter(|a| !a.is_empty()),
        generation: route.generation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(number: u32, address: &str, generation: u64) -> Route {
        Route {
            shard: format!("stream/d/s/{number}").parse().unwrap(),
            leader: Some("b".into()),
            address: Some(address.into()),
            generation,
        }
    }

    #[tokio::test]
    async fn an_older_generation_never_replaces_a_newer_one() {
        let stream: StreamKey = "stream/d/s".parse().unwrap();
        let routes = Routes::new();
        routes.merge(&stream, vec![route(0, "new:1", 5), route(1, "a:1", 1)]);
        routes.merge(&stream, vec![route(0, "old:1", 4), route(1, "b:1", 1)]);
        let addresses: Vec<_> = routes.all(&stream).into_iter().filter_map(|r| r.address).collect();
        assert_eq!(addresses, ["new:1", "b:1"]);
    }

    #[tokio::test]
    async fn a_leader_told_on_the_way_is_taken_up_with_its_address_or_the_way() {
        let stream: StreamKey = "stream/d/s".parse().unwrap();
        let routes = Routes::new();
        let mut other = route(1, "c:1", 1);
        other.leader = Some("c".into());
        routes.merge(&stream, vec![route(0, "b:1", 5), other]);
        let address = |n| routes.get(&stream.shard(n)).and_then(|r| r.address).unwrap();
        routes.note_leader(&stream.shard(0), "c", 4, "via:1");
        assert_eq!(address(0), "b:1");
        routes.note_leader(&stream.shard(0), "c", 6, "via:1");
        assert_eq!(address(0), "c:1");
        routes.note_leader(&stream.shard(0), "d", 7, "via:1");
        assert_eq!(address(0), "via:1");
    }
}
