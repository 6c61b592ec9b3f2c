//! One family of records: every key under one prefix, decoded.

use std::collections::BTreeMap;

use evenkeel_coordination::Revision;
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
}

impl<T: Record> Family<T> {
    pub(super) fn new(name: &'static str, prefix: String) -> Self {
        Self { name, prefix, cells: BTreeMap::new(), index: BTreeMap::new() }
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
        self.cells.values().filter_map(|cell| match cell {
            Cell::Readable(_) => None,
            Cell::Unreadable { id, .. } => id.as_ref(),
        })
    }

    /// How many records are readable.
    pub(crate) fn count(&self) -> usize {
        self.iter().count()
    }
}

/// What is done with every family alike.
pub(super) trait AnyFamily {
    fn name(&self) -> &'static str;
    fn prefix(&self) -> &str;
    fn refresh(&mut self, source: &dyn Source) -> bool;
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
        let mut old = std::mem::take(&mut self.cells).into_iter().peekable();
        let mut cells = BTreeMap::new();
        for entry in source.under(&self.prefix) {
            // Both sides are in key order: what is passed over was deleted.
            while let Some((_, gone)) = old.next_if(|(key, _): &(String, Cell<T>)| *key < entry.key)
            {
                changed = true;
                drop_index(&mut self.index, &gone);
            }
            let kept = old.next_if(|(key, _)| *key == entry.key);
            if let Some((key, cell)) = kept.filter(|(_, c)| c.revision() == entry.mod_revision) {
                cells.insert(key, cell);
                continue;
            }
            changed = true;
            let cell: Cell<T> =
                Cell::decode(&self.prefix, &entry.key, &entry.value, entry.mod_revision);
            match &cell {
                Cell::Readable(stored) => {
                    self.index.insert(stored.id.clone(), entry.key.clone());
                }
                Cell::Unreadable { id, fault, .. } => {
                    tracing::warn!(key = %fault.key, detail = %fault.detail, "record cannot be read and is left out");
                    if let Some(id) = id {
                        self.index.insert(id.clone(), entry.key.clone());
                    }
                }
            }
            cells.insert(entry.key.clone(), cell);
        }
        for (_, gone) in old {
            changed = true;
            drop_index(&mut self.index, &gone);
        }
        self.cells = cells;
        changed
    }

    fn unreadable(&self) -> Vec<&Unreadable> {
        let faults = self.cells.values().filter_map(|cell| match cell {
            Cell::Readable(_) => None,
            Cell::Unreadable { fault, .. } => Some(fault),
        });
        faults.collect()
    }
}

fn drop_index<T: Record>(index: &mut BTreeMap<T::Id, String>, gone: &Cell<T>) {
    match gone {
        Cell::Readable(stored) => {
            index.remove(&stored.id);
        }
        Cell::Unreadable { id: Some(id), .. } => {
            index.remove(id);
        }
        Cell::Unreadable { id: None, .. } => {}
    }
}
