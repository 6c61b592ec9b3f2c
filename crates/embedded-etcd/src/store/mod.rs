//! The state of the server: keys with their history, leases, watchers. One lock, no awaits.

mod compare;
mod hub;
mod lease;
mod range;
mod txn;
mod write;

use std::collections::{BTreeMap, VecDeque};

use etcd_client::proto::{PbEvent, PbKeyValue, PbResponseHeader};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::Status;

use crate::faults;
use hub::Hub;
pub(crate) use hub::{Inbox, Notices, WatchError, Watcher};
use lease::Leases;

/// One stored key, for tests and the simulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// Revision of its creation.
    pub create_revision: i64,
    /// Revision of its last change.
    pub mod_revision: i64,
    /// Its lease, 0 for none.
    pub lease: i64,
}

/// One change of one key, as an observer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The revision that made it; changes of one transaction share it.
    pub revision: i64,
    /// The key.
    pub key: String,
    /// Its new value; none if it was deleted.
    pub value: Option<Vec<u8>>,
}

/// A key's value at a revision; none where it was deleted.
type Version = (i64, Option<PbKeyValue>);

#[derive(Debug)]
pub(crate) struct Store {
    cluster_id: u64,
    revision: i64,
    compacted: i64,
    current: BTreeMap<Vec<u8>, PbKeyValue>,
    history: BTreeMap<Vec<u8>, Vec<Version>>,
    /// Every revision since the compaction, for watches that start in the past.
    log: VecDeque<(i64, Vec<PbEvent>)>,
    leases: Leases,
    pub(crate) hub: Hub,
    observers: Vec<UnboundedSender<Vec<Change>>>,
}

/// Events of the revision being made.
#[derive(Debug, Default)]
struct Draft {
    events: Vec<PbEvent>,
}

impl Store {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            cluster_id: mix(seed),
            revision: 1,
            compacted: 0,
            current: BTreeMap::new(),
            history: BTreeMap::new(),
            log: VecDeque::new(),
            leases: Leases::new(mix(seed ^ 0x6c65_6173_6573)),
            hub: Hub::default(),
            observers: Vec::new(),
        }
    }

    /// Every revision from now on, whatever happens to watches.
    pub(crate) fn observe(&mut self) -> UnboundedReceiver<Vec<Change>> {
        let (sender, receiver) = unbounded_channel();
        self.observers.push(sender);
        receiver
    }

    fn tell_observers(&mut self, events: &[PbEvent]) {
        if self.observers.is_empty() {
            return;
        }
        let changes: Vec<Change> = events
            .iter()
            .filter_map(|event| {
                let kv = event.kv.as_ref()?;
                Some(Change {
                    revision: self.revision,
                    key: String::from_utf8_lossy(&kv.key).into_owned(),
                    value: (event.r#type == 0).then(|| kv.value.clone()),
                })
            })
            .collect();
        self.observers.retain(|observer| observer.send(changes.clone()).is_ok());
    }

    pub(crate) fn header(&self) -> PbResponseHeader {
        PbResponseHeader {
            cluster_id: self.cluster_id,
            member_id: self.member_id(),
            revision: self.revision,
            raft_term: 1,
        }
    }

    pub(crate) fn member_id(&self) -> u64 {
        mix(self.cluster_id)
    }

    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    /// Rough size of what is stored, bytes.
    pub(crate) fn size(&self) -> i64 {
        let bytes: usize = self.current.iter().map(|(k, v)| k.len() + v.value.len() + 64).sum();
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }

    pub(crate) fn inspect(&self, prefix: &str) -> Vec<Stored> {
        self.current
            .range(prefix.as_bytes().to_vec()..)
            .take_while(|(key, _)| key.starts_with(prefix.as_bytes()))
            .map(|(key, kv)| Stored {
                key: String::from_utf8_lossy(key).into_owned(),
                value: kv.value.clone(),
                create_revision: kv.create_revision,
                mod_revision: kv.mod_revision,
                lease: kv.lease,
            })
            .collect()
    }

    /// Forgets everything before `revision` that is not current at it.
    pub(crate) fn compact(&mut self, revision: i64) -> Result<(), Status> {
        if revision <= self.compacted {
            return Err(faults::compacted());
        }
        if revision > self.revision {
            return Err(faults::future_revision());
        }
        self.compacted = revision;
        // A watch that starts at the compact revision itself still works.
        while self.log.front().is_some_and(|(r, _)| *r < revision) {
            self.log.pop_front();
        }
        self.history.retain(|_, versions| {
            let kept = versions.iter().rposition(|(r, _)| *r <= revision).unwrap_or(0);
            versions.drain(..kept);
            !(versions.len() == 1 && versions[0].1.is_none() && versions[0].0 <= revision)
        });
        Ok(())
    }

    /// Makes the draft the next revision and tells the watchers.
    fn commit(&mut self, draft: Draft) {
        if draft.events.is_empty() {
            return;
        }
        self.revision += 1;
        self.tell_observers(&draft.events);
        self.hub.publish(&self.header(), self.revision, &draft.events);
        self.log.push_back((self.revision, draft.events));
    }

    /// The next life of the same data: streams end, leases get their full time again.
    pub(crate) fn restart(&mut self) {
        self.hub.close_all();
        self.leases.renew_all();
    }
}

/// SplitMix64's finaliser: turns seeds into ids that look random.
fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
