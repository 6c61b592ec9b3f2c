//! One family of records: every key under one prefix, decoded.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_coordination::{Entry, Revision};
use serde::de::DeserializeOwned;

use super::Source;

/// A record that is stored under a key which names its subject.
pub(crate) trait Record: DeserializeOwned {
    /// What the key names.
    type Id: Clone + Ord;

    /// Reads the key's rest below the family's prefix.
    fn id(rest: &str) -> Option<Self::Id>;

    /// What the record says its subject is, if that is not what its key says.
    fn contradicts(&self, id: &Self::Id) -> Option<String>;
}

/// A decoded record.
#[derive(Debug, Clone)]
pub(crate) struct Stored<T: Record> {
    /// What the key names.
    pub(crate) id: T::Id,
    /// Revision of the last write of the key.
    pub(crate) revision: Revision,
    /// The record.
    pub(crate) value: T,
}

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// Its key.
    pub(crate) key: String,
    /// What was found and what was expected.
    pub(crate) detail: String,
}

enum Cell<T: Record> {
    Readable(Stored<T>),
    Unreadable { id: Option<T::Id>, revision: Revision, fault: Unreadable },
}

impl<T: Record> Cell<T> {
    fn decode(prefix: &str, key: &str, value: &[u8], revision: Revision) -> Self {
        let fault = |detail: String| Unreadable { key: key.to_owned(), detail };
        let Some(id) = key.strip_prefix(prefix).and_then(T::id) else {
            let fault = fault("the key names nothing that belongs there".to_owned());
            return Self::Unreadable { id: None, revision, fault };
        };
        match evenkeel_model::decode::<T>(key, value) {
            Ok(value) => match value.contradicts(&id) {
                None => Self::Readable(Stored { id, revision, value }),
                Some(detail) => Self::Unreadable { id: Some(id), revision, fault: fault(detail) },
            },
            Err(error) => Self::Unreadable { id: Some(id), revision, fault: fault(error.detail) },
        }
    }

    fn id(&self) -> Option<&T::Id> {
        match self {
            Self::Readable(stored) => Some(&stored.id),
            Self::Unreadable { id, .. } => id.as_ref(),
        }
    }

    fn revision(&self) -> Revision {
        match self {
            Self::Readable(stored) => stored.revision,
            Self::Unreadable { revision, .. } => *revision,
        }
    }
}

/// Every record under one prefix.
pub(crate) struct Family<T: Record> {
    name: &'static str,
    prefix: String,
    cells: BTreeMap<String, Cell<T>>,
    index: BTreeMap<T::Id, String>,
    /// Keys of the records that cannot be read.
    unreadable: BTreeSet<String>,
    /// Subjects whose records changed since somebody last asked.
    changed: BTreeSet<T::Id>,
}

impl<T: Record> Family<T> {
    pub(super) fn new(name: &'static str, prefix: String) -> Self {
        Self {
            name,
            prefix,
            cells: BTreeMap::new(),
            index: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            changed: BTreeSet::new(),
        }
    }

    /// The readable records, in key order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stored<T>> {
        self.cells.values().filter_map(|cell| match cell {
            Cell::Readable(stored) => Some(stored),
            Cell::Unreadable { .. } => None,
        })
    }

    /// One readable record.
    pub(crate) fn get(&self, id: &T::Id) -> Option<&Stored<T>> {
        match self.cells.get(self.index.get(id)?)? {
            Cell::Readable(stored) => Some(stored),
            Cell::Unreadable { .. } => None,
        }
    }

    /// The subjects of all records, readable or not.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &T::Id> {
        self.index.keys()
    }

    /// Whether there is a record of `id`, readable or not.
    pub(crate) fn contains(&self, id: &T::Id) -> bool {
        self.index.contains_key(id)
    }

    /// Revision of the last write of `id`'s record, readable or not; 0 if there is none.
    pub(crate) fn revision_of(&self, id: &T::Id) -> Revision {
        let cell = self.index.get(id).and_then(|key| self.cells.get(key));
        cell.map_or(0, Cell::revision)
    }

    /// Whether the record of `id` is there and cannot be read.
    pub(crate) fn is_unreadable(&self, id: &T::Id) -> bool {
        self.contains(id) && self.get(id).is_none()
    }

    /// The subjects of records that cannot be read.
    pub(crate) fn unreadable_ids(&self) -> impl Iterator<Item = &T::Id> {
        self.unreadable.iter().filter_map(|key| self.cells.get(key)?.id())
    }

    /// The subjects whose records were written or deleted since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<T::Id> {
        std::mem::take(&mut self.changed)
    }

    fn forget_id(&mut self, gone: Cell<T>) {
        if let Some(id) = gone.id() {
            self.index.remove(id);
            self.changed.insert(id.clone());
        }
    }

    /// How many records are readable.
    pub(crate) fn count(&self) -> usize {
        self.cells.len() - self.unreadable.len()
    }
}

/// What is done with every family alike.
pub(super) trait AnyFamily {
    fn name(&self) -> &'static str;
    fn prefix(&self) -> &str;
    /// Takes in everything that is under the prefix; tells whether something changed.
    fn refresh(&mut self, source: &dyn Source) -> bool;
    /// Takes in what is under one key, or that nothing is; tells whether that is new.
    fn take_in(&mut self, key: &str, entry: Option<&Entry>) -> bool;
    fn unreadable(&self) -> Vec<&Unreadable>;
}

impl<T: Record> AnyFamily for Family<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn refresh(&mut self, source: &dyn Source) -> bool {
        let mut changed = false;
        let mut gone: BTreeSet<String> = self.cells.keys().cloned().collect();
        let prefix = self.prefix.clone();
        for entry in source.under(&prefix) {
            gone.remove(&entry.key);
            changed |= self.take_in(&entry.key, Some(entry));
        }
        for key in gone {
            changed |= self.take_in(&key, None);
        }
        changed
    }

    fn take_in(&mut self, key: &str, entry: Option<&Entry>) -> bool {
        let revision = |cell: &Cell<T>| cell.revision();
        if self.cells.get(key).map(revision) == entry.map(|e| e.mod_revision) {
            return false;
        }
        if let Some(gone) = self.cells.remove(key) {
            self.unreadable.remove(key);
            self.forget_id(gone);
        }
        let Some(entry) = entry else { return true };
        let cell: Cell<T> = Cell::decode(&self.prefix, key, &entry.value, entry.mod_revision);
        if let Cell::Unreadable { fault, .. } = &cell {
            tracing::warn!(key = %fault.key, detail = %fault.detail, "record cannot be read and is left out");
            self.unreadable.insert(key.to_owned());
        }
        if let Some(id) = cell.id() {
            self.index.insert(id.clone(), key.to_owned());
            self.changed.insert(id.clone());
        }
        self.cells.insert(key.to_owned(), cell);
        true
    }

    fn unreadable(&self) -> Vec<&Unreadable> {
        let faults = self.unreadable.iter().filter_map(|key| match self.cells.get(key)? {
            Cell::Readable(_) => None,
            Cell::Unreadable { fault, .. } => Some(fault),
        });
        faults.collect()
    }
}
