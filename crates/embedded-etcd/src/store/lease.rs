//! Leases: grants, renewals, expiry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use super::{Draft, Store, mix};
use crate::faults;
use crate::keys::KeyRange;

/// Shorter times to live are raised to this, seconds, as with etcd's usual election time-out.
const MIN_TTL: i64 = 2;
const MAX_TTL: i64 = 9_000_000_000;

#[derive(Debug)]
struct Lease {
    ttl: i64,
    deadline: Instant,
    keys: BTreeSet<Vec<u8>>,
}

/// What is left of a lease.
#[derive(Debug, Clone)]
pub(crate) struct TimeToLive {
    pub(crate) ttl: i64,
    pub(crate) granted: i64,
    pub(crate) keys: Vec<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct Leases {
    all: BTreeMap<i64, Lease>,
    next: u64,
}

fn lifetime(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

impl Leases {
    pub(super) fn new(seed: u64) -> Self {
        Self { all: BTreeMap::new(), next: seed }
    }

    pub(super) fn exists(&self, id: i64) -> bool {
        self.all.contains_key(&id)
    }

    pub(super) fn attach(&mut self, id: i64, key: &[u8]) {
        if let Some(lease) = self.all.get_mut(&id) {
            lease.keys.insert(key.to_vec());
        }
    }

    pub(super) fn detach(&mut self, id: i64, key: &[u8]) {
        if let Some(lease) = self.all.get_mut(&id) {
            lease.keys.remove(key);
        }
    }

    pub(super) fn renew_all(&mut self) {
        let now = Instant::now();
        for lease in self.all.values_mut() {
            lease.deadline = now + lifetime(lease.ttl);
        }
    }

    fn unused_id(&mut self) -> i64 {
        loop {
            self.next = self.next.wrapping_add(1);
            let id = i64::try_from(mix(self.next) >> 2).unwrap_or(1).max(1);
            if !self.all.contains_key(&id) {
                return id;
            }
        }
    }
}

impl Store {
    /// Grants a lease and answers its id and time to live, seconds.
    pub(crate) fn grant(&mut self, id: i64, ttl: i64) -> Result<(i64, i64), Status> {
        if ttl > MAX_TTL {
            return Err(faults::ttl_too_large());
        }
        if id != 0 && self.leases.exists(id) {
            return Err(faults::lease_exists());
        }
        let id = if id == 0 { self.leases.unused_id() } else { id };
        let ttl = ttl.max(MIN_TTL);
        let deadline = Instant::now() + lifetime(ttl);
        self.leases.all.insert(id, Lease { ttl, deadline, keys: BTreeSet::new() });
        Ok((id, ttl))
    }

    pub(crate) fn revoke(&mut self, id: i64) -> Result<(), Status> {
        let lease = self.leases.all.remove(&id).ok_or_else(faults::lease_not_found)?;
        let mut draft = Draft::default();
        for key in lease.keys {
            self.remove(&KeyRange::new(&key, b""), &mut draft);
        }
        self.commit(draft);
        Ok(())
    }

    /// The renewed time to live, or 0 if the lease is gone or due.
    pub(crate) fn keep_alive(&mut self, id: i64) -> i64 {
        let now = Instant::now();
        match self.leases.all.get_mut(&id) {
            Some(lease) if lease.deadline > now => {
                lease.deadline = now + lifetime(lease.ttl);
                lease.ttl
            }
            _ => 0,
        }
    }

    pub(crate) fn time_to_live(&self, id: i64) -> Option<TimeToLive> {
        let lease = self.leases.all.get(&id)?;
        let left = lease.deadline.saturating_duration_since(Instant::now());
        Some(TimeToLive {
            ttl: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            granted: lease.ttl,
            keys: lease.keys.iter().cloned().collect(),
        })
    }

    pub(crate) fn lease_ids(&self) -> Vec<i64> {
        self.leases.all.keys().copied().collect()
    }

    /// Removes every lease whose time is up, each as a revision of its own.
    pub(crate) fn expire(&mut self) {
        let now = Instant::now();
        let due: Vec<i64> =
            self.leases.all.iter().filter(|(_, l)| l.deadline <= now).map(|(id, _)| *id).collect();
        for id in due {
            // It was there a line ago.
            let _ = self.revoke(id);
        }
    }
}
