//! Every name of a document kept once, however often it is mentioned.

use std::collections::BTreeSet;

use super::resolve::{BrokerDocument, MarkerDocument};
use crate::{Assignment, BrokerId, LoadReport, ShardKey, StreamKey};

/// The names met so far.
#[derive(Default)]
pub(super) struct Names {
    brokers: BTreeSet<BrokerId>,
    streams: BTreeSet<StreamKey>,
    /// Shards mostly come stream by stream.
    latest: Option<StreamKey>,
}

impl Names {
    pub(super) fn broker(&mut self, id: &mut BrokerId) {
        match self.brokers.get(id) {
            Some(known) => *id = known.clone(),
            None => drop(self.brokers.insert(id.clone())),
        }
    }

    pub(super) fn brokers<'a>(&mut self, ids: impl IntoIterator<Item = &'a mut BrokerId>) {
        ids.into_iter().for_each(|id| self.broker(id));
    }

    pub(super) fn stream(&mut self, key: &mut StreamKey) {
        if let Some(latest) = self.latest.as_ref().filter(|l| *l == key) {
            *key = latest.clone();
            return;
        }
        match self.streams.get(key) {
            Some(known) => *key = known.clone(),
            None => drop(self.streams.insert(key.clone())),
        }
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
