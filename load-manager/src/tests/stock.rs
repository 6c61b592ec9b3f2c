//! Stored entries without a store.

use std::collections::BTreeMap;

use evenkeel_coordination::{Entry, Mark, Revision};
use evenkeel_model::keys::Keys;
use evenkeel_model::{BrokerId, Lifecycle, NodeRecord};
use serde_json::{Value, json};

use crate::records::{Records, Source};

/// Entries, each written at a revision of its own.
#[derive(Default)]
pub(crate) struct Stock {
    entries: BTreeMap<String, Entry>,
    revision: Revision,
    /// Every key written or deleted, in order.
    written: Vec<String>,
}

impl Stock {
    pub(crate) fn put(&mut self, key: &str, value: &Value) {
        self.put_bytes(key, value.to_string().into_bytes());
    }

    pub(crate) fn put_bytes(&mut self, key: &str, value: Vec<u8>) {
        self.revision += 1;
        let revision = self.revision;
        self.written.push(key.to_owned());
        let created = self.entries.get(key).map_or(revision, |e| e.create_revision);
        let entry = Entry {
            key: key.to_owned(),
            value,
            create_revision: created,
            mod_revision: revision,
            lease: None,
        };
        self.entries.insert(key.to_owned(), entry);
    }

    pub(crate) fn delete(&mut self, key: &str) {
        self.revision += 1;
        self.written.push(key.to_owned());
        self.entries.remove(key);
    }

    pub(crate) fn records(&self) -> Records {
        let mut records = Records::new(Keys::default());
        records.refresh(self);
        records
    }

    pub(crate) fn register(&mut self, broker: &str, incarnation: u64) {
        self.put(&format!("/cluster/register/{broker}"), &registration(broker, incarnation, false));
    }

    pub(crate) fn node(&mut self, node: &NodeRecord) {
        self.put_bytes(&format!("/cluster/nodes/{}", node.broker), evenkeel_model::encode(node));
    }
}

impl Source for Stock {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    fn mark(&self) -> Mark {
        self.written.len() as Mark
    }

    fn changed_since(&self, mark: Mark) -> Option<Vec<&str>> {
        // Every other time it cannot tell, so that both ways are taken.
        let keys = self.written.get(mark as usize..)?;
        (self.revision % 2 == 0).then(|| keys.iter().map(String::as_str).collect())
    }

    fn under<'a>(&'a self, prefix: &'a str) -> Box<dyn Iterator<Item = &'a Entry> + 'a> {
        Box::new(self.entries.values().filter(move |e| e.key.starts_with(prefix)))
    }
}

pub(crate) fn registration(broker: &str, incarnation: u64, stopping: bool) -> Value {
    json!({
        "broker": broker, "address": format!("{broker}:7000"), "incarnation": incarnation,
        "zone": "z1", "stopping": stopping,
    })
}

pub(crate) fn node(broker: &str, lifecycle: Lifecycle, incarnation: u64) -> NodeRecord {
    NodeRecord {
        v: 1,
        broker: id(broker),
        lifecycle,
        since_ms: 1000,
        incarnation,
        first_registered_ms: 1000,
        last_seen_ms: None,
        zone: Some("z1".to_owned()),
        drain_asked: false,
    }
}

pub(crate) fn id(broker: &str) -> BrokerId {
    broker.parse().unwrap()
}
