//! The map of a view, and how listings and events change it.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::journal::{Journal, Mark};
use crate::store::prefix_end;
use crate::{Entry, Listing, Revision};

/// One change of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key has this value now.
    Put(Entry),
    /// The key does not exist any more, as of this revision.
    Delete { key: String, revision: Revision },
    /// Forget what was learned from changes; read the whole map.
    Reset,
}

/// The keys of a view at one moment.
#[derive(Debug, Default)]
pub struct ViewState {
    entries: BTreeMap<String, Entry>,
    /// The revision each watch has come to; 0 before its first listing.
    reached: Vec<Revision>,
    journal: Journal,
}

/// What a listing changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) changes: Vec<Change>,
    /// Keys that were not as the watch should have left them.
    pub(super) drifted: usize,
}

impl ViewState {
    pub(super) fn new(feeds: usize, remembered_changes: usize) -> Self {
        let journal = Journal::new(remembered_changes);
        Self { reached: vec![0; feeds], journal, ..Self::default() }
    }

    /// The revision that the map shows; the lowest of its watches'. 0 before the first listing.
    pub fn revision(&self) -> Revision {
        self.reached.iter().copied().min().unwrap_or(0)
    }

    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The entries whose keys begin with `prefix`, in key order.
    pub fn range<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Entry> + 'a {
        self.entries
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .map(|(_, entry)| entry)
            .take_while(move |entry| entry.key.starts_with(prefix))
    }

    /// This moment, for [`Self::changed_since`].
    pub fn mark(&self) -> Mark {
        self.journal.mark()
    }

    /// The keys that changed since a mark, one that changed often more than once; none if too much
    /// did to remember.
    pub fn changed_since(&self, mark: Mark) -> Option<impl Iterator<Item = &str>> {
        self.journal.since(mark)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn reached(&self, feed: usize) -> Revision {
        self.reached[feed]
    }

    pub(super) fn reach(&mut self, feed: usize, revision: Revision) {
        self.reached[feed] = revision;
    }

    /// Applies events of the watch. Returns those that changed something: events that are sent
    /// again after a reopening do not.
    pub(super) fn apply(
        &mut self,
        feed: usize,
        changes: Vec<Change>,
        revision: Revision,
    ) -> Vec<Change> {
        self.reach(feed, revision);
        changes
            .into_iter()
            .filter(|change| {
                let changed = self.apply_one(change);
                if changed {
                    self.note(change);
                }
                changed
            })
            .collect()
    }

    fn note(&mut self, change: &Change) {
        match change {
            Change::Put(entry) => self.journal.note(&entry.key),
            Change::Delete { key, .. } => self.journal.note(key),
            Change::Reset => self.journal.forget(),
        }
    }

    fn apply_one(&mut self, change: &Change) -> bool {
        match change {
            Change::Put(entry) => {
                let newer = |old: &Entry| old.mod_revision < entry.mod_revision;
                let changed = self.entries.get(&entry.key).is_none_or(newer);
                if changed {
                    self.entries.insert(entry.key.clone(), entry.clone());
                }
                changed
            }
            Change::Delete { key, revision } => {
                let older = self.entries.get(key).is_some_and(|old| old.mod_revision < *revision);
                if older {
                    self.entries.remove(key);
                }
                older
            }
            Change::Reset => true,
        }
    }

    /// Makes the prefixes' part of the map what the listings say.
    pub(super) fn replace(
        &mut self,
        feed: usize,
        prefixes: &[String],
        listings: Vec<Listing>,
    ) -> Difference {
        let mut difference = Difference::default();
        let reached = self.reached[feed];
        for (prefix, listing) in prefixes.iter().zip(listings) {
            self.replace_prefix(prefix, listing, reached, &mut difference);
        }
        difference.changes.iter().for_each(|change| self.note(change));
        difference
    }

    fn replace_prefix(
        &mut self,
        prefix: &str,
        listing: Listing,
        reached: Revision,
        difference: &mut Difference,
    ) {
        let revision = listing.revision;
        let mut old = self.take(prefix);
        for entry in listing.entries {
            if old.remove(&entry.key).as_ref() != Some(&entry) {
                // The watch had passed the write, but it was not applied.
                difference.drifted += usize::from(entry.mod_revision <= reached);
                difference.changes.push(Change::Put(entry.clone()));
            }
            self.entries.insert(entry.key.clone(), entry);
        }
        for key in old.into_keys() {
            difference.changes.push(Change::Delete { key, revision });
        }
    }

    fn take(&mut self, prefix: &str) -> BTreeMap<String, Entry> {
        let mut taken = self.entries.split_off(prefix);
        // The end of a UTF-8 prefix need not be UTF-8, so keys are compared as bytes.
        let end = prefix_end(prefix.as_bytes());
        let rest = taken.keys().find(|key| end != [0] && key.as_bytes() >= end.as_slice()).cloned();
        if let Some(first) = rest {
            let mut after = taken.split_off(&first);
            self.entries.append(&mut after);
        }
        taken
    }
}
