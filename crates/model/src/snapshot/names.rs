//! Every name of a document kept once, however often it is mentioned.

use std::collections::BTreeMap;

use super::resolve::{BrokerDocument, MarkerDocument};
use crate::hash::hash64;
use crate::{Assignment, BrokerId, LoadReport, ShardKey, StreamKey};

/// The names met so far, by hash.
#[derive(Default)]
pub(super) struct Names {
    brokers: BTreeMap<u64, Vec<BrokerId>>,
    streams: BTreeMap<u64, Vec<StreamKey>>,
    /// Shards mostly come stream by stream.
    latest: Option<StreamKey>,
}

/// Puts the name that is kept in place of an equal one.
fn keep<N: Clone + PartialEq>(kept: &mut BTreeMap<u64, Vec<N>>, hash: u64, name: &mut N) {
    let alike = kept.entry(hash).or_default();
    match alike.iter().find(|known| *known == name) {
        Some(known) => *name = known.clone(),
        None => alike.push(name.clone()),
    }
}

impl Names {
    pub(super) fn broker(&mut self, id: &mut BrokerId) {
        keep(&mut self.brokers, hash64(id.as_str()), id);
    }

    pub(super) fn brokers<'a>(&mut self, ids: impl IntoIterator<Item = &'a mut BrokerId>) {
        ids.into_iter().for_each(|id| self.broker(id));
    }

    pub(super) fn stream(&mut self, key: &mut StreamKey) {
        if let Some(latest) = self.latest.as_ref().filter(|l| *l == key) {
            *key = latest.clone();
            return;
        }
        let hash = hash64(&key.name) ^ hash64(&key.namespace).rotate_left(1);
        keep(&mut self.streams, hash, key);
        self.latest = Some(key.clone());
    }

    pub(super) fn shard(&mut self, key: &mut ShardKey) {
        self.stream(&mut key.stream);
    }

    pub(super) fn assignment(&mut self, a: &mut Assignment) {
        self.shard(&mut a.shard);
        self.brokers(&mut a.leader);
        self.brokers(&mut a.followers);
        self.brokers(&mut a.successor);
        self.brokers(&mut a.joining);
        self.brokers(&mut a.leaving);
        a.followers.shrink_to_fit();
    }

    pub(super) fn marker(&mut self, m: &mut MarkerDocument) {
        self.shard(&mut m.shard);
        self.brokers(m.from_broker.iter_mut().chain(&mut m.to_broker));
    }

    pub(super) fn broker_document(&mut self, b: &mut BrokerDocument) {
        self.broker(&mut b.id);
        b.load.iter_mut().for_each(|report| self.load(report));
    }

    fn load(&mut self, report: &mut LoadReport) {
        report.shards.iter_mut().for_each(|row| self.shard(&mut row.shard));
        report.shards.shrink_to_fit();
    }
}
